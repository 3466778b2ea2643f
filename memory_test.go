package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// Tests that measure the heap are not parallel.

// heapNow returns the size of the live heap.
func heapNow() int64 {
	runtime.GC()
	runtime.GC() // a second time for what the first has only made unreachable
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// slack is the growth of the heap that the runtime and the test itself may cause.
const slack = 512 << 10

// The timers have one deadline or new ones, and other timers are pending. In Manual mode the
// figures are exact.
func TestArmAndStopInALoopGrowsNothing(t *testing.T) {
	for _, opts := range []Options{{}, {Manual: true, WheelSize: 64, Levels: 3}} {
		for _, population := range []int{0, 1, 3 * arena.PageSize} {
			for _, spread := range []time.Duration{0, ms, 1017 * ms, time.Hour} {
				t.Run(fmt.Sprintf("manual=%v/population=%d/spread=%v", opts.Manual, population, spread), func(t *testing.T) {
					opts.Shards = 1
					tw := startWheel(t, opts)
					f := func() {}
					for i := range population {
						tw.AfterFunc(time.Hour+time.Duration(i)*time.Second, f)
					}
					loop := func(n int) {
						for i := range n {
							d := 30*time.Second + time.Duration(i&0xfff)*spread
							t1, t2 := tw.AfterFunc(d, f), tw.AfterFunc(2*d, f)
							if i%3 == 0 {
								tw.Len() // places the timers
							}
							if !t1.Stop() || !t2.Reschedule(3*d) || !t2.Stop() {
								t.Fatal("a timer was not pending")
							}
						}
					}
					loop(10_000)
					before, st := heapNow(), tw.Stats()
					loop(scaled(200_000))
					assert.Less(t, heapNow()-before, int64(slack))
					after := tw.Stats()
					assert.Equal(t, population, after.Pending)
					assert.EqualValues(t, after.Armed-uint64(population), after.Stopped)
					assert.LessOrEqual(t, after.Bytes, st.Bytes+4096)
					assert.LessOrEqual(t, len(tw.engine.shards[0].owner.store.all), st.Buckets+4)
					verifyShards(t, tw.engine)
					runtime.KeepAlive(tw)
				})
			}
		}
	}
}

func TestStopAndRearmAmongAThousandGrowsNothing(t *testing.T) {
	for name, far := range map[string]time.Duration{"within an hour": time.Hour, "within years": 5 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			tw := startWheel(t, Options{})
			timers := make([]Timer, 1000)
			for i := range timers {
				timers[i] = tw.AfterFunc(time.Minute+rand.N(far), func() {})
			}
			loop := func(n int) {
				rng := rand.New(rand.NewPCG(1, 2))
				f := func() {}
				for range n {
					i := rng.IntN(len(timers))
					if !timers[i].Stop() {
						t.Fatal("a pending timer was lost")
					}
					timers[i] = tw.AfterFunc(time.Minute+time.Duration(rng.Int64N(int64(far))), f)
				}
			}
			loop(scaled(100_000))
			before := heapNow()
			loop(scaled(3_000_000))
			assert.Less(t, heapNow()-before, int64(slack))
			assert.Equal(t, len(timers), tw.Len())
			verifyShards(t, tw.engine)
		})
	}
}

// Timers that are stopped and armed at random leave buckets with gaps. They take at most 16 bytes
// more for each timer than timers that were armed only once.
func TestGapsInBucketsAreBounded(t *testing.T) {
	tw := startWheel(t, Options{Shards: 1})
	timers := fillWheel(tw, 100_000)
	filled := tw.Stats().Bytes
	rng := xorshift(2)
	for range scaled(1_000_000) {
		i := rng.below(len(timers))
		require.True(t, timers[i].Stop())
		timers[i] = tw.AfterFunc(rng.far(), func() {})
	}
	require.Equal(t, len(timers), tw.Len())
	assert.Less(t, tw.Stats().Bytes, filled+16*uint64(len(timers)))
	runtime.KeepAlive(timers)
}

