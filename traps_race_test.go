package timingwheel

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Trap 1: the driver read a bucket's current expiration instead of the one that it had taken off
// the queue. With adders busy on a small wheel the clock jumped ahead and more than half fired
// early.
func TestTrapClockJumpsToCurrentExpiration(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 2, Levels: 1, Shards: 1, Tick: ms}) // a lap is 2 ms
	var all sync.WaitGroup
	ledgers := make([]*ledger, 16)
	for g := range ledgers {
		ledgers[g] = newLedger()
		all.Go(func() {
			for range max(scaled(1000), 100) {
				ledgers[g].arm(tw, time.Duration(1+rand.IntN(20))*ms)
				if rand.IntN(20) == 0 {
					time.Sleep(ms)
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, drainWheel(tw))
	for _, l := range ledgers {
		l.requireNoneLost(t)
	}
}

// Trap 2: flushing a bucket under its lock added its timers to the same bucket, and waited for
// itself for 2,644 minutes. Here every callback arms another timer for the slot that it came from.
func TestTrapFlushAddsToItsOwnBucket(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{WheelSize: 2, Levels: 2, Shards: 1, Tick: ms, Executor: executor(t)})
			var ran atomic.Int32
			var again func()
			again = func() {
				if ran.Add(1) < 300 {
					tw.AfterFunc(2*ms, again) // a lap
					tw.AfterFunc(4*ms, again) // a lap of the coarser wheel
					tw.Flush()
				}
			}
			tw.AfterFunc(2*ms, again)
			await(t, "300 runs", func() bool { return ran.Load() >= 300 })
		})
	}
}

// halfway runs a test on a wheel whose n timers are due 10 ms from now, and of which a driver has
// moved some to a finer wheel. No driver comes before the test lets time pass or something is due.
func halfway(t *testing.T, n int, test func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(i int) int32)) {
	t.Helper()
	bubble(t, Options{WheelSize: 4, Levels: 3, Tick: ms}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		timers, runs := make([]Timer, n), make([]atomic.Int32, n)
		for i := range timers {
			timers[i] = tw.AfterFunc(60*ms, func() { runs[i].Add(1) })
		}
		s.placeAll()
		s.own(func() {
			s.skip(50 * ms)
			s.owner.observe(s.Read())
			require.True(t, s.owner.expire(), "the bucket of 48 ms")
			s.owner.moveQuantum()
			require.NoError(t, s.verify())
			require.True(t, s.owner.wheel.cascade.waiting())
			require.Equal(t, quantum, s.owner.wheel.live)
			s.alarm.reset()
		})
		test(t, tw, timers, func(i int) int32 { return runs[i].Load() })
	})
}

// Trap 3: while a timer was on its way from one wheel to a finer one, Stop found it in no bucket,
// returned false, and the timer fired.
func TestTrapStopBetweenTwoWheels(t *testing.T) {
	t.Parallel()
	const n = 40 * quantum
	halfway(t, n, func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(int) int32) {
		start := time.Now()
		for i := range timers {
			switch i % 4 {
			case 0:
				require.True(t, timers[i].Stop(), "timer %d is nowhere", i)
			case 1:
				require.True(t, timers[i].Reschedule(100*ms), "timer %d is nowhere", i)
			case 2:
				require.True(t, timers[i].Reschedule(5*ms), "timer %d is nowhere", i)
			}
		}
		verifyShards(t, tw.engine)
		for _, step := range []struct {
			at   time.Duration
			runs [4]int32
		}{{4 * ms, [4]int32{}}, {5 * ms, [4]int32{2: 1}}, {10 * ms, [4]int32{2: 1, 3: 1}}, {99 * ms, [4]int32{2: 1, 3: 1}}, {100 * ms, [4]int32{1: 1, 2: 1, 3: 1}}} {
			pass(step.at - time.Since(start))
			for i := range timers {
				if runs(i) != step.runs[i%4] {
					t.Fatalf("at %v timer %d has run %d times", step.at, i, runs(i))
				}
			}
			verifyShards(t, tw.engine)
		}
		require.Zero(t, tw.Len())
	})
}

