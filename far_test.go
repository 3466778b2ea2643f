package timingwheel

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// A deadline at least arena.Near ticks ahead of the clock is far: its word has no room for the tick
// and holds a ticket instead. With a tick of 1 µs, Near is 2.4 hours. A word stays decodable until
// its tick lies 14.3 hours in the past.

const (
	micro = time.Microsecond
	near  = arena.Near * micro
	// past is how long ago the tick of a decodable word may be. Two ticks with the distance wrap
	// have the same bits.
	past, wrap = (1<<36 - 1<<34) * micro, (1 << 36) * micro
)

func TestFarTableForgetsDroppedTickets(t *testing.T) {
	t.Parallel()
	var f farTable
	a, b := f.put(1<<50), f.put(7)
	require.NotEqual(t, a, b)
	tick, ok := f.get(a)
	require.True(t, ok)
	require.Equal(t, int64(1<<50), tick)
	f.drop(a)
	f.drop(a)
	_, ok = f.get(a)
	require.False(t, ok)
	require.NotContains(t, []uint64{a, b}, f.put(9), "dropped tickets are not reused")
	f.drop(b)
	f.drop(f.last)
	require.Nil(t, f.ticks, "an empty map is released, because maps do not shrink")
}

// The ticket of a far deadline is dropped in each way in which a timer can end or move.
func TestTicketIsDroppedWhenItsTimerEndsOrMoves(t *testing.T) {
	t.Parallel()
	const far = 10 * time.Hour
	for name, end := range map[string]func(s *recordingWheel, timer Timer){
		"stopped": func(s *recordingWheel, timer Timer) { require.True(s.t, timer.Stop()) },
		"stopped on the wheel": func(s *recordingWheel, timer Timer) {
			s.engine.shards[0].placeAll()
			require.True(s.t, timer.Stop())
		},
		"fired by one Advance":   func(s *recordingWheel, _ Timer) { require.Equal(s.t, "far", s.to(far)) },
		"fired by many Advances": func(s *recordingWheel, _ Timer) { s.wakeups() },
		"moved earlier": func(s *recordingWheel, timer Timer) {
			require.True(s.t, timer.Reschedule(time.Second))
			require.Zero(s.t, s.engine.shards[0].tickets())
			require.Equal(s.t, "far", s.to(time.Second))
		},
		"moved to far deadlines": func(s *recordingWheel, timer Timer) {
			for k := range 50 {
				require.True(s.t, timer.Reschedule(far+time.Duration(k%7)*time.Hour))
				require.Equal(s.t, 1, s.engine.shards[0].tickets())
				if k%5 == 0 {
					s.engine.shards[0].placeAll()
				}
			}
			require.True(s.t, timer.Stop())
		},
		"becomes near": func(s *recordingWheel, _ Timer) {
			require.Empty(s.t, s.to(far-near/2))
			at, ok := s.Next() // the bucket in which it becomes near
			require.True(s.t, ok)
			require.False(s.t, at.After(modelStart.Add(far)))
			require.Equal(s.t, "far", s.to(far))
		},
		"flushed":           func(s *recordingWheel, _ Timer) { require.Equal(s.t, 1, s.Flush()) },
		"the wheel stopped": func(s *recordingWheel, _ Timer) { s.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sh := newRecordingWheelAndShard(t, Options{Tick: micro, WheelSize: 64})
			timer := s.after(far, "far")
			require.Equal(t, 1, sh.tickets())
			require.True(t, timer.word().Has(arena.Far))
			end(s, timer)
			require.Zero(t, sh.tickets())
			require.Zero(t, s.Len())
		})
	}
}

// A timer waits in the inbox until its deadline has become near. Placing the timer drops its
// ticket.
func TestPlacingATimerThatHasBecomeNearDropsItsTicket(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		timer := tw.AfterFunc(near+time.Second, func() {})
		require.Equal(t, 1, sh.tickets())
		pass(2 * time.Second)
		tw.AfterFunc(near-time.Second, func() {}) // reads the clock
		require.Equal(t, 2, sh.staged())
		sh.placeAll()
		require.False(t, timer.word().Has(arena.Far))
		require.Zero(t, sh.tickets())
	})
}