func TestPostponingInALoopGrowsNothing(t *testing.T) {
	tw := startWheel(t, Options{})
	timers := make([]Timer, 1000)
	for i := range timers {
		timers[i] = tw.AfterFunc(time.Minute, func() {})
	}
	before := heapNow()
	for i := range scaled(1_000_000) {
		// Later each time, except for an earlier time at intervals.
		require.True(t, timers[i%len(timers)].Reschedule(time.Hour+time.Duration(i)*ms-time.Duration(i%7)*time.Minute))
	}
	assert.Less(t, heapNow()-before, int64(slack))
	assert.Equal(t, len(timers), tw.Len())
	verifyShards(t, tw.engine)
}

// capture returns a callback that refers to 1 KB.
func capture(i int) func() {
	block := new([1024]byte)
	return func() { block[i&1023]++ }
}

// stopAll arms n timers and stops them in random order. It returns the live bytes after one
// collection, before and after the stops, without the handles. Unless keep is set, each handle is
// dropped with its stop.
func stopAll[H interface{ Stop() bool }](tb testing.TB, n int, keep bool, arm func(d time.Duration, f func()) H) (pending, stopped int64) {
	tb.Helper()
	collect := func() int64 {
		runtime.GC() // once
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	handles := make([]H, n)
	before := heapNow()
	for i := range handles {
		handles[i] = arm(time.Minute+time.Duration(rng.Int64N(int64(time.Hour))), capture(i))
	}
	pending = collect() - before
	rng.Shuffle(n, func(i, k int) { handles[i], handles[k] = handles[k], handles[i] })
	var none H
	for i, h := range handles {
		if !h.Stop() {
			tb.Fatal("a pending timer was lost")
		}
		if !keep {
			handles[i] = none
		}
	}
	stopped = collect() - before
	runtime.KeepAlive(handles)
	return pending, stopped
}

// Stop releases everything that the callback refers to. A million timers hold a gigabyte. Once they
// are stopped, one collection frees it, although the wheel and the handles are in use and some
// timers were sampled.
func TestStopReleasesCaptures(t *testing.T) {
	n := scaled(1_000_000)
	tw := startWheel(t, Options{ProfileRate: 512})
	pending, stopped := stopAll(t, n, true, tw.AfterFunc)
	t.Logf("%.0f bytes a pending timer, and %.1f when stopped", float64(pending)/float64(n), float64(stopped)/float64(n))
	assert.Greater(t, pending, int64(n)<<10, "pending timers hold their callbacks")
	assert.Less(t, stopped, int64(n)*20+slack, "of 1,024 bytes for each timer")
	assert.Zero(t, tw.Len())
}

// After a spike at least 80% of its memory is freed, whether the timers fire or are stopped, in any
// order.
func TestMemoryIsFreedAfterASpike(t *testing.T) {
	n := scaled(2_000_000)
	ends := map[string]func(t *testing.T, tw *TimingWheel, timers []Timer){
		"stopped in order": func(t *testing.T, _ *TimingWheel, timers []Timer) {
			t.Helper()
			for _, timer := range timers {
				timer.Stop()
			}
		},
		"stopped at random": func(t *testing.T, _ *TimingWheel, timers []Timer) {
			t.Helper()
			rand.Shuffle(len(timers), func(i, k int) { timers[i], timers[k] = timers[k], timers[i] })
			for _, timer := range timers {
				timer.Stop()
			}
		},
		"flushed": func(t *testing.T, tw *TimingWheel, _ []Timer) {
			t.Helper()
			tw.Flush()
			require.NoError(t, drainWheel(tw))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			tw := startWheel(t, Options{})
			timers := make([]Timer, n)
			f := func() {}
			before := heapNow()
			for i := range timers {
				timers[i] = tw.AfterFunc(time.Hour+time.Duration(i%1_000_000)*ms, f)
			}
			full := heapNow()
			require.Greater(t, full-before, int64(20*n)) // 26 bytes for each timer, 22 on 32 bits
			end(t, tw, timers)
			require.Zero(t, tw.Len())
			left := heapNow() - before
			assert.Less(t, float64(left), 0.2*float64(full-before), "%d of %d bytes are still held", left, full-before)
			verifyShards(t, tw.engine)
			runtime.KeepAlive(timers)
		})
	}
}