// A timer that is rescheduled to now does not wait until all that were to be moved with it are
// moved.
func TestRescheduleToNowBetweenTwoWheels(t *testing.T) {
	t.Parallel()
	const n = 200 * quantum
	halfway(t, n, func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(int) int32) {
		s := tw.engine.shards[0]
		var left atomic.Int32
		left.Store(-1)
		require.True(t, timers[n-1].Stop())
		s.own(func() { // the driver begins afterwards
			at := s.Read()
			s.armMu.Lock()
			s.arm(at, at, func() {
				s.own(func() {
					for b := range s.owner.wheel.cascade.all {
						left.Store(int32(b.live))
					}
				})
			}, 0)
			require.True(t, timers[n-2].Reschedule(0))
		})
		synctest.Wait()
		require.EqualValues(t, 1, runs(n-2))
		require.Positive(t, left.Load(), "both waited for all others")
		require.Zero(t, runs(0))
		pass(time.Second)
		require.Zero(t, tw.Len())
		require.EqualValues(t, 1, runs(0))
	})
}

// The same for Flush: it takes what is between two wheels along.
func TestFlushBetweenTwoWheels(t *testing.T) {
	t.Parallel()
	const n = 10 * quantum
	halfway(t, n, func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(int) int32) {
		require.Equal(t, n, tw.Flush())
		synctest.Wait()
		for i := range timers {
			require.EqualValues(t, 1, runs(i))
		}
		require.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// Trap 4: between a periodic task's expiry and its next arming its Stop did nothing: 3,632 of
// 20,000 were ignored. TestRaceStopOfAPlanSticks is about all moments; here it is that one.
func TestTrapStopOfAPeriodicTaskInTheGap(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: time.Microsecond, Shards: 1})
	for range max(scaled(400), 40) {
		var runs atomic.Int32
		inRun, stopped := make(chan struct{}), make(chan struct{})
		plan := tw.ScheduleFunc(Every(time.Microsecond), func() {
			if runs.Add(1) == 1 {
				close(inRun)
				<-stopped
			}
		})
		<-inRun
		require.True(t, plan.Stop())
		close(stopped)
		require.False(t, plan.Stop())
		require.NoError(t, drainWheel(tw))
		require.EqualValues(t, 1, runs.Load())
	}
}

// Trap 7: adders read the hand's position and then inserted where it had just been: the timer
// waited for a lap, here of more than a minute.
func TestTrapStrandedForALap(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 65536, Levels: 1, Shards: 1, Tick: ms})
	var worst atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range max(scaled(3000), 300) {
				d := rand.N(3 * ms)
				armed := time.Now()
				tw.AfterFunc(d, func() {
					late := int64(time.Since(armed) - d)
					for seen := worst.Load(); seen < late && !worst.CompareAndSwap(seen, late); seen = worst.Load() {
					}
				})
				if rand.IntN(30) == 0 {
					time.Sleep(rand.N(2 * ms))
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, drainWheel(tw))
	assert.Less(t, time.Duration(worst.Load()), 40*time.Second, "a lap is 65 s")
}

// Trap 9: an add that raced shutdown hung (7 of 3,000), a second Stop panicked or hung.
func TestTrapAddRacingShutdown(t *testing.T) {
	t.Parallel()
	for i := range max(scaled(3000), 100) {
		tw, err := New(Options{WheelSize: 4, Levels: 2, Shards: 1 + i%3, Tick: 10 * time.Microsecond})
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for range 5 {
					tw.AfterFunc(rand.N(50*time.Microsecond), func() {})
				}
			})
			all.Go(func() { assert.NoError(t, tw.Shutdown(context.Background())) })
		}
		all.Wait()
		tw.Stop()
		require.Equal(t, Timer{}, tw.AfterFunc(0, func() {}))
		require.Zero(t, tw.Len())
	}
}

