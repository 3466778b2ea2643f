package timingwheel

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One test for each trap of docs/internals/design.md that other timing wheels fell into, in their
// order. A test's name says what went wrong there.

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
			s.owner.advanceClock(s.Read())
			require.True(t, s.owner.expire(), "the bucket of 48 ms")
			s.owner.cascadeQuantum()
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

// Trap 5: floor rounding and millisecond truncation, with which a quarter to a half of all timers
// were early.
func TestTrapRoundsDown(t *testing.T) {
	t.Parallel()
	for _, tick := range []time.Duration{time.Microsecond, 3 * time.Microsecond, ms, 7 * ms} {
		for _, d := range []time.Duration{1, tick - 1, tick, tick + 1, 9*tick - 1, 9 * tick, 9*tick + 1, 1000*tick + 1} {
			tw := startWheel(t, Options{Manual: true, Tick: tick, WheelSize: 4, Levels: 3})
			start := tw.Now()
			tw.AfterFunc(d, func() {})
			require.Zero(t, tw.Advance(start.Add(d-1)), "tick %v, delay %v: early", tick, d)
			if d%tick != 0 {
				require.Zero(t, tw.Advance(start.Add(d.Truncate(tick))), "tick %v, delay %v: early", tick, d)
			}
			due := (d + tick - 1) / tick * tick
			require.Equal(t, 1, tw.Advance(start.Add(due)), "tick %v, delay %v: late", tick, d)
		}
	}
}

// stepped is t with the wall clock moved by d and the monotonic reading as it was: what time.Now
// returns after NTP or an administrator has stepped the clock. The wall part of a time.Time with a
// monotonic reading counts seconds from its 31st bit on.
func stepped(tb testing.TB, t time.Time, d time.Duration) time.Time {
	tb.Helper()
	moved := t
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << 30
	require.Zero(tb, moved.Sub(t), "the monotonic reading has changed")
	require.Equal(tb, d, moved.Round(0).Sub(t.Round(0)), "the wall clock has not")
	return moved
}

// Trap 6: the wall clock. A step of it fired timers early, or an hour late.
func TestTrapWallClockSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		// The wheel was made before the step.
		tw := startWheel(t, Options{Shards: 1})
		for _, s := range tw.engine.shards {
			s.Base = stepped(t, s.Base, -step)
		}
		tw.engine.Base = stepped(t, tw.engine.Base, -step)
		ran := make(chan time.Duration, 1)
		for name, arm := range map[string]func(d time.Duration, f func()) Timer{
			"AfterFunc":                tw.AfterFunc,
			"AtFunc, monotonic":        func(d time.Duration, f func()) Timer { return tw.AtFunc(time.Now().Add(d), f) },
			"AtFunc, wall":             func(d time.Duration, f func()) Timer { return tw.AtFunc(time.Now().Add(d).Round(0), f) },
			"AtFunc, read before step": func(d time.Duration, f func()) Timer { return tw.AtFunc(stepped(t, time.Now().Add(d), -step), f) },
			"Reschedule": func(d time.Duration, f func()) Timer {
				timer := tw.AfterFunc(time.Minute, f)
				timer.Reschedule(d)
				return timer
			},
			"RescheduleAt, wall": func(d time.Duration, f func()) Timer {
				timer := tw.AfterFunc(time.Minute, f)
				timer.RescheduleAt(time.Now().Add(d).Round(0))
				return timer
			},
		} {
			start := time.Now()
			arm(20*ms, func() { ran <- time.Since(start) })
			after := receive(t, ran, name)
			assert.Greater(t, after, 20*ms-time.Microsecond, "%s: early", name)
			assert.Less(t, after, 30*time.Minute, "%s: the step made it late", name)
		}
	}
}

