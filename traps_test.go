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

// The traps are bugs that other timing wheels have or had. Each has at least one test, whose name
// says what the bug was. The second part of trap 10, two takers of a delay queue that share one
// wake-up token, is in takerCases.

// Trap 1: the driver read the current expiration of a bucket, and not the one with which the bucket
// was queued. While goroutines added timers to a small wheel, the clock jumped ahead, and more than
// half of the timers fired early.
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

// Trap 2: flushing a bucket under its lock added its timers to the same bucket: a deadlock, which
// lasted for 2,644 minutes in production. Here each callback arms timers for the slot of its own
// timer.
func TestTrapFlushOfABucketThatAddsToIt(t *testing.T) {
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
					tw.AfterFunc(4*ms, again) // a lap of the second level
					tw.Flush()
				}
			}
			tw.AfterFunc(2*ms, again)
			await(t, "300 runs", func() bool { return ran.Load() >= 300 })
		})
	}
}

// halfway runs a test on a wheel with n timers that are due in 10 ms. The driver has moved some of
// them to a finer level. No driver runs until the test lets time pass or a timer is due.
func halfway(t *testing.T, executor Executor, n int, test func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(i int) int32)) {
	t.Helper()
	bubble(t, Options{WheelSize: 4, Levels: 3, Tick: ms, Executor: executor}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		timers, runs := make([]Timer, n), make([]atomic.Int32, n)
		for i := range timers {
			timers[i] = tw.AfterFunc(60*ms, func() { runs[i].Add(1) })
		}
		s.placeAll()
		s.own(func() {
			s.skip(50 * ms)
			s.advanceClock(s.config.Read())
			require.False(t, s.owner.expire(), "the bucket of 48 ms")
			require.NoError(t, s.verify())
			require.True(t, s.owner.wheel.cascade.live() > 0)
			require.Equal(t, quantum, s.owner.wheel.live)
			s.alarm.reset()
		})
		test(t, tw, timers, func(i int) int32 { return runs[i].Load() })
	})
}