// The wheel's Stop frees everything immediately, although handles survive.
func TestStopOfTheWheelFreesItsMemory(t *testing.T) {
	tw := startWheel(t, Options{})
	timers := make([]Timer, scaled(500_000))
	before := heapNow()
	for i := range timers {
		timers[i] = tw.AfterFunc(time.Hour, func() { _ = i })
	}
	require.Greater(t, heapNow()-before, int64(len(timers)*24))
	tw.Stop()
	assert.Less(t, heapNow()-before, int64(slack))
	assert.False(t, timers[0].Stop())
	runtime.KeepAlive(timers)
	runtime.KeepAlive(tw)
}

func TestNothingIsAllocatedPerOperation(t *testing.T) {
	if underInvariants {
		t.Skip("verify allocates")
	}
	tw := startWheel(t, Options{})
	w := startTimeouts(t, Options{}, func([]uint64) {})
	manual := startWheel(t, Options{Manual: true})
	f := func() {}
	for range 1000 { // the population
		tw.AfterFunc(time.Hour, f)
	}
	pending := tw.AfterFunc(time.Hour, f)
	at := time.Now().Add(time.Hour)
	earlier := 2 * time.Hour
	for name, op := range map[string]func(){
		"AfterFunc+Stop":        func() { tw.AfterFunc(30*time.Second, f).Stop() },
		"AtFunc+Stop":           func() { tw.AtFunc(at, f).Stop() },
		"Reschedule later":      func() { pending.Reschedule(3 * time.Hour) },
		"Reschedule earlier":    func() { earlier -= ms; pending.Reschedule(earlier) },
		"RescheduleAt":          func() { pending.RescheduleAt(at) },
		"Deadline":              func() { pending.Deadline() },
		"Len":                   func() { tw.Len() },
		"Next":                  func() { tw.Next() },
		"Timeouts.Add+Stop":     func() { w.Add(30*time.Second, 7).Stop() },
		"Manual AfterFunc+Stop": func() { manual.AfterFunc(30*time.Second, f).Stop() },
		"Manual fire":           func() { manual.AfterFunc(0, f); manual.Advance(manual.Now().Add(ms)) },
	} {
		assert.Zero(t, testing.AllocsPerRun(2000, op), name)
	}
}

// FuncTimers, Sleep and contexts allocate no more than package time and package context, and new
// channel timers and tickers one closure more.
func TestNothingIsAllocatedMoreThanByPackageTime(t *testing.T) {
	if underRace || underInvariants {
		t.Skip("sync.Pool drops objects under the race detector, and verify allocates")
	}
	tw, quick := startWheel(t, Options{}), startWheel(t, Options{Tick: minTick, Shards: 1})
	timer, ticker, ft := tw.NewChannelTimer(time.Hour), tw.NewTicker(time.Hour), tw.NewFuncTimer(time.Hour, func() {})
	parent, end := context.WithCancel(t.Context())
	defer end()
	ctx, cancel := tw.WithTimeout(parent, time.Hour)
	defer cancel()
	over, leave := tw.WithTimeout(parent, time.Hour)
	leave()
	ask := func(ctx context.Context) func() {
		return func() {
			_, _ = ctx.Deadline()
			_, _, _ = ctx.Done(), ctx.Err(), context.Cause(ctx)
		}
	}
	for name, of := range map[string]struct{ own, std func() }{
		"NewChannelTimer":        {func() { tw.NewChannelTimer(time.Hour).Stop() }, func() { time.NewTimer(time.Hour).Stop() }},
		"After":                  {func() { tw.After(time.Hour) }, func() { time.After(time.Hour) }},
		"NewTicker":              {func() { tw.NewTicker(time.Hour).Stop() }, func() { time.NewTicker(time.Hour).Stop() }},
		"Reset":                  {func() { timer.Reset(time.Hour) }, func() {}},
		"Ticker.Reset":           {func() { ticker.Reset(time.Hour) }, func() {}},
		"Stop, Reset":            {func() { timer.Stop(); timer.Reset(time.Hour) }, func() {}},
		"Touch":                  {func() { ft.Touch() }, func() {}},
		"TouchFrom":              {func() { ft.TouchFrom(time.Now()) }, func() {}},
		"FuncTimer.Reset":        {func() { ft.Reset(2 * time.Hour) }, func() {}},
		"FuncTimer.Stop, Reset":  {func() { ft.Stop(); ft.Reset(time.Hour) }, func() {}},
		"Sleep":                  {func() { _ = quick.Sleep(parent, 10*time.Microsecond) }, func() {}},
		"methods of a context":   {ask(ctx), func() {}},
		"the same after the end": {ask(over), func() {}},
	} {
		own, std := testing.AllocsPerRun(1000, of.own), testing.AllocsPerRun(1000, of.std)
		if strings.HasPrefix(name, "New") {
			std++
		}
		assert.LessOrEqual(t, own, std, name)
	}
	for _, parent := range []context.Context{context.Background(), parent} {
		own := testing.AllocsPerRun(1000, func() { _, cancel := tw.WithTimeout(parent, time.Hour); cancel() })
		std := testing.AllocsPerRun(1000, func() { _, cancel := context.WithTimeout(parent, time.Hour); cancel() })
		assert.LessOrEqual(t, own, 3.0)
		assert.Less(t, own, std)
	}
}

