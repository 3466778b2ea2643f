package timingwheel

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests of the alarm and of the cost of an idle wheel.

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

// One timer costs one wake-up for each level that it passes, regardless of the number of laps.
func TestWakeupsOfOneFarTimer(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			for _, d := range []time.Duration{time.Hour, day, 123 * day, oneYear, 50 * oneYear} {
				before := tw.Stats().Wakeups
				ran := false
				tw.AfterFunc(d, func() { ran = true })
				pass(d + tickOf(opts))
				assert.True(t, ran)
				levels := int(tw.engine.config.last) + 1
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

// Connections send a heartbeat every second for a day, with a timeout of 30 s. The driver wakes at
// most once every 30 s, not once per heartbeat.
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

// A hundred thousand timers that are stopped before they are due cost one wake-up.
func TestStoppedTimersCostOneWakeup(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		for range scaled(100_000) {
			tw.AfterFunc(time.Minute+rand.N(time.Hour), func() {}).Stop()
			if rand.IntN(1000) == 0 {
				time.Sleep(ms)
			}
		}
		pass(10 * day)
		assert.LessOrEqual(t, tw.Stats().Wakeups, uint64(1), "the alarm goes off once for a stopped timer")
		assert.Zero(t, tw.Stats().Moved)
	})
}

// A wheel whose last timers were stopped is woken at most once, and its alarm is off then. So it
// can be collected.
func TestIdleWheelTurnsItsAlarmOff(t *testing.T) {
	t.Parallel()
	var h *held
	stop := func(timers ...Timer) {
		for _, timer := range timers {
			timer.Stop()
		}
	}
	far := func(tw *TimingWheel, hours time.Duration) Timer { return tw.AfterFunc(hours*time.Hour, boom) }
	for name, use := range map[string]func(tw *TimingWheel){
		"stopped in order":                    func(tw *TimingWheel) { stop(far(tw, 1), far(tw, 2), far(tw, 50)) },
		"stopped in reverse":                  func(tw *TimingWheel) { stop(far(tw, 50), far(tw, 2), far(tw, 1)) },
		"the deadline is beyond every clock":  func(tw *TimingWheel) { stop(tw.AfterFunc(math.MaxInt64, boom), far(tw, 1)) },
		"postponed before it was stopped":     func(tw *TimingWheel) { a := far(tw, 1); a.Reschedule(2 * time.Hour); stop(a) },
		"moved earlier before it was stopped": func(tw *TimingWheel) { a := far(tw, 2); a.Reschedule(time.Hour); stop(a) },
		"one in a bucket, one in the inbox": func(tw *TimingWheel) {
			a := far(tw, 2)
			tw.engine.shards[0].placeAll()
			stop(a, far(tw, 1))
		},
		"moved from a bucket to the inbox": func(tw *TimingWheel) {
			a, b := far(tw, 1000), far(tw, 3000)
			tw.engine.shards[0].placeAll()
			b.Reschedule(50 * time.Hour)
			stop(a, b)
		},
		"more than a drain removes": func(tw *TimingWheel) {
			timers := make([]Timer, callerQuantum+removalGroup+1)
			for k := range timers {
				timers[k] = far(tw, 1+time.Duration(k%50))
			}
			tw.engine.shards[0].placeAll()
			stop(timers...)
		},
		"the last one fires": func(tw *TimingWheel) {
			a := far(tw, 1)
			tw.AfterFunc(0, func() {})
			synctest.Wait()
			stop(a)
			h.release()
		},
		"the last one is stopped when due": func(tw *TimingWheel) {
			a, due := far(tw, 1), tw.AfterFunc(0, boom)
			synctest.Wait()
			stop(a, due)
			h.release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h = new(held)
			bubble(t, Options{Executor: h}, func(t *testing.T, tw *TimingWheel) {
				use(tw)
				synctest.Wait()
				woken := tw.engine.shards[0].alarm.rings.Load()
				pass(5000 * time.Hour)
				sh := tw.engine.shards[0]
				assert.LessOrEqual(t, sh.alarm.rings.Load(), woken+1)
				assert.Equal(t, int64(never), sh.alarm.at.Load())
				verifyShard(t, sh)
			})
		})
	}
}

// If a caller's drain finds the wheel empty, it turns the alarm off, and the wheel is not woken.
func TestDrainOfAnEmptyWheelTurnsItsAlarmOff(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(tw *TimingWheel){
		"Len":   func(tw *TimingWheel) { tw.Len() },
		"Stats": func(tw *TimingWheel) { tw.Stats() },
		"Next":  func(tw *TimingWheel) { tw.Next() },
		"Stop":  func(tw *TimingWheel) { tw.engine.shards[0].tryDrain() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, placed := range []int{0, 1, removalGroup + 1} {
				bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
					sh := tw.engine.shards[0]
					timers := make([]Timer, placed+1)
					for k := range placed {
						timers[k] = tw.AfterFunc(time.Hour, boom)
					}
					sh.placeAll()
					timers[placed] = tw.AfterFunc(time.Minute, boom)
					requireAllStop(t, timers)
					drain(tw)
					require.Equal(t, int64(never), sh.alarm.at.Load())
					pass(2 * time.Hour)
					require.Zero(t, tw.Stats().Wakeups)
				})
			}
		})
	}
}

// A caller's drain removes stopped timers and leaves arrivals for later. The alarm stays set for
// them.
func TestDrainDoesNotTurnTheAlarmOffBeforeArrivals(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := tw.engine.shards[0]
		watch := newStopwatch()
		sh.own(func() { // no caller places what it arms
			timers := make([]Timer, 2*callerQuantum)
			for k := range timers {
				timers[k] = tw.AfterFunc(2*time.Hour, boom)
			}
			tw.AfterFunc(time.Hour, watch.note)
			sh.owner.takeArrivals()
			requireAllStop(t, timers)
		})
		sh.tryDrain()
		sh.own(func() {
			require.False(t, sh.owner.arrivals.empty())
			require.Zero(t, sh.owner.wheel.live)
		})
		pass(3 * time.Hour)
		require.Equal(t, []int{3600_000}, watch.noted())
	})
}

// The runtime's timer of the alarm is late, as on a busy machine. A caller's drain takes the due
// timer out of the inbox. It must not turn the alarm off, or else no goroutine would serve the
// timer.
func TestDrainStrandsNoDueTimer(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			s := tw.engine.shards[0]
			fired := make(chan struct{})
			tw.AfterFunc(5*ms, func() { close(fired) })
			s.inbox.mu.Lock()
			s.alarm.timer.Set(s.config.Read()+int64(50*ms), s.config.Read()) // late
			s.inbox.mu.Unlock()
			time.Sleep(10 * ms)
			tw.AfterFunc(time.Hour, func() {}).Stop() // brings a reading of the clock
			s.tryDrain()
			receive(t, fired, "the timer")
		})
	}
}