// Trap 3: while a timer was moved from one wheel to a finer one, Stop found the timer in no bucket
// and returned false, and the timer fired.
func TestTrapStopDuringACascade(t *testing.T) {
	t.Parallel()
	const n = 40 * quantum
	halfway(t, nil, n, func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(int) int32) {
		start := time.Now()
		for i := range timers {
			switch i % 4 {
			case 0:
				require.True(t, timers[i].Stop(), "timer %d was not found", i)
			case 1:
				require.True(t, timers[i].Reschedule(100*ms), "timer %d was not found", i)
			case 2:
				require.True(t, timers[i].Reschedule(5*ms), "timer %d was not found", i)
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

// During a cascade a timer is rescheduled to now, and another one is armed for now. Neither waits
// for the end of the cascade. Callbacks run on the driver. It may be preempted so long that another
// goroutine ends the cascade, so one of 20 attempts suffices.
func TestDueTimersDoNotWaitForTheEndOfACascade(t *testing.T) {
	t.Parallel()
	const n = 200 * quantum
	left := 0 // timers of the cascade
	for attempt := 0; left == 0 && attempt < 20; attempt++ {
		halfway(t, Inline, n, func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(int) int32) {
			s := tw.engine.shards[0]
			s.own(func() { // the driver cannot run until both timers are due
				require.True(t, timers[n-1].Stop())
				at := s.config.Read()
				s.inbox.mu.Lock()
				armAndUnlock(s, at, at, func() { s.own(func() { left = s.owner.wheel.cascade.live() }) }, 0)
				require.True(t, timers[n-2].Reschedule(0))
			})
			synctest.Wait()
			require.EqualValues(t, 1, runs(n-2))
			require.Zero(t, runs(0))
			pass(time.Second)
			require.Zero(t, tw.Len())
			require.EqualValues(t, 1, runs(0))
		})
	}
	require.Positive(t, left, "both timers waited for the end of the cascade")
}

func TestFlushDuringACascadeRunsAllTimers(t *testing.T) {
	t.Parallel()
	const n = 10 * quantum
	halfway(t, nil, n, func(t *testing.T, tw *TimingWheel, timers []Timer, runs func(int) int32) {
		require.Equal(t, n, tw.Flush())
		synctest.Wait()
		for i := range timers {
			require.EqualValues(t, 1, runs(i))
		}
		require.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// Trap 4: stopping a periodic task had no effect between expiry and the next arming: 3,632 of
// 20,000 calls were ignored. Here Stop is always called in this gap. In
// TestRaceStopEndsAPlanInEachState it is called at random times.
func TestTrapStopOfAPeriodicTaskInTheGap(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: minTick, Shards: 1})
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

// Trap 5: deadlines were rounded down to a tick or truncated to milliseconds, so 24 to 48 percent
// of the timers were early.
func TestTrapDeadlinesRoundedDown(t *testing.T) {
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

// stepped returns t with the wall clock moved by d and the same monotonic reading, as time.Now
// returns it after NTP or an administrator has stepped the clock. In a time.Time with a monotonic
// reading, bits 30 and up of the wall field count seconds.
func stepped(tb testing.TB, t time.Time, d time.Duration) time.Time {
	tb.Helper()
	moved := t
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << 30
	require.Zero(tb, moved.Sub(t), "the monotonic reading has changed")
	require.Equal(tb, d, moved.Round(0).Sub(t.Round(0)), "the wall clock has not moved")
	return moved
}

// Trap 6: a step of the wall clock fired timers early, or late by the step.
func TestTrapWallClockSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		// The wheel was created before the step.
		tw := startWheel(t, Options{Shards: 1})
		for _, s := range tw.engine.shards {
			s.config.Base = stepped(t, s.config.Base, -step)
		}
		tw.engine.config.Base = stepped(t, tw.engine.config.Base, -step)
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

// Trap 6, second part: delays overflowed. MaxInt64 fired after 10 µs, and a negative delay never.
func TestTrapDurationOverflow(t *testing.T) {
	t.Parallel()
	for _, opts := range append(tiny, Options{}) {
		tw := startWheel(t, opts)
		never := func() { t.Error("fired") }
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 1 << 62} {
			timer := tw.AfterFunc(d, never)
			due, ok := timer.Deadline()
			assert.True(t, ok)
			assert.Greater(t, time.Until(due), min(1<<61, time.Duration(endOf(tw.Stats().Tick))-day))
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
			receive(t, fired, "a delay of at most zero")
		}
		assert.Equal(t, 7, tw.Len())
		tw.Stop()
	}
}

// Trap 7: Add read the position of the clock hand and inserted the timer into a slot that the hand
// had meanwhile left. The timer was late by one lap, which is 65 s here.
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

// Trap 8: a wheel of size 1 recursed without end, and a wheel of size 0 divided by zero.
func TestTrapWheelSizeOneAndZero(t *testing.T) {
	t.Parallel()
	_, err := New(Options{WheelSize: 1})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "WheelSize is 1")
	for _, size := range []int{0, 2} {
		for _, levels := range []int{0, 1, 16} {
			tw := startWheel(t, Options{WheelSize: size, Levels: levels, Manual: true, Tick: time.Microsecond})
			tw.AfterFunc(time.Hour, func() {})
			assert.Equal(t, 1, tw.Advance(tw.Now().Add(time.Hour)))
		}
	}
}

// Trap 9: an Add during shutdown hung (7 of 3,000), and a second Stop panicked or hung.
func TestTrapAddRacingShutdown(t *testing.T) {
	t.Parallel()
	for i := range max(scaled(3000), 100) {
		tw, err := New(Options{WheelSize: 4, Levels: 2, Shards: 1 + i%3, Tick: minTick})
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

// Trap 10: lost wake-ups. The new head was published after the driver had read the old one, so an
// earlier timer waited for a later one.
func TestTrapLostWakeup(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1, Tick: minTick, WheelSize: 16, Levels: 2})
	far := tw.AfterFunc(2*time.Hour, func() {})
	ran := make(chan struct{}, 2)
	for range max(scaled(2000), 100) {
		// At the second AfterFunc the driver is running, or sleeps until one of the two other
		// timers.
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
		receive(t, ran, "the timer that was moved earlier")
	}
	assert.True(t, far.Stop())
}

// Trap 11: wheels that count the ticks of a ticker lose time with each dropped tick. Here the clock
// jumps.
func TestTrapDroppedTicksLoseTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, WheelSize: 4, Levels: 3})
	start := tw.Now()
	var order []int
	for _, d := range rand.Perm(1000) {
		tw.AfterFunc(time.Duration(d)*ms, func() { order = append(order, d) })
	}
	require.Equal(t, 1000, tw.Advance(start.Add(5000*ms)), "all timers that the jump passed")
	for i := range order {
		require.Equal(t, i, order[i], "in order of tick")
	}
	// A later delay starts at the clock, not at the number of processed ticks.
	tw.AfterFunc(3*ms, func() {})
	assert.Zero(t, tw.Advance(start.Add(5003*ms-1)))
	assert.Equal(t, 1, tw.Advance(start.Add(5003*ms)))
}

// Trap 11, second part: delays were counted from the start of the current slot, not from the
// current time, so timers were up to a tick early.
func TestTrapDelaysCountedFromTheCurrentSlot(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Tick: 10 * ms, WheelSize: 4, Levels: 2})
	start := tw.Now()
	tw.Advance(start.Add(9 * ms)) // near the end of slot 0
	tw.AfterFunc(10*ms, func() {})
	assert.Zero(t, tw.Advance(start.Add(10*ms)))
	assert.Zero(t, tw.Advance(start.Add(19*ms)), "due within the current tick")
	assert.Equal(t, 1, tw.Advance(start.Add(20*ms)))
}