// Reschedule has allocated a ticket when another call changes the word first. Reschedule then drops
// the ticket.
func TestFailedRescheduleDropsItsTicket(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{Tick: micro})
	for _, placed := range []bool{false, true} {
		timer := s.after(time.Second, "")
		if placed {
			sh.placeAll()
		}
		pg, seen, ok := timer.load()
		require.True(t, ok)
		require.True(t, timer.Reschedule(2*time.Second))
		require.False(t, (cell{sh, pg, timer.index}).reschedule(seen, int64(10*time.Hour), int64(10*time.Hour/micro)))
		require.Zero(t, sh.tickets())
		require.True(t, timer.Stop())
	}
}

func TestRemoveAllDropsTickets(t *testing.T) {
	t.Parallel()
	w, err := NewTimeouts(Options{Tick: micro, Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	w.Add(10*time.Hour, 1)
	w.Add(time.Hour, 2)
	require.Equal(t, 1, w.engine.shards[0].tickets())
	require.ElementsMatch(t, []int{1, 2}, w.RemoveAll())
	require.Zero(t, w.engine.shards[0].tickets())
}

// Each run of a plan drops the ticket of the previous run. The end of the plan drops the last one.
func TestTicketsOfPlansAreDropped(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{Tick: micro})
	runs := 0
	plan := s.ScheduleFunc(Every(10*time.Hour), func() { runs++ })
	require.Equal(t, 1, sh.tickets())
	for k := range 5 {
		s.Advance(modelStart.Add(time.Duration(k+1) * 10 * time.Hour))
		require.Equal(t, k+1, runs)
		require.Equal(t, 1, sh.tickets())
		s.verify()
	}
	require.Equal(t, 1, s.Flush())
	require.Equal(t, 6, runs)
	require.Equal(t, 1, sh.tickets())
	require.True(t, plan.Stop())
	require.Zero(t, sh.tickets())

	ended := s.ScheduleFunc(nextFunc(func(now time.Time) time.Time {
		if runs > 6 {
			return time.Time{}
		}
		return now.Add(20 * time.Hour)
	}), func() { runs++ })
	require.Equal(t, 1, sh.tickets())
	runs++
	s.Flush()
	require.Equal(t, 8, runs)
	require.False(t, ended.Stop())
	require.Zero(t, sh.tickets())
}

// delaysAroundNear returns delays just below and above the limits of a word.
func delaysAroundNear() (all []time.Duration) {
	for _, d := range []time.Duration{near / 2, near, 2 * near, 3 * near, past, wrap, wrap + near, 2 * wrap, 1000 * time.Hour} {
		for _, off := range []time.Duration{-micro - 1, -micro, -1, 0, 1, micro} {
			all = append(all, d+off)
		}
	}
	return all
}

// A far timer fires at its deadline, rounded up to a tick, and Deadline returns this time.
func TestFarTimersFireInTheTickOfTheirDeadline(t *testing.T) {
	t.Parallel()
	for _, executor := range []Executor{nil, Inline, Goroutines} {
		for _, opts := range []Options{{}, {WheelSize: 64, Levels: 2}, {WheelSize: 2, Levels: 3}} {
			opts.Tick, opts.Executor = micro, executor
			bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				var ran atomic.Int32
				delays := delaysAroundNear()
				for _, d := range delays {
					due := (d + micro - 1) / micro * micro
					timer := tw.AfterFunc(d, func() {
						ran.Add(1)
						assert.Equal(t, due, time.Since(start), "%v", d)
					})
					at, ok := timer.Deadline()
					assert.True(t, ok)
					assert.Equal(t, start.Add(due), at)
				}
				verifyShard(t, &tw.engine.shards[0].shard)
				for tw.Len() > 0 {
					pass(7 * time.Hour)
					verifyShard(t, &tw.engine.shards[0].shard)
				}
				assert.EqualValues(t, len(delays), ran.Load())
				assert.Zero(t, tw.engine.shards[0].tickets())
			})
		}
	}
}

