package timingwheel

import (
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

// contended calls f while armMu is held, as if the holder were preempted. f must not wait for the
// lock.
func contended(t *testing.T, tw *TimingWheel, f func()) {
	t.Helper()
	s := tw.engine.shards[0]
	s.armMu.Lock()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(hangTimeout):
		s.armMu.Unlock()
		require.FailNow(t, "the call waits for armMu")
	}
	s.armMu.Unlock()
}

// A goroutine that is preempted while it holds armMu delays no call (G15), and results are exact.
func TestFuncTimersDoNotWaitForArmMu(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(time.Hour, watch.note)
		step := func(calls func(), pending int) {
			t.Helper()
			contended(t, tw, calls)
			synctest.Wait()
			assert.Equal(t, pending, tw.Len())
			st := tw.Stats()
			assert.Equal(t, st.Armed, st.Fired+st.Stopped+uint64(st.Pending))
			verifyShards(t, tw.engine)
		}
		step(func() { assert.True(t, ft.Reset(10*ms)) }, 1) // earlier
		pass(10 * ms)
		assert.Equal(t, []int{10}, watch.noted())
		step(func() { assert.False(t, ft.Reset(10*ms)) }, 1) // arms
		pass(10 * ms)
		assert.Equal(t, []int{10, 20}, watch.noted())
		step(func() { assert.False(t, ft.Stop()) }, 0)
		step(func() { assert.False(t, ft.Reset(10*ms)); assert.True(t, ft.Stop()) }, 0)
		step(func() {
			assert.False(t, ft.Reset(time.Hour))
			assert.True(t, ft.Reset(30*ms))
			assert.True(t, ft.Reset(20*ms))
			assert.True(t, ft.Touch())
		}, 1)
		step(func() { assert.True(t, ft.Stop()); assert.False(t, ft.Stop()) }, 0)
		pass(time.Hour)
		assert.Equal(t, []int{10, 20}, watch.noted())
		ft.Reset(10 * ms)
		step(func() { assert.True(t, ft.Stop()); assert.False(t, ft.Reset(20*ms)) }, 1)
		pass(time.Hour)
		assert.Len(t, watch.noted(), 3)
		st := tw.Stats()
		assert.Equal(t, uint64(6), st.Armed)
		assert.Equal(t, uint64(3), st.Stopped)
		assert.Equal(t, uint64(3), st.Fired)
	})
}

// A Reset after a Flush takes the timer out of the Flush, even without the lock.
func TestResetWithoutArmMuLeavesAFlush(t *testing.T) {
	t.Parallel()
	calls := new(held)
	bubble(t, Options{Executor: calls}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(time.Hour, watch.note)
		assert.Equal(t, 1, tw.Flush())
		synctest.Wait()
		contended(t, tw, func() { assert.True(t, ft.Reset(20*ms)) })
		calls.release()
		assert.Empty(t, watch.noted())
		pass(20 * ms)
		calls.release()
		assert.Equal(t, []int{20}, watch.noted())
	})
}

// A call that comes before an earlier request is served sees the effect of the request.
func TestCallsSeeARequestThatIsNotServed(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(t *testing.T, tw *TimingWheel, ft *FuncTimer){
		"Stop":       func(t *testing.T, _ *TimingWheel, ft *FuncTimer) { assert.True(t, ft.Stop()) },
		"StopWait":   func(t *testing.T, _ *TimingWheel, ft *FuncTimer) { stopWait(t, ft) },
		"Reset":      func(t *testing.T, _ *TimingWheel, ft *FuncTimer) { assert.True(t, ft.Reset(ms)) },
		"Flush":      func(t *testing.T, tw *TimingWheel, _ *FuncTimer) { assert.Equal(t, 1, tw.Flush()) },
		"Len":        func(t *testing.T, tw *TimingWheel, _ *FuncTimer) { assert.Equal(t, 1, tw.Len()) },
		"Next":       func(t *testing.T, tw *TimingWheel, _ *FuncTimer) { _, ok := tw.Next(); assert.True(t, ok) },
		"wheel Stop": func(_ *testing.T, tw *TimingWheel, _ *FuncTimer) { tw.Stop() },
	} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			var calls atomic.Int64
			ft := new(FuncTimer)
			ft.InitStopped(tw, func() { calls.Add(1) })
			ft.shard.funcTimers.serverStarting.Store(true) // no goroutine serves the request
			contended(t, tw, func() { ft.Reset(time.Hour) })
			after(t, tw, ft)
			ft.shard.funcTimers.serverStarting.Store(false)
			pass(2 * time.Hour)
			st := tw.Stats()
			assert.Equal(t, uint64(1), st.Armed, name)
			assert.Equal(t, uint64(1), st.Fired+st.Stopped+st.Discarded+uint64(st.Pending), name)
			assert.EqualValues(t, st.Fired, calls.Load(), name)
			verifyShards(t, tw.engine)
		})
	}
}