// A run of ScheduleFunc allocates nothing. A run of ScheduleRun allocates its Run.
func TestPlansStaySmall(t *testing.T) {
	if underInvariants {
		t.Skip("verify allocates")
	}
	every := Every(ms)
	for name, row := range map[string]struct {
		start  func(tw *TimingWheel) Timer
		allocs float64
	}{
		"Every":      {func(tw *TimingWheel) Timer { return tw.ScheduleFunc(every, func() {}) }, 0},
		"Scheduler":  {func(tw *TimingWheel) Timer { return tw.ScheduleFunc(nextFunc(every.Next), func() {}) }, 0},
		"planner":    {func(tw *TimingWheel) Timer { return tw.ScheduleFunc(asPlanner{every}, func() {}) }, 0},
		"with a Run": {func(tw *TimingWheel) Timer { return tw.ScheduleRun(every, func(*Run) {}) }, 1},
	} {
		tw := startWheel(t, Options{Manual: true})
		plan := row.start(tw)
		runs := tw.Stats().Armed
		step := func() { tw.Advance(tw.Now().Add(ms)) }
		assert.LessOrEqual(t, testing.AllocsPerRun(2000, step), row.allocs, name)
		assert.Greater(t, tw.Stats().Armed, runs+2000, name)
		assert.True(t, plan.Stop())
	}
	assert.LessOrEqual(t, unsafe.Sizeof(plan{}), uintptr(208), "a size class of the allocator")
}

// Tests that the garbage collector frees callbacks, payloads and unreferenced wheels.

// referenced only by a timer: with noinline no stack frame of the caller refers to it.
//
//go:noinline
func armResource(arm func(f func()) Timer) (Timer, weak.Pointer[resource]) {
	r := new(resource)
	return arm(func() { r.bytes[0]++ }), weak.Make(r)
}