// Trap 6, too: delays that overflow. MaxInt64 fired after 10 µs, a negative delay never.
func TestTrapDurationOverflow(t *testing.T) {
	t.Parallel()
	for _, opts := range append(tiny, Options{}) {
		tw := startWheel(t, opts)
		never := func() { t.Error("fired") }
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 1 << 62} {
			timer := tw.AfterFunc(d, never)
			due, ok := timer.Deadline()
			assert.True(t, ok)
			assert.Greater(t, time.Until(due), time.Duration(1<<61))
			require.True(t, timer.Reschedule(d))
		}
		tw.AtFunc(time.Unix(math.MaxInt64/2, 0), never)
		tw.AtFunc(time.Now().Add(math.MaxInt64), never)
		tw.ScheduleFunc(Every(math.MaxInt64), never)
		fired := make(chan struct{}, 4)
		for _, d := range []time.Duration{0, -1, -math.MaxInt64, math.MinInt64} {
			tw.AfterFunc(d, func() { fired <- struct{}{} })
		}
		for range 4 {
			receive(t, fired, "a delay of less than nothing")
		}
		assert.Equal(t, 7, tw.Len())
		tw.Stop()
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

// Trap 8: a wheel of size 1 recursed for ever, one of size 0 divided by zero.
func TestTrapWheelSizeOneAndZero(t *testing.T) {
	t.Parallel()
	_, err := New(Options{WheelSize: 1})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "WheelSize is 1")
	for _, size := range []int{-1, -2, math.MinInt, 3, 1 << 17} {
		_, err := New(Options{WheelSize: size})
		require.ErrorIs(t, err, ErrOption)
	}
	for _, size := range []int{0, 2} {
		for _, levels := range []int{0, 1, 16} {
			tw := startWheel(t, Options{WheelSize: size, Levels: levels, Manual: true, Tick: time.Microsecond})
			tw.AfterFunc(time.Hour, func() {})
			assert.Equal(t, 1, tw.Advance(tw.Now().Add(time.Hour)))
		}
	}
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
		q := new(DelayQueue[string])
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

// Trap 11: ticker-counted wheels lose time with every tick that is dropped. Here the clock jumps.
func TestTrapDroppedTicksLoseTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, WheelSize: 4, Levels: 3})
	start := tw.Now()
	var order []int
	for _, d := range rand.Perm(1000) {
		tw.AfterFunc(time.Duration(d)*ms, func() { order = append(order, d) })
	}
	require.Equal(t, 1000, tw.Advance(start.Add(5000*ms)), "all that the jump has passed over")
	for i := range order {
		require.Equal(t, i, order[i], "in the order of ticks")
	}
	// The next one counts from the clock, not from the number of ticks seen.
	tw.AfterFunc(3*ms, func() {})
	assert.Zero(t, tw.Advance(start.Add(5003*ms-1)))
	assert.Equal(t, 1, tw.Advance(start.Add(5003*ms)))
}

// Trap 11, too: steps counted from the current slot, within which time has gone on, are a tick
// early.
func TestTrapCountsFromTheCurrentSlot(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Tick: 10 * ms, WheelSize: 4, Levels: 2})
	start := tw.Now()
	tw.Advance(start.Add(9 * ms)) // near the end of slot 0
	tw.AfterFunc(10*ms, func() {})
	assert.Zero(t, tw.Advance(start.Add(10*ms)))
	assert.Zero(t, tw.Advance(start.Add(19*ms)), "due, but its tick has not come")
	assert.Equal(t, 1, tw.Advance(start.Add(20*ms)))
}

// Trap 12: a callback that arms itself again with 0 was all that the driver ever got to.
func TestTrapZeroDelayChainStarvesTheDriver(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Shards: 1, WheelSize: 32, Executor: executor(t)})
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
			for _, d := range []time.Duration{0, ms, 5 * ms, 50 * ms} { // the last one is moved between wheels
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

// On one processor no other goroutine helps the driver. Due timers must leave the driver time for
// the rest of its work, and timers that have become due must not wait behind timers armed later.
func TestTrapZeroDelayChainsOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tw := startWheel(t, Options{Shards: 1, WheelSize: 32})
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
	for _, d := range []time.Duration{ms, 50 * ms} { // the latter is moved between wheels
		tw.AfterFunc(d, func() { ran <- struct{}{} })
		receive(t, ran, "a timer beside the chains")
	}
	end.Store(true)
	require.NoError(t, drainWheel(tw))
}

