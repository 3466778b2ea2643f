package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests measure the heap, so none of them runs beside another.

// heapNow is the live heap.
func heapNow() int64 {
	runtime.GC()
	runtime.GC() // a second time for what the first has only made unreachable
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// slack is what the runtime and the test itself may add to the heap.
const slack = 512 << 10

func TestArmAndStopInALoopGrowsNothing(t *testing.T) {
	tw := startWheel(t, Options{})
	f := func() {}
	loop := func(n int) {
		for i := range n {
			tw.AfterFunc(30*time.Second+time.Duration(i&0xfff)*ms, f).Stop()
		}
	}
	loop(10_000)
	before, bytes := heapNow(), tw.Stats().Bytes
	loop(scaled(3_000_000))
	assert.Less(t, heapNow()-before, int64(slack))
	assert.LessOrEqual(t, tw.Stats().Bytes, bytes+slack)
	assert.Zero(t, tw.Len())
	assert.EqualValues(t, tw.Stats().Armed, tw.Stats().Stopped)
	runtime.KeepAlive(tw)
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
						t.Fatal("a live timer was lost")
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

func TestPostponingInALoopGrowsNothing(t *testing.T) {
	tw := startWheel(t, Options{})
	timers := make([]Timer, 1000)
	for i := range timers {
		timers[i] = tw.AfterFunc(time.Minute, func() {})
	}
	before := heapNow()
	for i := range scaled(1_000_000) {
		// Later by ever more, and now and then earlier again.
		require.True(t, timers[i%len(timers)].Reschedule(time.Hour+time.Duration(i)*ms-time.Duration(i%7)*time.Minute))
	}
	assert.Less(t, heapNow()-before, int64(slack))
	assert.Equal(t, len(timers), tw.Len())
	verifyShards(t, tw.engine)
}

// After a spike at least 80% of its memory is back, in whatever order the timers are stopped, and
// also if all of them fire.
func TestMemoryComesBackAfterASpike(t *testing.T) {
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

// The wheel's Stop frees everything at once, although handles survive.
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

// However many goroutines a burst takes, they end with it.
func TestGoroutinesEndAfterABurst(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, executor := range []Executor{nil, Goroutines} {
		tw := startWheel(t, Options{Executor: executor})
		most := 0
		for range 3 {
			for range scaled(10_000) {
				tw.AfterFunc(ms, func() { time.Sleep(ms) })
			}
			await(t, "the burst", func() bool { most = max(most, runtime.NumGoroutine()); return tw.Len() == 0 })
			goroutinesReturnTo(t, before)
		}
		t.Logf("executor %T: at most %d goroutines seen", executor, most)
	}
}