func TestClosureIsReleased(t *testing.T) {
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			other := tw.AfterFunc(time.Hour, func() {}) // keeps the page alive
			arm := func(d time.Duration) func(func()) Timer {
				return func(f func()) Timer { return tw.AfterFunc(d, f) }
			}

			timer, r := armResource(arm(time.Hour))
			runtime.GC()
			require.NotNil(t, r.Value(), "a pending timer holds its closure")
			require.True(t, timer.Stop())
			awaitCollected(t, r, "the closure of a stopped timer")
			runtime.KeepAlive(timer)

			timer, r = armResource(arm(0))
			awaitCollected(t, r, "the closure of a fired timer")
			assert.False(t, timer.Stop())

			timer, r = armResource(func(f func()) Timer {
				return tw.AfterFunc(0, func() { f(); runtime.Goexit() })
			})
			awaitCollected(t, r, "the closure of a callback that called Goexit")
			runtime.KeepAlive(timer)

			timer, r = armResource(func(f func()) Timer { return tw.ScheduleFunc(Every(ms), f) })
			time.Sleep(3 * ms)
			require.True(t, timer.Stop())
			awaitCollected(t, r, "the closure of a stopped plan")
			runtime.KeepAlive(timer)

			timer, r = armResource(func(f func()) Timer {
				return tw.ScheduleFunc(newLastRun(2, ms), f)
			})
			awaitCollected(t, r, "the closure of a plan that has ended")
			assert.False(t, timer.Stop())

			_, r = armResource(func(f func()) Timer { tw.NewFuncTimer(time.Hour, f).Stop(); return Timer{} })
			awaitCollected(t, r, "the closure of a stopped FuncTimer")
			_, r = armResource(func(f func()) Timer { tw.NewFuncTimer(0, f); return Timer{} })
			awaitCollected(t, r, "the closure of a FuncTimer that has fired")

			plan, ofPlan := armResource(func(f func()) Timer { return tw.ScheduleFunc(Every(time.Hour), f) })
			timer, r = armResource(arm(time.Hour))
			tw.Stop()
			awaitCollected(t, r, "the closure of a pending timer of a stopped wheel")
			assert.False(t, timer.Stop())
			assert.False(t, other.Stop())
			assert.False(t, plan.Stop())
			awaitCollected(t, ofPlan, "the closure of a plan, after a call to its handle")
			assert.False(t, plan.Stop()) // keeps the handle
			runtime.KeepAlive(tw)
		})
	}
}

// Stop releases the closure even if the timer is due and the executor has its call.
func TestClosureOfATimerWithAQueuedCallIsReleasedAtStop(t *testing.T) {
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	timer, r := armResource(func(f func()) Timer { return tw.AfterFunc(0, f) })
	await(t, "the call is submitted", func() bool { return h.len() > 0 })
	require.True(t, timer.Stop())
	awaitCollected(t, r, "the closure")
	h.release()
	runtime.KeepAlive(timer)
}

//go:noinline
func addResource(w *Timeouts[*resource], d time.Duration) (Timer, weak.Pointer[resource]) {
	r := new(resource)
	return w.Add(d, r), weak.Make(r)
}

func TestPayloadIsReleased(t *testing.T) {
	var expired atomic.Int32
	w := startTimeouts(t, Options{Shards: 1}, func(batch []*resource) { expired.Add(int32(len(batch))) })
	keep := w.Add(time.Hour, nil)

	timer, r := addResource(w, time.Hour)
	require.True(t, timer.Stop())
	awaitCollected(t, r, "the payload of a stopped timer")

	timer, r = addResource(w, 0)
	await(t, "the payload expires", func() bool { return expired.Load() == 1 })
	awaitCollected(t, r, "an expired payload")
	assert.False(t, timer.Stop())

	timer, r = addResource(w, time.Hour)
	require.Len(t, w.RemoveAll(), 2)
	awaitCollected(t, r, "a removed payload")
	assert.False(t, timer.Stop())
	assert.False(t, keep.Stop())

	timer, r = addResource(w, time.Hour)
	w.Stop()
	awaitCollected(t, r, "a payload of a stopped wheel")
	runtime.KeepAlive(timer)
	runtime.KeepAlive(w)
}

// forgotten creates a wheel, uses it and drops the reference. It returns a weak pointer to the
// shard, which refers to all other parts. The alarm's timer of the runtime could keep the shard
// alive.
//
//go:noinline
func forgotten(t *testing.T, opts Options, use func(tw *TimingWheel)) weak.Pointer[shard] {
	t.Helper()
	opts.Shards = 1
	tw, err := New(withLimit(opts))
	require.NoError(t, err)
	use(tw)
	return weak.Make(tw.engine.shards[0])
}