// Reschedule moves timers between near and far deadlines, earlier and later, in the inbox and on
// the wheel. Each fires at its new deadline.
func TestRescheduledTimerFiresInTheTickOfItsNearOrFarDeadline(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{time.Second, near - 1, near, near + time.Second, past + time.Hour, wrap + time.Second, 2*wrap + 1}
	for _, from := range delays {
		for _, to := range delays {
			for _, placed := range []bool{false, true} {
				bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
					sh := &tw.engine.shards[0].shard
					start := time.Now()
					var ran time.Duration
					timer := tw.AfterFunc(from, func() { ran = time.Since(start) })
					if placed {
						sh.placeAll()
					}
					require.True(t, timer.Reschedule(to))
					verifyShard(t, sh)
					at, ok := timer.Deadline()
					require.True(t, ok)
					want := (to + micro - 1) / micro * micro
					require.Equal(t, start.Add(want), at, "%v to %v", from, to)
					pass(3 * wrap)
					require.Equal(t, want, ran, "%v to %v", from, to)
					require.Zero(t, sh.tickets())
				})
			}
		}
	}
}

// stall moves a wheel's clock by d without the clock of the bubble, as if the process had been
// stopped. The driver is requested if the alarm is due now.
func stall[T any](e *engine[T], d time.Duration) {
	e.Base = e.Base.Add(-d)
	for _, s := range e.shards {
		s.own(func() {
			s.skip(d)
			if s.Read() >= s.ticks.Begin(max(0, s.alarm.at.Load())) {
				s.alarm.requestDriver()
			}
		})
	}
}

// The process is stopped for longer than a word stays decodable. Then the due timers fire at once
// and exactly once, and the others fire in the ticks of their deadlines.
func TestTimersFireOnceAndInTheirTicksAfterALongStall(t *testing.T) {
	t.Parallel()
	for _, executor := range []Executor{nil, Inline, Goroutines} {
		for _, length := range []time.Duration{near - time.Second, near, near + 1, 3 * near, past, wrap, 3*wrap + 12345} {
			for _, first := range []time.Duration{time.Hour, wrap} {
				bubble(t, Options{Tick: micro, Executor: executor, WheelSize: 256}, func(t *testing.T, tw *TimingWheel) {
					testLongStall(t, tw, length, first)
				})
			}
		}
	}
}

// testLongStall stalls a wheel for length. No timer is due before first.
func testLongStall(t *testing.T, tw *TimingWheel, length, first time.Duration) {
	t.Helper()
	sh := &tw.engine.shards[0].shard
	start := time.Now()
	delays := slices.Concat(delaysAroundNear(), []time.Duration{length - 1, length, length + micro, length + time.Second})
	ran := make([]atomic.Int64, len(delays))
	timers := make([]Timer, len(delays))
	for k, d := range delays {
		d = max(d, first)
		delays[k] = d
		timers[k] = tw.AfterFunc(d, func() {
			if now := time.Since(start) + length; !ran[k].CompareAndSwap(0, int64(now)) || now < d {
				assert.Fail(t, "early or twice", "timer of %v at %v", d, now)
			}
		})
		if k%2 == 0 {
			sh.placeAll()
		}
	}
	postponed := tw.AfterFunc(first, func() { assert.GreaterOrEqual(t, time.Since(start)+length, first+near) })
	sh.placeAll()
	require.True(t, postponed.Reschedule(first+near))
	stall(tw.engine, length)
	tw.AfterFunc(0, func() {})
	pass(time.Hour)
	verifyShard(t, sh)
	for k, d := range delays {
		_, pending := timers[k].Deadline()
		if pending != (ran[k].Load() == 0) || pending != (d > length+time.Hour) {
			t.Fatalf("after a stall of %v a timer of %v is pending: %v", length, d, pending)
		}
	}
	pass(2000 * time.Hour)
	for k, d := range delays {
		due := (d + micro - 1) / micro * micro
		if got := time.Duration(ran[k].Load()); got != due && (d > length+time.Hour || got > length+time.Hour) {
			t.Fatalf("after a stall of %v a timer of %v ran at %v", length, d, got)
		}
	}
	require.Zero(t, tw.Len())
	require.Zero(t, sh.tickets())
	verifyShard(t, sh)
}