// Trap 10: lost wake-ups. The head was published after the sleeper had looked, so an earlier timer
// waited for a later one.
func TestTrapLostWakeup(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1, Tick: 10 * time.Microsecond, WheelSize: 16, Levels: 2})
	far := tw.AfterFunc(2*time.Hour, func() {})
	ran := make(chan struct{}, 2)
	for range max(scaled(2000), 100) {
		// The driver has just been woken and looks at the wheel, or goes to sleep until the far
		// one.
		tw.AfterFunc(rand.N(100*time.Microsecond), func() { ran <- struct{}{} })
		spin(rand.N(100 * time.Microsecond))
		tw.AfterFunc(rand.N(50*time.Microsecond), func() { ran <- struct{}{} })
		receive(t, ran, "the first timer")
		receive(t, ran, "the second timer")
	}
	// The same holds for Reschedule.
	for range max(scaled(500), 100) {
		timer := tw.AfterFunc(time.Hour, func() { ran <- struct{}{} })
		spin(rand.N(20 * time.Microsecond))
		require.True(t, timer.Reschedule(rand.N(50*time.Microsecond)))
		receive(t, ran, "the hastened timer")
	}
	assert.True(t, far.Stop())
}

// Trap 10, the delay queue's half: two takers and one wake-up token. An item due at 0.25 s came at
// 2.15 s.
func TestTrapTwoTakersOneToken(t *testing.T) {
	t.Parallel()
	for range max(scaled(30), 5) {
		q := NewDelayQueue[string]()
		taken := make(chan string, 2)
		for range 2 {
			go func() {
				v, err := q.Take(t.Context())
				assert.NoError(t, err)
				taken <- v
			}()
		}
		q.Push("late", 20*ms)
		q.Push("early", ms)
		got := []string{receive(t, taken, "an item"), receive(t, taken, "the other item")}
		assert.ElementsMatch(t, []string{"early", "late"}, got)
		q.Push("far", time.Hour)
		go func() {
			v, err := q.Take(t.Context())
			assert.NoError(t, err)
			taken <- v
		}()
		q.Push("now", 0)
		assert.Equal(t, "now", receive(t, taken, "the item behind the far one"))
	}
}

// Trap 12: a callback that arms itself again with 0 was all that the driver ever got to.
func TestTrapZeroDelayChainStarvesTheDriver(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Shards: 1, Executor: executor(t)})
			var links atomic.Int64
			var end atomic.Bool
			var link func()
			link = func() {
				links.Add(1)
				if !end.Load() {
					tw.AfterFunc(0, link)
				}
			}
			for range 50 { // so many that some of them are due at any time
				tw.AfterFunc(0, link)
			}
			ran := make(chan struct{})
			for _, d := range []time.Duration{0, ms, 5 * ms, 300 * ms} { // the last one is moved between wheels
				tw.AfterFunc(d, func() { ran <- struct{}{} })
				before := links.Load()
				receive(t, ran, "a timer beside the chain")
				await(t, "the chain goes on as well", func() bool { return links.Load() > before })
			}
			end.Store(true)
			require.NoError(t, drainWheel(tw))
		})
	}
}

// On one processor no other goroutine helps the driver. What is due must leave the wheel time for
// the rest of its work, and what has become due since must not wait behind what is armed later.
func TestTrapZeroDelayChainsOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tw := startWheel(t, Options{Shards: 1})
	var end atomic.Bool
	var link func()
	link = func() {
		if !end.Load() {
			tw.AfterFunc(0, link)
		}
	}
	for range scaled(20_000) {
		tw.AfterFunc(0, link)
	}
	ran := make(chan struct{})
	for _, d := range []time.Duration{ms, 300 * ms} { // the latter is moved between wheels
		tw.AfterFunc(d, func() { ran <- struct{}{} })
		receive(t, ran, "a timer beside the chains")
	}
	end.Store(true)
	require.NoError(t, drainWheel(tw))
}
