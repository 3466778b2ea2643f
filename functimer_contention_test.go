package timingwheel

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contended calls f while the locks of the first shard are held, as if its owner were preempted. f
// must not wait for them.
func contended(t *testing.T, tw *TimingWheel, f func()) {
	t.Helper()
	s := tw.engine.shards[0]
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	s.inbox.mu.Lock()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(hangTimeout):
		s.inbox.mu.Unlock()
		require.FailNow(t, "the call waits for inbox.mu")
	}
	s.inbox.mu.Unlock()
}

// An owner that is preempted while it holds inbox.mu delays no call (G15), and results are exact.
// Stop, Touch and a Reset to a later deadline need no lock. Other Resets arm on another shard.
func TestFuncTimersDoNotWaitForArmMu(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 2}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := new(FuncTimer)
		ft.InitStopped(tw, watch.note)
		want := Stats{}
		step := func(name string, shard int, calls func()) {
			t.Helper()
			sendTo(tw, 0)
			contended(t, tw, calls)
			assert.Same(t, tw.engine.shards[shard], ft.timer.ref.Load().shard, name)
			synctest.Wait()
			st := tw.Stats()
			got := Stats{Armed: st.Armed, Fired: st.Fired, Stopped: st.Stopped, Postponed: st.Postponed, Pending: st.Pending}
			assert.Equal(t, want, got, name)
			assert.Equal(t, want.Pending, tw.Len(), name)
			verifyShards(t, tw.engine)
		}
		armOnFirst := func() {
			sendTo(tw, 0)
			assert.False(t, ft.Reset(time.Hour))
			want.Armed++
			want.Pending++
		}
		stop := func() {
			assert.True(t, ft.Stop())
			assert.False(t, ft.Stop())
			want.Stopped++
			want.Pending--
		}
		for _, place := range []func(){func() {}, tw.engine.shards[0].placeAll} { // in the inbox, on the wheel
			armOnFirst()
			place()
			step("Touch", 0, func() { assert.True(t, ft.Touch()) })
			step("Reset, later", 0, func() { assert.True(t, ft.Reset(2*time.Hour)) })
			want.Postponed++
			step("Reset, earlier", 1, func() { assert.True(t, ft.Reset(10*ms)) })
			pass(9 * ms)
			assert.Equal(t, want.Fired, uint64(len(watch.noted())))
			pass(ms)
			want.Fired++
			want.Pending--
			assert.Equal(t, want.Fired, uint64(len(watch.noted())), "not at the old deadline")
			step("Stop after the call", 1, func() { assert.False(t, ft.Stop()) })
			want.Armed++
			want.Pending++
			step("Reset after the call", 1, func() { assert.False(t, ft.Reset(time.Hour)) })
			step("Stop on the other shard", 1, stop)
			armOnFirst()
			place()
			step("Stop", 0, stop)
			want.Armed++
			want.Pending++
			step("Reset after Stop", 1, func() { assert.False(t, ft.Reset(time.Hour)) })
			stop()
		}
		pass(3 * time.Hour)
		assert.Len(t, watch.noted(), 2)
	})
}

// holdArmMu holds inbox.mu for some time, as a preempted goroutine would.
func holdArmMu(tw *TimingWheel) {
	s := tw.engine.shards[0]
	s.inbox.mu.Lock()
	spin(2 * time.Microsecond)
	s.inbox.mu.Unlock()
	runtime.Gosched()
}

// No call is early or missing while inbox.mu is held much of the time. Each goroutine resets one
// timer twice, and the results show which calls must come.
func TestRaceResetsAreNeverEarlyWhileArmMuIsHeld(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		opts.Shards = max(opts.Shards, 2)
		tw := startWheel(t, opts)
		var all sync.WaitGroup
		for g := range 3 {
			all.Go(func() {
				start := time.Now()
				calls := make(chan time.Duration, 2)
				var ft FuncTimer
				ft.InitStopped(tw, func() { calls <- time.Since(start) })
				rng := rand.New(rand.NewPCG(uint64(g), 8))
				for range scaled(300) {
					var promised []time.Duration
					for range 2 {
						d := time.Duration(rng.IntN(5)) * opts.Tick
						at := time.Since(start) + d
						if ft.Reset(d) {
							promised = promised[:len(promised)-1]
						}
						promised = append(promised, at)
						if rng.IntN(3) == 0 {
							spin(opts.Tick)
						}
					}
					var ran []time.Duration
					for range promised {
						ran = append(ran, receive(t, calls, "a call"))
					}
					slices.Sort(ran)
					slices.Sort(promised)
					for k := range ran {
						if ran[k] < promised[k] {
							t.Errorf("%s: early by %v", optionName(opts), promised[k]-ran[k])
						}
					}
				}
			})
		}
		concurrently(func() { holdArmMu(tw) }, all.Wait)
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	}
}

// raced is a FuncTimer of a race test, with its events.
type raced struct {
	FuncTimer
	running, calls, armed, stopped atomic.Int64
}