// A wheel is idle for longer than a word stays decodable. Then a timer is armed for a time that has
// passed. The timer is due at once, and its Deadline is now.
func TestPastDeadlineIsDueAtOnceOnALongIdleWheel(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{near, past, past + time.Hour, wrap + time.Hour} {
		bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
			sh := &tw.engine.shards[0].shard
			start := time.Now()
			time.Sleep(idle)
			var ran atomic.Int32
			sh.wheelMu.Lock() // no driver runs yet
			timer := tw.AtFunc(start.Add(time.Hour), func() { ran.Add(1) })
			err := sh.verify()
			at, ok := timer.Deadline()
			sh.wheelMu.Unlock()
			assert.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, start.Add(idle), at)
			synctest.Wait()
			assert.EqualValues(t, 1, ran.Load())

			time.Sleep(idle)
			far := tw.AfterFunc(1000*time.Hour, func() { ran.Add(1) })
			require.True(t, far.RescheduleAt(start), "%v", idle)
			verifyShard(t, sh)
			synctest.Wait()
			assert.EqualValues(t, 2, ran.Load())
			assert.Zero(t, sh.tickets())
		})
	}
}

// An executor delays due timers for longer than a word stays decodable. The timers stay due, and
// each runs once.
func TestTimersStayDueWhileTheExecutorWaitsForLong(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{near, past, past + time.Hour, wrap + time.Hour} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			testLongWaitForTheExecutor(t, length)
		})
	}
}

func testLongWaitForTheExecutor(t *testing.T, length time.Duration) {
	t.Helper()
	h := &held{}
	bubble(t, Options{Tick: micro, Executor: h}, func(t *testing.T, tw *TimingWheel) {
		ran := 0
		timers := make([]Timer, 3)
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Second, func() { ran++ })
		}
		tw.AfterFunc(length, func() {}) // wakes the driver
		pass(length + time.Second)
		require.Equal(t, 4, h.len())
		at, ok := timers[2].Deadline()
		assert.True(t, ok)
		assert.Less(t, time.Until(at), time.Duration(0), "Deadline after %v", length)
		h.release()
		synctest.Wait()
		assert.Equal(t, 3, ran, "after %v", length)
		pass(24 * time.Hour)
		h.release()
		assert.Equal(t, 3, ran, "a day later")
	})
}

// As in TestTimersStayDueWhileTheExecutorWaitsForLong, but the clock advances hour by hour, so the
// driver does not leap. The timers wait as due entries after a Flush, otherwise in due buckets.
func TestTimersStayDueWhileTheExecutorWaitsHourByHour(t *testing.T) {
	t.Parallel()
	for _, flush := range []bool{false, true} {
		t.Run(fmt.Sprintf("flush=%v", flush), func(t *testing.T) {
			t.Parallel()
			testWaitHourByHour(t, flush)
		})
	}
}