// Trap 12: a callback that rearms its timer with a delay of 0 starved all other timers.
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
			for range 50 { // so many that some are always due
				tw.AfterFunc(0, link)
			}
			ran := make(chan struct{})
			for _, d := range []time.Duration{0, ms, 5 * ms, 50 * ms} { // the last one cascades
				tw.AfterFunc(d, func() { ran <- struct{}{} })
				before := links.Load()
				receive(t, ran, "a timer beside the chain")
				await(t, "the chain continues too", func() bool { return links.Load() > before })
			}
			end.Store(true)
			require.NoError(t, drainWheel(tw))
		})
	}
}

// Trap 12 on one processor, where no other goroutine helps the driver. Callbacks must leave time
// for the driver, and due timers must not wait for timers that were armed later.
func TestTrapZeroDelayChainsStarveTheDriverOnOneProcessor(t *testing.T) {
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
	for _, d := range []time.Duration{ms, 50 * ms} { // the latter cascades
		tw.AfterFunc(d, func() { ran <- struct{}{} })
		receive(t, ran, "a timer beside the chains")
	}
	end.Store(true)
	require.NoError(t, drainWheel(tw))
}

// Trap 13: after a suspend or a stall a plan made up for all missed runs in one burst.
func TestTrapMissedRunsAreReplayed(t *testing.T) {
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

// Trap 14: timers shortly after the head caused excessive wake-ups, although all fired correctly.
// On fake time the number of wake-ups is exact.
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
				timer.Reschedule(d) // must not wake the driver
			}
		}
		pass(999 * ms)
		early := tw.Stats().Wakeups
		assert.Less(t, early, uint64(10), "no timer is due: only cascades wake the driver")
		pass(2 * time.Minute)
		assert.Zero(t, tw.Len())
		// One wake-up for each tick with due timers, and for each interval of a coarser level.
		assert.LessOrEqual(t, tw.Stats().Wakeups, uint64(len(due)+intervals(due, 16)+intervals(due, 256)))
	})
}

// intervals returns the number of intervals of the given length in ms that contain a time.
func intervals(times map[time.Duration]bool, length time.Duration) int {
	found := map[time.Duration]bool{}
	for at := range times {
		found[at/(length*ms)] = true
	}
	return len(found)
}

// Trap 15: wheels that were correct for clock readings near zero failed for large readings, where
// indices wrap.
func TestTrapLargeClockReadings(t *testing.T) {
	t.Parallel()
	const size = 16
	for _, origin := range epochs(size) {
		tw, err := newWheelAt(Options{Manual: true, WheelSize: size, Levels: 3, Tick: ms}, origin)
		require.NoError(t, err)
		start := tw.Now()
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
		for tw.Len() > 0 {
			next, ok := tw.Next()
			require.True(t, ok)
			require.True(t, next.After(tw.Now()), "epoch %d: Next is %v before the clock: the loop would not end", origin, tw.Now().Sub(next))
			tw.Advance(next)
			verifyShards(t, tw.engine)
		}
		assert.EqualValues(t, 10, ran.Load())
	}
}

// epochs returns clock readings around the wrap of each level, and large ones.
func epochs(size int64) []int64 {
	all := []int64{0, 1, 1<<40 + 1, 1<<62 + 12345}
	for span := int64(ms) * size; span < 1<<58; span *= size {
		all = append(all, span-1, span, span-int64(ms), span-int64(ms)/2, 3*span-2*int64(ms))
	}
	return all
}