func (r *raced) arm(d time.Duration) {
	if !r.Reset(d) {
		r.armed.Add(1)
	}
}

// call is the function of the timer. It blocks, panics, exits or arms its timer.
func (r *raced) call(g *gauge) {
	r.running.Add(1)
	g.enter()
	defer g.leave()
	defer r.running.Add(-1)
	r.calls.Add(1)
	switch rand.IntN(24) {
	case 0:
		time.Sleep(rand.N(200 * time.Microsecond))
	case 1:
		panic("reported")
	case 2:
		runtime.Goexit()
	case 3:
		runtime.Gosched()
	case 4, 5:
		r.arm(rand.N(100 * time.Microsecond))
	}
}

// FuncTimers are armed, touched, flushed, and stopped with and without waiting. Goroutines share
// some timers, and others are their own. inbox.mu is held at times, and samples and Around are on.
// Every arming ends in one call or one Stop, and no call runs or begins after its StopWait. The
// same holds if the wheel is stopped meanwhile.
func TestRaceFuncTimersAreExact(t *testing.T) {
	t.Parallel()
	for _, opts := range append([]Options{
		{Shards: 1, Executor: limitOf(1)},
		{Shards: 1, Executor: limitOf(2), WheelSize: 2, Levels: 2, Tick: minTick},
		{Shards: 4, Executor: limitOf(1), Tick: 50 * time.Microsecond},
		{Shards: 4, Executor: limitOf(3), Tick: 100 * time.Microsecond},
	}, tiny...) {
		for _, stops := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,stops=%v", optionName(opts), stops), func(t *testing.T) {
				t.Parallel()
				raceFuncTimers(t, opts, stops)
			})
		}
	}
}

func raceFuncTimers(t *testing.T, opts Options, stops bool) {
	limit, limited := opts.Executor.(limitOf)
	opts.OnPanic = func(any, []byte) {}
	if limited {
		opts.ProfileRate = 2
		opts.Around = func(_ Call, run func()) { run() }
	}
	tw := startWheel(t, opts)
	var g gauge
	var timers [4][4]raced // the last four are shared
	for k := range timers {
		for j := range timers[k] {
			r := &timers[k][j]
			r.InitStopped(tw, func() { r.call(&g) })
		}
	}
	var all sync.WaitGroup
	for k := range timers[:3] {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 9))
			for range max(scaled(3000), 300) {
				own := rng.IntN(2) == 0
				r := &timers[3][rng.IntN(4)]
				if own {
					r = &timers[k][rng.IntN(4)]
				}
				switch rng.IntN(8) {
				case 0, 1, 2:
					r.arm(time.Duration(rng.IntN(1000)) * time.Microsecond)
				case 3:
					r.Touch()
				case 4:
					if r.Stop() {
						r.stopped.Add(1)
					}
				case 5:
					if !own {
						continue
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(2000))*time.Microsecond)
					if err := r.StopWait(ctx); err == nil {
						before, running := r.calls.Load(), r.running.Load()
						spin(rand.N(20 * time.Microsecond))
						if running != 0 || r.calls.Load() != before {
							t.Error("the function runs or begins after StopWait")
						}
					}
					cancel()
				case 6:
					runtime.Gosched()
				default:
					if rng.IntN(50) == 0 {
						tw.Flush()
					}
				}
			}
		})
	}
	rounds := 0
	concurrently(func() {
		holdArmMu(tw)
		if rounds++; rounds%32 == 0 {
			verifyShards(t, tw.engine)
			assert.GreaterOrEqual(t, tw.Len(), 0)
			if limited {
				assert.NoError(t, tw.WriteProfile(io.Discard))
			}
		}
		if stops && rounds == 50 {
			tw.Stop()
		}
	}, all.Wait)
	if stops {
		tw.Stop()
		require.NoError(t, tw.Shutdown(t.Context()))
	} else {
		require.NoError(t, drainWheel(tw))
	}
	st := tw.Stats()
	assert.Equal(t, st.Armed, st.Fired+st.Stopped+st.Discarded)
	var calls, armed int64
	for k := range timers {
		for j := range timers[k] {
			r := &timers[k][j]
			calls, armed = calls+r.calls.Load(), armed+r.armed.Load()
			assert.Zero(t, r.running.Load())
			assert.Equal(t, r.timer.begun.Load(), r.timer.over.Load())
			if k == 3 && !stops {
				assert.Equal(t, r.armed.Load(), r.calls.Load()+r.stopped.Load())
			}
		}
	}
	requireNoneInFlight(t, tw)
	assert.EqualValues(t, st.Fired, calls)
	assert.EqualValues(t, armed, st.Armed+st.Rejected)
	if limited {
		assert.LessOrEqual(t, int(g.most.Load()), int(limit))
	}
	if !stops {
		assert.Empty(t, holdersOf(tw.engine))
	}
	verifyShards(t, tw.engine)
}