func testWaitHourByHour(t *testing.T, flush bool) {
	t.Helper()
	const hours = 60
	h := &held{}
	bubble(t, Options{Tick: micro, Executor: h}, func(t *testing.T, tw *TimingWheel) {
		start := time.Now()
		ran := map[string]time.Duration{}
		arm := func(name string) Timer {
			return tw.AfterFunc(time.Minute, func() { ran[name] = time.Since(start) })
		}
		timers := map[string]Timer{}
		for _, name := range []string{"left", "stopped", "soon", "much later"} {
			timers[name] = arm(name)
		}
		if flush {
			require.Equal(t, 4, tw.Flush())
		}
		for hour := 1; hour <= hours; hour++ {
			tw.AfterFunc(time.Hour, func() {}) // wakes the driver
			pass(time.Hour + micro)
			switch hour {
			case 2:
				require.True(t, timers["soon"].Reschedule(time.Hour))
				require.True(t, timers["much later"].Reschedule((hours-1)*time.Hour))
			case hours / 2:
				require.True(t, timers["stopped"].Stop())
			}
			at, ok := timers["left"].Deadline()
			require.True(t, ok)
			require.LessOrEqual(t, at.Sub(start), time.Minute+micro, "after %d hours", hour)
			waited := time.Since(at).Truncate(micro)
			require.Equal(t, waited, tw.Stats().Overdue.Truncate(micro), "after %d hours", hour)
		}
		for h.release() > 0 { // each flushed timer that was postponed is due again
			synctest.Wait()
		}
		require.Len(t, ran, 2, "%v", ran)
		require.Contains(t, ran, "left")
		require.Contains(t, ran, "soon")
		pass(2 * time.Hour)
		h.release()
		synctest.Wait()
		require.GreaterOrEqual(t, ran["much later"], (hours+1)*time.Hour)
		require.Zero(t, tw.engine.shards[0].tickets())
		require.Zero(t, tw.Len())
	})
}

// An Advance moves the clock by more than a word can span. During its callbacks, Deadline of the
// other due timers is exact.
func TestDeadlineIsExactInCallbacksOfALongAdvance(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{near, past, past + time.Hour, wrap + time.Hour, 100 * wrap} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			testLongAdvance(t, length)
		})
	}
}

func testLongAdvance(t *testing.T, length time.Duration) {
	t.Helper()
	s, _ := newRecordingWheelAndShard(t, Options{Tick: micro})
	var second Timer
	s.AfterFunc(time.Second, func() {
		at, ok := second.Deadline()
		assert.True(t, ok)
		assert.Equal(t, modelStart.Add(2*time.Second), at, "in an Advance of %v", length)
	})
	second = s.AfterFunc(2*time.Second, func() {})
	require.Equal(t, 2, s.Advance(modelStart.Add(length)))
	late := s.Stats().Lateness
	assert.Equal(t, length-time.Second, late.Max)
}

// A plan keeps its phase over an Advance or a stall of the process that is longer than a word stays
// decodable.
func TestPlanKeepsItsPhaseOverALongLeap(t *testing.T) {
	t.Parallel()
	const period = 7 * time.Second
	for _, length := range []time.Duration{near, past, past + time.Hour, wrap + time.Hour, 100 * wrap} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			s, _ := newRecordingWheelAndShard(t, Options{Tick: micro})
			plan := s.ScheduleFunc(Every(period), func() {})
			s.Advance(modelStart.Add(length))
			at, ok := plan.Deadline()
			require.True(t, ok)
			assert.Equal(t, modelStart.Add((length/period+1)*period), at, "Manual")

			bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
				start, runs := time.Now(), 0
				plan := tw.ScheduleFunc(Every(period), func() { runs++ })
				stall(tw.engine, length)
				pass(period)
				assert.Equal(t, 1, runs)
				at, ok := plan.Deadline()
				require.True(t, ok)
				assert.Equal(t, start.Add(2*period), at, "a running wheel") // the clock of the bubble has not leapt
			})
		})
	}
}

func TestFlushedFarTimerIsNotLate(t *testing.T) {
	t.Parallel()
	s, _ := newRecordingWheelAndShard(t, Options{Tick: micro})
	s.to(5 * time.Hour)
	s.after(1000*time.Hour, "far")
	require.Equal(t, 1, s.Flush())
	late := s.Stats().Lateness
	require.EqualValues(t, 1, late.Count())
	require.Zero(t, late.Max)
}