// A Stop without armMu releases the payload and the slot once the lock is free.
func TestStopWithoutArmMuReleasesTheSlot(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := &tw.engine.shards[0].shard
		for _, place := range []func(){func() {}, s.placeAll} { // in the inbox, on the wheel
			ft := tw.NewFuncTimer(time.Hour, boom)
			slot := ft.place - 1
			place()
			contended(t, tw, func() { assert.True(t, ft.Stop()) })
			synctest.Wait()
			assert.Nil(t, tw.engine.shards[0].values.At(0)[slot])
			s.placeAll()
			assert.True(t, s.slotIsFree(slot))
		}
	})
}

// A Stop without armMu releases the slot although no worker is free, and the wheel does not wake
// up.
func TestStopWithoutArmMuNeedsNoWorker(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"the limit is reached":       {Executor: limitOf(1)},
		"an executor holds its call": {Executor: new(held)},
	} {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			s := &tw.engine.shards[0].shard
			release := make(chan struct{})
			defer close(release)
			tw.AfterFunc(0, func() { <-release })
			synctest.Wait()
			for _, place := range []func(){func() {}, s.placeAll} { // in the inbox, on the wheel
				ft := tw.NewFuncTimer(time.Hour, boom)
				slot := ft.place - 1
				place()
				before := tw.Stats()
				contended(t, tw, func() { assert.True(t, ft.Stop()) })
				synctest.Wait()
				assert.Nil(t, tw.engine.shards[0].values.At(0)[slot], name)
				verifyShards(t, tw.engine)
				after := tw.Stats()
				assert.Equal(t, before.Pending-1, after.Pending)
				assert.Equal(t, before.Stopped+1, after.Stopped)
				assert.Equal(t, before.Postponed, after.Postponed)
				assert.Equal(t, before.Wakeups, after.Wakeups)
				assert.Equal(t, after.Armed, after.Fired+after.Stopped+uint64(after.Pending))
				s.placeAll()
				assert.True(t, s.slotIsFree(slot), name)
				assert.False(t, ft.Reset(time.Hour))
				assert.True(t, ft.Stop())
			}
		})
	}
}

// A timer that was stopped without armMu does not keep the alarm of an idle wheel set.
func TestStopWithoutArmMuUnsetsTheAlarm(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := &tw.engine.shards[0].shard
		for _, place := range []func(){func() {}, s.placeAll} {
			ft := tw.NewFuncTimer(time.Hour, boom)
			place()
			contended(t, tw, func() { assert.True(t, ft.Stop()) })
			pass(time.Hour + ms)
			assert.EqualValues(t, int64(never), s.alarm.at.Load())
		}
	})
}

