package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests of the alarm and its credit, and of the cost of an idle wheel.

// No goroutine wakes while nothing is due.
func TestIdleWheelIsNeverWoken(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			pass(oneYear)
			assert.Zero(t, tw.Stats().Wakeups, "wake-ups of a wheel that was never used")
			tw.AfterFunc(0, func() {})
			pass(2 * tickOf(opts))
			woken := tw.Stats().Wakeups
			pass(oneYear)
			assert.Equal(t, woken, tw.Stats().Wakeups, "wake-ups of a wheel whose timers have fired")
			tw.AfterFunc(math.MaxInt64, func() {})
			pass(oneYear)
			assert.LessOrEqual(t, tw.Stats().Wakeups, woken+16, "wake-ups of a timer that never fires")
		})
	}
}

// One timer costs one wake-up for each level that it passes, whatever the number of laps.
func TestWakeupsOfOneFarTimer(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			for _, d := range []time.Duration{time.Hour, day, 123 * day, oneYear, 50 * oneYear} {
				before := tw.Stats().Wakeups
				ran := false
				tw.AfterFunc(d, func() { ran = true })
				pass(d + tickOf(opts))
				assert.True(t, ran)
				levels := int(tw.engine.last) + 1
				assert.LessOrEqual(t, tw.Stats().Wakeups-before, uint64(levels), "%v on %d levels", d, levels)
			}
		})
	}
}

// A bucket of the last level is queued by its earliest round, so waiting for rounds costs no
// wake-up.
func TestRoundsCostNoWakeupsOnFakeTime(t *testing.T) {
	bubble(t, Options{WheelSize: 2, Levels: 1, Tick: time.Second}, func(t *testing.T, tw *TimingWheel) {
		var times stopwatch
		times.start = time.Now()
		for _, round := range []int{1000, 10, 100_000, 11} { // all in one slot or the other
			tw.AfterFunc(time.Duration(2*round)*time.Second, times.note)
		}
		pass(19 * time.Second)
		assert.Zero(t, tw.Stats().Wakeups)
		pass(10 * day)
		assert.Equal(t, []int{20_000, 22_000, 2_000_000, 200_000_000}, times.times)
		assert.EqualValues(t, 4, tw.Stats().Wakeups)
	})
}

// Connections beat once a second for a day, with a timeout of 30 s. The driver wakes at most once
// for each 30 s, not once for each beat.
func TestWakeupsOfPostponedTimers(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		// The beats are between two ticks. At a tick the driver might run before or after the beat.
		time.Sleep(time.Millisecond / 2)
		timers := make([]Timer, 20)
		for i := range timers {
			timers[i] = tw.AfterFunc(30*time.Second, func() { t.Error("a live connection was cut") })
		}
		seconds := scaled(100_000)
		for range seconds {
			time.Sleep(time.Second)
			for _, timer := range timers {
				if !timer.Reschedule(30 * time.Second) {
					t.Fatal("lost")
				}
			}
		}
		synctest.Wait()
		looks := uint64(seconds/25 + 1)
		assert.LessOrEqual(t, tw.Stats().Wakeups, looks)
		assert.Equal(t, len(timers), tw.Len())
	})
}

// A hundred thousand timers that are stopped before they are due wake no goroutine.
func TestStoppedTimersCostNoWakeup(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		for range scaled(100_000) {
			tw.AfterFunc(time.Minute+rand.N(time.Hour), func() {}).Stop()
			if rand.IntN(1000) == 0 {
				time.Sleep(ms)
			}
		}
		pass(10 * day)
		// An alarm without credit goes off once.
		assert.LessOrEqual(t, tw.Stats().Wakeups, uint64(5))
		assert.Zero(t, tw.Stats().Moved)
	})
}

// A timer beyond the last level waits there by its round. Waiting costs no wake-up, and cascading
// costs one for each level below.
func TestRoundsCostNoWakeups(t *testing.T) {
	t.Parallel()
	forEachWheel(t, func(t *testing.T, opts Options) {
		for _, rounds := range []int64{1, 2, 1000} {
			for _, origin := range []int64{0, 1<<55 + 1} {
				origin = within(opts.Tick, origin)
				s := newRecordingWheel(t, opts, origin)
				d := satMul(spans(opts)[len(spans(opts))-1], rounds)
				s.after(time.Duration(min(d, (endOf(opts.Tick)-origin)/2)+1), "far")
				require.LessOrEqual(t, s.wakeups(), opts.Levels)
			}
		}
	})
}