func TestFlushAndRemoveAllDropTickets(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		tw := startWheel(t, Options{Tick: time.Microsecond, Shards: 1, Manual: manual})
		for range 100 {
			tw.AfterFunc(100*time.Hour, func() {})
		}
		tw.Flush()
		require.NoError(t, drainWheel(tw))
		assert.Zero(t, tw.engine.shards[0].tickets(), "Manual: %v", manual)
	}
	w := startTimeouts(t, Options{Tick: time.Microsecond, Shards: 1}, func([]int) {})
	for i := range 100 {
		w.Add(100*time.Hour, i)
	}
	assert.Len(t, w.RemoveAll(), 100)
	assert.Zero(t, w.engine.shards[0].tickets(), "RemoveAll")
}

// A word holds a tick modulo 2^36, which is 19 hours with a tick of 1 µs. The callers of a wheel
// pass no reading of the clock for 21 hours. Then a deadline that passed long ago is not mistaken
// for one in the future.
func TestLongPassedDeadlinesAreDueAtOnce(t *testing.T) {
	t.Parallel()
	for _, ago := range []time.Duration{0, time.Hour, 14 * time.Hour, 15 * time.Hour, 18 * time.Hour, 20 * time.Hour} {
		tw, err := newWheelAt(Options{Tick: time.Microsecond, Shards: 1}, int64(21*time.Hour))
		require.NoError(t, err)
		t.Cleanup(tw.Stop)
		tw.AtFunc(time.Now().Add(time.Hour), func() {})
		s := tw.engine.shards[0]
		s.armMu.Lock()
		s.inbox.now = 0 // as if only AtFunc had been called
		s.armMu.Unlock()
		fired := make(chan struct{})
		tw.AtFunc(time.Now().Add(-ago), func() { close(fired) })
		receive(t, fired, ago.String())
		fired = make(chan struct{})
		timer := tw.AfterFunc(time.Minute, func() { close(fired) })
		require.True(t, timer.RescheduleAt(time.Now().Add(-ago)))
		receive(t, fired, ago.String())
	}
}

// An Advance by more than a word can span merges the missed runs of a plan into one. The next run
// has the phase of the plan.
func TestRunsMissedInALongAdvanceAreMergedInPhase(t *testing.T) {
	t.Parallel()
	for _, leap := range []time.Duration{13 * time.Hour, 16 * time.Hour, 20 * time.Hour, 50 * time.Hour, 100 * 24 * time.Hour} {
		tw := startWheel(t, Options{Tick: time.Microsecond, Manual: true, Start: modelStart})
		var planned []time.Duration
		tw.ScheduleRun(Every(time.Hour), func(r *Run) { planned = append(planned, r.Planned.Sub(modelStart)) })
		tw.AfterFunc(leap+30*time.Minute, func() {})
		tw.Advance(modelStart.Add(leap + time.Minute))
		tw.Advance(modelStart.Add(leap + time.Hour + time.Minute))
		require.Equal(t, []time.Duration{time.Hour, leap + time.Hour}, planned)
		require.Equal(t, 1, tw.Len())
	}
}

// longStall is longer than a word stays decodable, which is 14.3 hours with a tick of 1 µs. In the
// tests below a driver, a caller, a run or an executor blocks for this long.
const longStall = 17 * time.Hour

// gate is an executor whose Go blocks until the channel is closed.
type gate chan struct{}

func (g gate) Go(f func()) {
	<-g
	f()
}