// Reset, Stop and Touch race with each other, with the expiry, with Flush and with a goroutine that
// holds armMu much of the time. Each arming ends in one call or in one Stop.
func TestRaceFuncTimersAreExactWhileArmMuIsHeld(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		opts.Shards = 1
		tw := startWheel(t, opts)
		const timers = 4
		var fts [timers]FuncTimer
		var armed, called, stopped [timers]atomic.Int64
		for k := range fts {
			fts[k].InitStopped(tw, func() { called[k].Add(1) })
		}
		var all sync.WaitGroup
		for g := range 3 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				for range scaled(3_000) {
					k := rng.IntN(timers)
					switch rng.IntN(5) {
					case 0, 1:
						if !fts[k].Reset(time.Duration(rng.IntN(4)) * opts.Tick) {
							armed[k].Add(1)
						}
					case 2:
						if fts[k].Stop() {
							stopped[k].Add(1)
						}
					case 3:
						fts[k].Touch()
					default:
						runtime.Gosched()
					}
				}
			})
		}
		rounds := 0
		concurrently(func() {
			holdArmMu(tw)
			if n := tw.Len(); n < 0 || n > timers+3 { // an arming that is under way may count
				t.Errorf("Len: %d", n)
			}
			if rounds++; rounds%64 == 0 {
				tw.Flush()
			}
		}, all.Wait)
		require.NoError(t, drainWheel(tw), optionName(opts))
		var a, c, st uint64
		for k := range fts {
			assert.Equal(t, armed[k].Load(), called[k].Load()+stopped[k].Load(), "%s: timer %d", optionName(opts), k)
			a, c, st = a+uint64(armed[k].Load()), c+uint64(called[k].Load()), st+uint64(stopped[k].Load())
		}
		stats := tw.Stats()
		assert.Equal(t, a, stats.Armed, "armed")
		assert.Equal(t, c, stats.Fired, "fired")
		assert.Equal(t, st, stats.Stopped, "stopped")
		verifyShards(t, tw.engine)
	}
}

// holdArmMu holds armMu for some time, as a preempted goroutine would.
func holdArmMu(tw *TimingWheel) {
	s := tw.engine.shards[0]
	s.armMu.Lock()
	spin(2 * time.Microsecond)
	s.armMu.Unlock()
	runtime.Gosched()
}

// No call is early or missing while armMu is held much of the time. Each goroutine resets one timer
// twice, and the results show which calls must come.
func TestRaceResetsAreNeverEarlyWhileArmMuIsHeld(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		opts.Shards = 1
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

// The wheel is stopped while calls leave requests. Each arming has been fired, stopped or
// discarded.
func TestRaceRequestsAreCountedWhenTheWheelStops(t *testing.T) {
	t.Parallel()
	for range scaled(300) {
		tw := startWheel(t, Options{Tick: time.Microsecond, Shards: 1})
		var called, stopped atomic.Int64
		var fts [8]FuncTimer
		for k := range fts {
			fts[k].InitStopped(tw, func() { called.Add(1) })
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for n := range 100 {
					ft := &fts[n%len(fts)]
					if !ft.Reset(time.Duration(n%5)*time.Microsecond) && ft.shard.closed.Load() {
						return
					}
					if n%3 == 0 && ft.Stop() {
						stopped.Add(1)
					}
				}
			})
		}
		all.Go(func() {
			for !tw.engine.shards[0].closed.Load() {
				holdArmMu(tw)
			}
		})
		spin(time.Duration(rand.IntN(200)) * time.Microsecond)
		tw.Stop()
		all.Wait()
		require.NoError(t, tw.Shutdown(t.Context()))
		st := tw.Stats()
		assert.Equal(t, st.Armed, st.Fired+st.Stopped+st.Discarded)
		assert.EqualValues(t, called.Load(), st.Fired)
		assert.EqualValues(t, stopped.Load(), st.Stopped)
	}
}

// serve releases armMu while it allocates memory. A second call of serve that comes meanwhile
// serves all remaining requests, including the one for which the first call allocates.
func TestNestedServeMissesNoRequest(t *testing.T) {
	t.Parallel()
	var a funcTimerState
	var closed atomic.Bool
	served := map[int]bool{}
	nested := false
	for k := range 3 {
		a.push(func() {
			if !nested { // as if the lock were released here
				nested = true
				a.serve(&closed)
				assert.Len(t, served, 3)
			}
			served[k] = true
		})
	}
	a.serve(&closed)
	assert.Nil(t, a.taken)
	assert.Nil(t, a.requests.Load())
	served = map[int]bool{}
	a.push(func() { served[0] = true })
	a.serve(&closed)
	assert.Len(t, served, 1)
}