// Timers of several rounds share a slot of the last level, armed from the latest to the earliest.
// The slot is queued by the earliest round, and each round costs one wake-up.
func TestSlotIsQueuedByItsEarliestRound(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{Tick: ms, WheelSize: 4, Levels: 1}, 0)
	for _, ticks := range []int{1 + 4*50, 1 + 4*7, 1 + 4*2, 1 + 4*7} {
		s.after(time.Duration(ticks)*ms, fmt.Sprint(ticks))
	}
	at, _ := s.Next()
	require.Equal(t, 9*ms, at.Sub(modelStart))
	require.Empty(t, s.to(9*ms-1))
	require.Equal(t, "9", s.to(9*ms))
	require.Equal(t, 2, s.wakeups())
}

// The removals of a small wheel are carried out without waiting for further Stops. So the wheel is
// empty and its alarm off at once, and an unreferenced wheel can be collected.
func TestRemovalsOfASmallWheelAreCarriedOut(t *testing.T) {
	t.Parallel()
	for n := range 2*removalsMax + 2 {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			sh := &tw.engine.shards[0].shard
			timers := make([]Timer, n)
			for k := range timers {
				timers[k] = tw.AfterFunc(time.Hour+time.Duration(k)*time.Minute, func() {})
			}
			sh.placeAll()
			requireAllStop(t, timers)
			require.Zero(t, sh.removals.len(), "of %d timers", n)
			require.Zero(t, sh.placed())
			require.Equal(t, int64(never), sh.alarm.at.Load())
			pass(3 * time.Hour)
			require.Zero(t, tw.Stats().Wakeups)
			verifyShard(t, sh)
		})
	}
}

// The same holds if one of the timers is in the inbox and is stopped there last, or first.
func TestAlarmOfAnEmptiedWheelIsTurnedOff(t *testing.T) {
	t.Parallel()
	for _, inboxFirst := range []bool{false, true} {
		for _, staged := range []time.Duration{time.Minute, 2 * time.Hour, 1000 * time.Hour} {
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				sh := &tw.engine.shards[0].shard
				placed := tw.AfterFunc(time.Hour, func() {})
				sh.placeAll()
				young := tw.AfterFunc(staged, func() {})
				require.Equal(t, 1, sh.staged())
				for _, timer := range map[bool][]Timer{true: {young, placed}, false: {placed, young}}[inboxFirst] {
					require.True(t, timer.Stop())
				}
				require.Zero(t, sh.placed())
				require.Equal(t, int64(never), sh.alarm.at.Load(), "%v, the inbox first: %v", staged, inboxFirst)
				verifyShard(t, sh)
			})
		}
	}
}

// The alarm is set for a timer that was moved to the inbox and stopped there, and for a timer in a
// coarse bucket.
func TestAlarmOfAWheelEmptiedFromInboxAndBucketIsTurnedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		a, b := tw.AfterFunc(1000*time.Hour, func() {}), tw.AfterFunc(3000*time.Hour, func() {})
		sh.placeAll()
		require.True(t, b.Reschedule(2000*time.Hour))
		require.True(t, a.Stop())
		require.True(t, b.Stop())
		pass(time.Second) // an alarm that lingers goes off
		require.Equal(t, int64(never), sh.alarm.at.Load(), "an unreferenced wheel would stay in memory until the alarm goes off")
	})
}

// The timer is stopped while another goroutine owns the wheel. That goroutine corrects the alarm.
func TestAlarmOfAWheelEmptiedDuringOwnershipIsTurnedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		timer := tw.AfterFunc(1000*time.Hour, func() {})
		sh.wheelMu.Lock()
		require.True(t, timer.Stop())
		require.NotEqual(t, int64(never), sh.alarm.at.Load())
		sh.unlockAndDrain()
		require.Equal(t, int64(never), sh.alarm.at.Load(), "an unreferenced wheel would stay in memory until the alarm goes off")
	})
}

// The threshold of removals follows the size of the wheel as it shrinks.
func TestAlarmOfAWheelEmptiedAfterOthersHaveFiredIsTurnedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		for range 10 {
			tw.AfterFunc(200*ms, func() {})
		}
		far := []Timer{tw.AfterFunc(1000*time.Hour, func() {}), tw.AfterFunc(3000*time.Hour, func() {})}
		sh.placeAll()
		pass(time.Second)
		require.Equal(t, 2, tw.Stats().Pending)
		requireAllStop(t, far)
		pass(time.Second) // an alarm that lingers goes off
		require.Equal(t, int64(never), sh.alarm.at.Load(), "an unreferenced wheel would stay in memory until the alarm goes off")
	})
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		for range 10 {
			tw.AfterFunc(200*ms, func() {})
		}
		far := []Timer{tw.AfterFunc(1000*time.Hour, func() {}), tw.AfterFunc(3000*time.Hour, func() {})}
		sh.placeAll()
		pass(time.Second)
		requireAllStop(t, far)
		pass(time.Second)
		require.Equal(t, int64(never), sh.alarm.at.Load(), "without a call of Stats in between")
	})
}