// A wheel without pending timers is collected without Stop after any use. If its earliest timer was
// stopped, it is collected after the deadline of that timer, at which the alarm is turned off
// (TestIdleWheelTurnsItsAlarmOff).
func TestUnreferencedWheelIsCollected(t *testing.T) {
	uses := map[string]func(tw *TimingWheel){
		"nothing": func(*TimingWheel) {},
		"timers that have fired": func(tw *TimingWheel) {
			for range 100 {
				tw.AfterFunc(ms, func() {})
			}
			assert.NoError(t, drainWheel(tw))
		},
		"timers, armed and stopped": func(tw *TimingWheel) {
			for range 5000 {
				tw.AfterFunc(20*ms, func() {}).Stop()
			}
		},
		"a flush": func(tw *TimingWheel) {
			tw.AfterFunc(24*time.Hour, func() {})
			tw.Flush()
			assert.NoError(t, drainWheel(tw))
		},
		"plans that have ended": func(tw *TimingWheel) {
			last := newLastRun(2, ms)
			tw.ScheduleFunc(last, func() {})
			tw.ScheduleRun(overlapping(2), func(*Run) {})
			assert.NoError(t, drainWheel(tw))
		},
		"timers and tickers with a channel": func(tw *TimingWheel) {
			<-tw.After(ms)
			timer := tw.NewChannelTimer(ms)
			<-timer.C
			timer.Reset(20 * ms)
			timer.Stop()
			tw.NewChannelTimer(0) // its value is never received
			for range tw.Ticks(ms) {
				break
			}
			assert.NoError(t, drainWheel(tw))
		},
		"sleep": func(tw *TimingWheel) {
			ctx, cancel := context.WithCancel(context.Background())
			assert.NoError(t, tw.Sleep(ctx, ms))
			time.AfterFunc(ms, cancel)
			assert.Equal(t, context.Canceled, tw.Sleep(ctx, time.Second))
		},
		"Stop, with timers pending": func(tw *TimingWheel) {
			tw.AfterFunc(24*time.Hour, func() {})
			tw.Stop()
		},
	}
	for name, use := range uses {
		for _, executor := range []Executor{nil, Goroutines} {
			awaitCollected(t, forgotten(t, Options{Executor: executor}, use), "a wheel after "+name)
		}
	}
}

// The timers of an unreferenced wheel fire.
func TestUnreferencedWheelFires(t *testing.T) {
	fired := make(chan struct{})
	forgotten(t, Options{}, func(tw *TimingWheel) { tw.AfterFunc(20*ms, func() { close(fired) }) })
	runtime.GC()
	runtime.GC()
	receive(t, fired, "the timer")
}

// Ways in which contexts with a common parent end. Each function returns after the end.
var contextEnds = map[string]func(t *testing.T, ctx context.Context, cancel, end func()){
	"cancel": func(_ *testing.T, _ context.Context, cancel, _ func()) { cancel() },
	"deadline": func(t *testing.T, ctx context.Context, _, _ func()) {
		receive(t, ctx.Done(), "the deadline")
	},
	"parent": func(t *testing.T, ctx context.Context, _, end func()) {
		end()
		receive(t, ctx.Done(), "the end of the parent")
	},
}

type newParent func(tw *TimingWheel, r *resource) (parent context.Context, end func())

// parentsOfMemory are the parents of contexts for the memory tests. Only the parent refers to the
// resource.
var parentsOfMemory = map[string]newParent{
	"background": func(_ *TimingWheel, r *resource) (context.Context, func()) {
		return context.WithValue(context.Background(), testKey(1), r), func() {}
	},
	"of package context": func(_ *TimingWheel, r *resource) (context.Context, func()) {
		parent, end := context.WithCancel(context.Background())
		return context.WithValue(parent, testKey(1), r), end
	},
	"of the wheel": func(tw *TimingWheel, r *resource) (context.Context, func()) {
		parent, end := tw.WithTimeout(context.Background(), time.Hour)
		return context.WithValue(parent, testKey(1), r), end
	},
	"of neither": func(_ *TimingWheel, r *resource) (context.Context, func()) {
		parent := newPlainContext()
		return context.WithValue(parent, testKey(1), r), parent.end
	},
}