// The driver is blocked in the executor's Go while callers arm timers. Arming does not advance the
// clock so far that the words of the waiting timers become undecodable.
func TestTimersWaitForABlockedDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(gate)
		tw := startWheel(t, Options{Tick: micro, Executor: open, Shards: 1})
		ran := false
		tw.AfterFunc(time.Second, func() {})
		last := tw.AfterFunc(time.Hour, func() { ran = true })
		tw.engine.shards[0].placeAll()
		start := time.Now()
		for range longStall / time.Hour {
			pass(time.Hour)
			for range 2 * inboxSize {
				tw.AfterFunc(100*time.Hour, func() {})
			}
			tw.Stats()
		}
		at, ok := last.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Hour, at.Sub(start))
		close(open)
		pass(time.Second)
		require.True(t, ran)
	})
}

// As in TestTimersWaitForABlockedDriver, but an Inline callback blocks the driver, and the waiting
// timers are the rest of its large bucket.
func TestTimersOfALargeBucketWaitForABlockedDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{Tick: micro, Executor: Inline, Shards: 1})
		ran := 0
		for k := range 4 * quantum {
			tw.AfterFunc(time.Second, func() {
				if k == 0 {
					time.Sleep(longStall)
				}
				ran++
			})
		}
		for range longStall / time.Hour {
			pass(time.Hour)
			tw.AfterFunc(100*time.Hour, func() {})
			tw.Stats()
		}
		pass(time.Hour)
		require.Equal(t, 4*quantum, ran)
	})
}

// A caller is stopped for long between reading the clock and taking the lock. The timers that the
// caller then arms and reschedules are due at once.
func TestTimersArmedWithAnOldReadingAreDueAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		moved := tw.AfterFunc(100*time.Hour, func() {})
		tw.AfterFunc(time.Hour, func() {})
		pass(time.Second)
		now := s.Read()
		pass(longStall) // the timer of one hour made the driver leap
		ran := false
		s.armMu.Lock()
		s.arm(now+int64(time.Second), now, func() { ran = true }, 0)
		require.True(t, moved.rescheduleTo(now+int64(time.Second), now))
		pass(time.Second)
		require.True(t, ran)
		require.Zero(t, tw.Len())
	})
}

// A run reschedules its plan and then runs for long, past the new deadline. The next run begins
// when this run ends.
func TestPlanRescheduledInALongRunIsDueWhenTheRunEnds(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{10 * time.Hour, longStall} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				var runs []time.Duration
				handle := make(chan Timer, 1)
				plan := tw.ScheduleFunc(Every(time.Minute), func() {
					runs = append(runs, time.Since(start))
					if len(runs) > 1 {
						return
					}
					assert.True(t, (<-handle).Reschedule(time.Hour))
					for range length / time.Hour {
						time.Sleep(time.Hour)
						tw.AfterFunc(micro, func() {}) // makes the driver advance the clock
					}
				})
				handle <- plan
				pass(length + time.Minute + time.Second)
				require.Equal(t, []time.Duration{time.Minute, time.Minute + length}, runs[:2])
				require.True(t, plan.Stop())
				require.Zero(t, tw.engine.shards[0].tickets())
			})
		})
	}
}

// A timer that is armed during an Advance by hours is due in the next Advance.
func TestTimerArmedDuringALongAdvanceIsDueInTheNext(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: micro, Manual: true, Start: modelStart})
	now := modelStart
	for range scaled(60) {
		armed := 0
		arm := func() {
			if armed++; armed < 8_000 { // limited, because Advance may be preempted for long
				tw.AfterFunc(time.Second, func() {})
			}
		}
		concurrently(arm, func() {
			now = now.Add(longStall)
			tw.Advance(now)
		})
		now = now.Add(time.Minute)
		tw.Advance(now)
		require.Zero(t, tw.Len())
	}
}