// The only timer of a wheel is stopped in the inbox, whatever its deadline.
func TestAlarmOfAFarTimerStoppedInTheInboxIsTurnedOff(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{3 * time.Hour, math.MaxInt64} {
		bubble(t, Options{Tick: time.Microsecond}, func(t *testing.T, tw *TimingWheel) {
			require.True(t, tw.AfterFunc(d, boom).Stop())
			pass(time.Second) // an alarm that lingers goes off
			assert.Equal(t, int64(never), tw.engine.shards[0].alarm.at.Load(), d)
		})
	}
}

func TestAlarmOfTwoFarTimersStoppedInTheInboxIsTurnedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: time.Microsecond}, func(t *testing.T, tw *TimingWheel) {
		first, second := tw.AfterFunc(3*time.Hour, boom), tw.AfterFunc(4*time.Hour, boom)
		require.True(t, second.Stop())
		require.True(t, first.Stop())
		pass(time.Second)
		assert.Equal(t, int64(never), tw.engine.shards[0].alarm.at.Load())
	})
}

func TestAlarmOfAPostponedTimerStoppedInTheInboxIsTurnedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		first, second := tw.AfterFunc(time.Hour, boom), tw.AfterFunc(3*time.Hour, boom)
		require.True(t, first.Reschedule(2*time.Hour))
		third := tw.AfterFunc(4*time.Hour, boom)
		require.True(t, first.Stop())
		require.True(t, second.Stop())
		require.True(t, third.Stop())
		pass(time.Second)
		assert.Equal(t, int64(never), tw.engine.shards[0].alarm.at.Load())
	})
}

// The alarm is moved when its timer is stopped, but not past the timers of the inbox.
func TestAlarmMovesToTheNextTimer(t *testing.T) {
	t.Parallel()
	for name, credit := range map[string]bool{"with credit": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				sh := &tw.engine.shards[0].shard
				if !credit {
					sh.own(func() { sh.alarm.correctAt = math.MaxInt64 })
				}
				watch := newStopwatch()
				first := tw.AfterFunc(200*ms, func() {})
				tw.AfterFunc(time.Hour, watch.note)
				sh.placeAll()
				tw.AfterFunc(time.Minute, watch.note)
				require.EqualValues(t, 200, sh.alarm.at.Load())
				require.True(t, first.Stop())
				verifyShard(t, sh)
				if credit {
					require.Greater(t, sh.alarm.at.Load(), int64(50_000))
				} else {
					require.LessOrEqual(t, sh.alarm.at.Load(), int64(linger/ms)+1)
				}
				pass(2 * time.Hour)
				require.Equal(t, []int{60_000, 3600_000}, watch.noted())
				require.EqualValues(t, 1, tw.Stats().Stopped)
			})
		})
	}
}

// A Stop of the earliest timer places only a part of a large inbox. The alarm is not moved past the
// remaining timers.
func TestAlarmDoesNotMovePastArrivals(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		watch := newStopwatch()
		var first Timer
		sh.own(func() { // no caller places what it arms
			for range 2 * callerQuantum {
				tw.AfterFunc(2*time.Hour, func() {})
			}
			tw.AfterFunc(time.Hour, watch.note)
			first = tw.AfterFunc(time.Minute, func() {})
		})
		sh.drainRequested.Store(false)
		require.True(t, first.Stop())
		sh.own(func() { require.False(t, sh.owner.arrivals.empty()) })
		pass(3 * time.Hour)
		require.Equal(t, []int{3600_000}, watch.noted())
	})
}

// An alarm without credit goes off within linger, and then no more.
func TestAlarmWithoutCreditLingers(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		sh.own(func() { sh.alarm.correctAt = math.MaxInt64 })
		placed := tw.AfterFunc(time.Hour, func() {})
		sh.placeAll()
		staged := tw.AfterFunc(2*time.Hour, func() {})
		require.True(t, placed.Stop())
		require.True(t, staged.Stop())
		require.LessOrEqual(t, sh.alarm.at.Load(), int64(linger/ms)+1)
		pass(time.Second)
		require.EqualValues(t, 1, tw.Stats().Wakeups)
		require.Equal(t, int64(never), sh.alarm.at.Load())
		pass(3 * time.Hour)
		require.EqualValues(t, 1, tw.Stats().Wakeups)
	})
}