// endAll creates contexts of each kind below the parent and ends them. It returns two of them, and
// weak pointers to the others. Only the library could keep those alive.
//
//go:noinline
func endAll(t *testing.T, tw *TimingWheel, parent context.Context, end func(), way string) (kept []context.Context, gone []weak.Pointer[deadlineContext]) {
	d := time.Hour
	if way == "deadline" {
		d = 5 * time.Millisecond
	}
	var endings []func()
	for i := range 8 {
		ctx, cancel := tw.WithTimeoutCause(parent, d, []error{nil, errCause}[i%2])
		if i == 2 || i == 3 {
			kept = append(kept, ctx)
		} else {
			gone = append(gone, weak.Make(ctx.(*deadlineContext)))
		}
		if i >= 6 { // with relatives
			below, cancelBelow := tw.WithTimeout(context.WithValue(ctx, testKey(2), 2), time.Hour)
			gone = append(gone, weak.Make(below.(*deadlineContext)))
			_, cancelStd := context.WithCancel(below)
			_ = cancelStd // below's end is its end
			defer cancelBelow()
		}
		endings = append(endings, func() { contextEnds[way](t, ctx, cancel, end) })
	}
	for _, i := range []int{4, 3, 5, 0, 2, 1, 7, 6} {
		endings[i]()
	}
	return kept, gone
}

// endBelow ends contexts below a parent. They are collected, with their descendants, although the
// wheel, the parent and siblings are still in use. It returns two of them, and weak pointers to the
// wheel, which is stopped, and to a value of the parent.
//
//go:noinline
func endBelow(t *testing.T, newParent newParent, way string) (kept []context.Context, wheel weak.Pointer[TimingWheel], value weak.Pointer[resource]) {
	tw, err := New(Options{})
	require.NoError(t, err)
	r := new(resource)
	value = weak.Make(r)
	parent, end := newParent(tw, r)
	r = nil
	var sibling context.Context
	if way != "parent" {
		var leave func()
		sibling, leave = tw.WithTimeout(parent, time.Hour)
		defer leave()
	}
	kept, gone := endAll(t, tw, parent, end, way)
	for _, p := range gone {
		awaitCollected(t, p, "a context")
	}
	if sibling != nil {
		assert.NoError(t, sibling.Err())
	}
	require.NotNil(t, value.Value(), "the parent refers to it")
	end()
	runtime.KeepAlive(parent)
	tw.Stop()
	return kept, weak.Make(tw), value
}

// An ended context is collected. A reference to one keeps neither its siblings nor the wheel, and
// values to which only the parent refers are collected together with the parent.
func TestEndedContextsAreCollected(t *testing.T) {
	for kind, newParent := range parentsOfMemory {
		for way := range contextEnds {
			if kind == "background" && way == "parent" {
				continue
			}
			t.Run(kind+"/"+way, func(t *testing.T) {
				kept, wheel, value := endBelow(t, newParent, way)
				if kind != "of the wheel" { // there the parent may have the wheel's timer
					awaitCollected(t, wheel, "the wheel")
				}
				for _, ctx := range kept {
					assert.Error(t, ctx.Err())
				}
				awaitCollected(t, value, "a value of the parent")
			})
		}
	}
}

// Timers that are touched each second hold their records for ever. Other timers wear out records by
// the million meanwhile. The touched timers do not hold the worn pages.
func TestTouchedTimersHoldNoWornPages(t *testing.T) {
	if underRace || underInvariants {
		t.Skip("it would take too long")
	}
	tw := startWheel(t, Options{Manual: true, Shards: 1})
	f := func() {}
	timers := make([]FuncTimer, 100_000)
	for i := range timers {
		timers[i].Init(tw, 30*time.Second, f)
	}
	before := tw.Stats().Bytes
	const perSecond = 1 << 20
	for range scaled(100_000_000) / perSecond {
		tw.Advance(tw.Now().Add(time.Second))
		for i := range timers {
			timers[i].Touch()
		}
		for range perSecond {
			tw.AfterFunc(time.Minute, f).Stop()
		}
	}
	require.Zero(t, tw.Stats().Fired)
	require.Equal(t, len(timers), tw.Len())
	require.LessOrEqual(t, tw.Stats().Bytes, before+64<<10)
}