// Deadline is exact during an Advance by weeks.
func TestRaceDeadlineIsExactDuringALongAdvance(t *testing.T) {
	t.Parallel()
	const leap = 1000 * time.Hour
	tw := startWheel(t, Options{Tick: micro, Manual: true, Start: modelStart, Executor: &held{}})
	now := modelStart
	for range scaled(50) {
		deadlines := map[Timer]time.Time{}
		for k := range 200 {
			at := now.Add(time.Duration(k+1)*time.Second + time.Duration(k%2)*leap)
			deadlines[tw.AtFunc(at, func() {})] = at
		}
		tw.Len()
		concurrently(func() {
			for timer, want := range deadlines {
				at, ok := timer.Deadline()
				assert.True(t, ok)
				assert.Equal(t, want, at)
			}
		}, func() {
			now = now.Add(leap + time.Hour)
			tw.Advance(now)
		})
		for timer := range deadlines {
			require.True(t, timer.Stop())
		}
	}
}

// Reschedule postpones due timers while the owner replaces their ticks by tickets. No timer is
// lost: each stays in the list of due timers or in the inbox.
func TestRacePostponedTimersThatGetTicketsAreNotLost(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: micro, Shards: 1, Executor: &held{}})
	s := &tw.engine.shards[0].shard
	timers := make([]Timer, 500)
	d := 50 * time.Hour
	postpone := func() {
		for _, timer := range timers {
			d += micro
			timer.Reschedule(d)
		}
	}
	for range scaled(100) {
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Hour, func() {})
		}
		tw.Flush()
		postpone()
		concurrently(postpone, func() { s.own(func() { s.owner.age(s.owner.tick) }) })
		require.Zero(t, tw.Occupancy().Unseen)
		for _, timer := range timers {
			require.True(t, timer.Stop())
		}
		require.Zero(t, tw.Len())
		require.Zero(t, tw.engine.shards[0].tickets())
	}
}

// A ticket has 36 bits in a word. After the largest ticket the numbers restart at 0 and skip the
// tickets in use.
func TestTicketsInUseAreSkippedAfterTheNumbersWrap(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{Tick: micro}, 0)
	far := &s.engine.shards[0].far
	delays := []time.Duration{10 * time.Hour, 11 * time.Hour, 12 * time.Hour, 13 * time.Hour, 14 * time.Hour}
	for k, d := range delays {
		if k == 1 {
			far.last = 1<<36 - 3
		}
		timer := s.after(d, fmt.Sprint(k))
		at, ok := timer.Deadline()
		require.True(t, ok)
		require.Equal(t, d, at.Sub(modelStart))
	}
	require.Less(t, far.last, uint64(8))
	for k, d := range delays {
		require.Equal(t, fmt.Sprint(k), s.to(d))
	}
}

// The clock is days ahead of the driver. While the driver catches up, callers arm timers for times
// that have passed and move timers to such times. All these timers run at once.
func TestRacePastDeadlinesRunAtOnceWhileTheDriverCatchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(gate)
		tw := startWheel(t, Options{Tick: micro, Executor: open, Shards: 1})
		s := &tw.engine.shards[0].shard
		tw.AfterFunc(time.Second, func() {})
		for k := range scaled(100_000) {
			tw.AfterFunc(time.Hour+time.Duration(k)*time.Millisecond, func() {})
		}
		timers := make([]Timer, 3000)
		var due, ran atomic.Int32
		for k := range timers {
			timers[k] = tw.AfterFunc(2000*time.Hour, func() { ran.Add(1) })
		}
		pass(2 * time.Second) // the driver waits in Executor.Go
		pass(100 * time.Hour)
		before, end := s.now.Load(), s.Read()
		caller := make(chan struct{})
		go func() {
			defer close(caller)
			for last := before; last < end-int64(time.Hour); {
				next := s.now.Load()
				if next == last {
					continue
				}
				last = next
				for range 20 {
					tw.engine.armAt(1, clock.Unread, func() { ran.Add(1) }) // as AtFunc with a monotonic time
					assert.True(t, timers[due.Load()/2].rescheduleTo(1, clock.Unread))
					due.Add(2)
				}
			}
		}()
		close(open)
		<-caller
		pass(time.Second)
		assert.Equal(t, due.Load(), ran.Load())
	})
}