// Trap 13: after a suspend, or any stall, a plan replayed every run that it had missed, at once.
func TestTrapReplaysMissedRuns(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	start := tw.Now()
	runs := 0
	tw.ScheduleFunc(Every(ms), func() { runs++ })
	assert.Equal(t, 1, tw.Advance(start.Add(time.Hour+ms/2)))
	assert.Zero(t, tw.Advance(start.Add(time.Hour+ms/2)))
	assert.Equal(t, 1, runs)
	assert.Equal(t, 1, tw.Advance(start.Add(time.Hour+ms)), "in its old phase")
}

// Trap 14: nothing fires wrongly, yet wake-ups explode when small timers stand behind the head. On
// fake time every wake-up shows.
func TestTrapSmallTimersBehindTheHeadWakeTheDriver(t *testing.T) {
	bubble(t, Options{WheelSize: 16, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
		for range 5 { // heads
			tw.AfterFunc(time.Second, func() {})
		}
		const n = 1000
		due := map[time.Duration]bool{time.Second: true}
		for range n {
			d := time.Second + rand.N(time.Minute)
			due[(d + ms - 1).Truncate(ms)] = true
			timer := tw.AfterFunc(d, func() {})
			for range 3 {
				timer.Reschedule(d) // none of them is a reason to look at the wheel
			}
		}
		pass(999 * ms)
		early := tw.Stats().Wakeups
		assert.Less(t, early, uint64(10), "before anything is due only intervals of coarse wheels are")
		pass(2 * time.Minute)
		assert.Zero(t, tw.Len())
		// Once for each instant at which something is due, and for each interval of the coarser
		// wheels.
		assert.LessOrEqual(t, tw.Stats().Wakeups, uint64(len(due)+intervals(due, 16)+intervals(due, 256)))
	})
}

// intervals is the number of intervals of so many ms in which a time lies.
func intervals(times map[time.Duration]bool, length time.Duration) int {
	found := map[time.Duration]bool{}
	for at := range times {
		found[at/(length*ms)] = true
	}
	return len(found)
}

// Trap 15: wheels that are right near zero are wrong at large epochs, where indices wrap.
func TestTrapLargeEpochs(t *testing.T) {
	t.Parallel()
	const size = 16
	for _, origin := range epochs(size) {
		tw, err := newWheelAt(Options{Manual: true, WheelSize: size, Levels: 3, Tick: ms}, origin)
		require.NoError(t, err)
		start := tw.Now()
		var all sync.WaitGroup
		var ran atomic.Int64
		for _, ticks := range []int64{1, 2, size - 1, size, size + 1, size*size - 1, size * size, size*size + 1, size * size * size, 5*size*size*size + 3} {
			d := time.Duration(ticks)*ms + time.Duration(rand.IntN(int(ms)))
			tw.AfterFunc(d, func() {
				ran.Add(1)
				late := tw.Now().Sub(start) - d
				assert.GreaterOrEqual(t, late, time.Duration(0), "epoch %d, delay %v: early", origin, d)
				assert.Less(t, late, ms, "epoch %d, delay %v: late", origin, d)
			})
		}
		all.Wait()
		for tw.Len() > 0 {
			next, ok := tw.Next()
			require.True(t, ok)
			require.True(t, next.After(tw.Now()), "epoch %d: Next is %v before the clock: the caller would spin", origin, tw.Now().Sub(next))
			tw.Advance(next)
			verifyShards(t, tw.engine)
		}
		assert.EqualValues(t, 10, ran.Load())
	}
}

// epochs are clock readings around the wraps of every level, and large ones.
func epochs(size int64) []int64 {
	all := []int64{0, 1, 1<<40 + 1, 1<<62 + 12345}
	for span := int64(ms) * size; span < 1<<58; span *= size {
		all = append(all, span-1, span, span-int64(ms), span-int64(ms)/2, 3*span-2*int64(ms))
	}
	return all
}