// A Stop of the earliest timer corrects the alarm while there is credit. A loop of such Stops uses
// the credit up, and then wakes the driver at most once in each linger.
func TestStopsOfTheEarliestTimerUseUpCredit(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		const loops, others = 1000, 4 * correctionCredit // credit is limited to correctionCredit
		for range others {
			tw.AfterFunc(time.Hour, func() {})
		}
		sh.placeAll()
		settings := 0
		for range loops {
			timer := tw.AfterFunc(time.Second, func() {})
			set := sh.alarm.at.Load()
			require.True(t, timer.Stop())
			if sh.alarm.at.Load() > set {
				settings++
			}
		}
		require.LessOrEqual(t, settings, correctionCredit/correctionCost+loops/correctionCost+1, "the alarm was corrected too often")
		require.GreaterOrEqual(t, settings, correctionCredit/correctionCost, "there was credit")
		pass(time.Minute)
		require.LessOrEqual(t, tw.Stats().Wakeups, uint64(2))
		require.Equal(t, others, tw.Len())
	})
}

// Only a Stop of the earliest timer spends credit.
func TestStopsOfLaterTimersSpendNoCredit(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(time.Second, func() {})
		var timers []Timer
		for k := range removalsMax {
			timers = append(timers, tw.AfterFunc(time.Hour+time.Duration(k)*24*time.Hour, func() {}))
		}
		tw.AfterFunc(10_000*time.Hour, func() {})
		sh.placeAll()
		credit := sh.alarm.correctAt
		requireAllStop(t, timers)
		require.Zero(t, sh.removals.len())
		require.Equal(t, credit, sh.alarm.correctAt)
	})
}

// The alarm is corrected once for a number of armed timers. At whatever point of that count the
// last timers are stopped, and in which order, the alarm of the idle wheel goes off at most once
// more, within linger.
func TestIdleWheelTurnsItsAlarmOff(t *testing.T) {
	ends := map[string]func(tw *TimingWheel, far func(hours time.Duration) Timer, h *held){
		"stopped in order": func(_ *TimingWheel, far func(time.Duration) Timer, _ *held) {
			a, b, c := far(1), far(2), far(50)
			a.Stop()
			b.Stop()
			c.Stop()
		},
		"stopped in reverse": func(_ *TimingWheel, far func(time.Duration) Timer, _ *held) {
			a, b, c := far(1), far(2), far(50)
			c.Stop()
			b.Stop()
			a.Stop()
		},
		"the last one fires": func(tw *TimingWheel, far func(time.Duration) Timer, h *held) {
			a := far(1)
			tw.AfterFunc(0, func() {})
			synctest.Wait()
			a.Stop()
			h.release()
		},
		"the last one is stopped when due": func(tw *TimingWheel, far func(time.Duration) Timer, h *held) {
			a, due := far(1), tw.AfterFunc(0, func() {})
			synctest.Wait()
			a.Stop()
			due.Stop()
			h.release()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for warm := range 2 * correctionCost {
				h := new(held)
				bubble(t, Options{Executor: h}, func(t *testing.T, tw *TimingWheel) {
					far := func(hours time.Duration) Timer { return tw.AfterFunc(hours*time.Hour, func() {}) }
					for range 3*correctionCost + warm {
						far(24).Stop()
					}
					end(tw, far, h)
					woken := tw.Stats().Wakeups
					pass(time.Second)
					assert.LessOrEqual(t, tw.Stats().Wakeups, woken+1)
					s := tw.engine.shards[0]
					alarm := s.alarm.at.Load()
					require.Equal(t, int64(never), alarm, "the alarm is still set, after %d timers", 3*correctionCost+warm)
				})
			}
		})
	}
}

// The runtime's timer of the alarm is late, as on a busy machine. A caller that corrects the alarm
// takes the due timer out of the inbox. It must not turn the alarm off, or else no goroutine would
// serve the timer.
func TestCorrectingTheAlarmStrandsNoDueTimer(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			for range 3 * correctionCost { // credit
				tw.AfterFunc(time.Hour, func() {}).Stop()
			}
			s := tw.engine.shards[0]
			fired := make(chan struct{})
			tw.AfterFunc(5*ms, func() { close(fired) })
			s.armMu.Lock()
			s.alarm.timer.Reset(50 * ms) // late
			s.armMu.Unlock()
			time.Sleep(10 * ms)
			tw.AfterFunc(time.Hour, func() {}).Stop() // brings a reading of the clock
			s.correctAlarm()
			receive(t, fired, "the timer")
		})
	}
}
