package timingwheel

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const batchSize = 32

// batchBubble runs a test on a wheel of one shard.
func batchBubble(t *testing.T, opts Options, test func(t *testing.T, tw *TimingWheel, s *shard)) {
	t.Helper()
	bubble(t, opts, func(t *testing.T, tw *TimingWheel) { test(t, tw, tw.engine.shards[0]) })
}

// serveAlone runs the timers that are due d later as one batch on this goroutine. So a callback
// sees a known state of the other timers of its batch.
func serveAlone(e *engine, d time.Duration) {
	s := e.shards[0]
	var timers []Timer
	s.own(func() {
		s.skip(d)
		for !s.alarm.step() {
			continue
		}
		timers = slices.Clone(s.owner.expired)
		s.owner.clearExpired()
		s.alarm.reset()
	})
	e.job.serve(timers)
}

// A record whose timer was stopped in a batch is reused, and the batch does not claim the next
// timer of the record.
func TestStaleEntryDoesNotClaimTheNextTimerOfItsRecord(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shard) {
		var timers [batchSize]Timer
		var later []Timer
		var late atomic.Int32 // runs of later
		ran := 0
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran++; i > 0 {
					return
				}
				requireAllStop(t, timers[1:])
				s.placeAll() // carries out the removals
				for range 4 * inboxSize {
					later = append(later, tw.AfterFunc(time.Hour, func() { late.Add(1) }))
				}
			})
		}
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, 1, ran)
		assert.Zero(t, late.Load())
		assert.True(t, slices.ContainsFunc(later, func(l Timer) bool { return l.index == timers[7].index }), "the record is reused")
		assert.Equal(t, len(later), tw.Len())
		for _, timer := range timers {
			assert.False(t, timer.Stop())
		}
		verifyShard(t, s)
		pass(time.Hour)
		assert.EqualValues(t, len(later), late.Load())
	})
}

// A timer of a batch is moved away and back to the same tick. It may be in a bucket as well when it
// is claimed. It runs once, and its record is free afterwards.
func TestBatchedTimerMovedAwayAndBackRunsOnce(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shard) {
		var timers [batchSize]Timer
		var ran [batchSize]int
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran[i]++; i > 0 {
					return
				}
				for k, timer := range timers[1:] {
					at, _ := timer.Deadline()
					assert.True(t, timer.Reschedule(time.Hour))
					if k%2 == 0 {
						s.placeAll()
					}
					assert.True(t, timer.RescheduleAt(at.Add(-time.Nanosecond)))
					if k%3 == 0 {
						s.placeAll()
					}
				}
				verifyShard(t, s)
			})
		}
		serveAlone(tw.engine, time.Second)
		pass(2 * time.Hour)
		s.placeAll()
		for i := range ran {
			assert.Equal(t, 1, ran[i], i)
			assert.True(t, s.recordIsFree(timers[i].index), i)
		}
		assert.Zero(t, tw.Len())
		verifyShard(t, s)
	})
}

// While the callbacks of a batch block, Len, Flush and Stats count the other timers only. None is
// overdue, because each blocked callback has its own worker.
func TestFlushAndLenExcludeBlockedCallbacksOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shard) {
		var ran atomic.Int32
		release := make(chan struct{})
		for range batchSize {
			tw.AfterFunc(time.Second, func() { ran.Add(1); <-release })
		}
		for range 100 {
			tw.AfterFunc(time.Hour, func() { ran.Add(1) })
		}
		pass(time.Minute)
		assert.EqualValues(t, batchSize, ran.Load())
		assert.Equal(t, 100, tw.Len())
		st := tw.Stats()
		assert.Equal(t, []int{batchSize, 0, 0}, []int{st.Running, st.Due, int(st.Overdue)})
		assert.Equal(t, 100, tw.Flush())
		synctest.Wait()
		assert.EqualValues(t, batchSize+100, ran.Load())
		assert.Zero(t, tw.Len())
		verifyShard(t, s)
		close(release)
		synctest.Wait()
		assert.Zero(t, tw.Stats().Running)
	})
}

// A callback stops or reschedules a plan of its batch. The plan then does not run, or runs later.
func TestStopAndRescheduleOfABatchedPlan(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shard) {
		var plans [3]Timer
		var runs [3]atomic.Int32
		counts := func() [3]int32 { return [3]int32{runs[0].Load(), runs[1].Load(), runs[2].Load()} }
		tw.AfterFunc(time.Second, func() {
			assert.True(t, plans[0].Stop())
			assert.True(t, plans[1].Reschedule(500*ms))
			verifyShard(t, s)
		})
		for k := range plans {
			plans[k] = tw.ScheduleFunc(Every(time.Second), func() { runs[k].Add(1) })
		}
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, [3]int32{0, 0, 1}, counts())
		pass(600 * ms)
		assert.Equal(t, [3]int32{0, 1, 1}, counts())
		assert.Equal(t, 2, tw.Len())
		verifyShard(t, s)
	})
}

// A callback that arms its own timer and flushes it again and again starves no timer that was due
// before.
func TestChainOfFlushesStarvesNoTimer(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batchBubble(t, Options{Executor: executor}, func(t *testing.T, tw *TimingWheel, _ *shard) {
				var links, others, before atomic.Int32
				var chain func()
				chain = func() {
					if links.Add(1) < 1000 {
						tw.AfterFunc(time.Hour, chain)
						tw.Flush()
					}
				}
				tw.AfterFunc(time.Second, chain)
				for range 10 {
					tw.AfterFunc(time.Second, func() {
						if others.Add(1) == 10 {
							before.Store(links.Load())
						}
					})
				}
				pass(time.Second)
				assert.EqualValues(t, 1000, links.Load())
				assert.EqualValues(t, 10, others.Load())
				assert.Less(t, before.Load(), int32(900))
			})
		})
	}
}

// While callbacks block and timers are always due, cascading timers make progress. Each worker of
// this test is new and claims one timer.
func TestTimersCascadeWhileCallbacksBlock(t *testing.T) {
	t.Parallel()
	if underInvariants {
		t.Skip("the first batch is larger")
	}
	bubble(t, Options{WheelSize: 256}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		const chains, total = 500, 5000
		release := make(chan struct{})
		var begun, before atomic.Int64
		before.Store(-1)
		tw.AfterFunc(256*ms, func() { before.Store(begun.Load()) }) // on level 1
		s.placeAll()
		pass(10 * ms)
		var again func()
		again = func() {
			if begun.Add(1) <= total-chains {
				tw.AfterFunc(0, again)
				s.placeAll() // as a caller with many arms does
			}
			<-release
		}
		for range chains {
			tw.AfterFunc(246*ms, again) // on level 0
		}
		s.placeAll()
		pass(246 * ms)
		assert.NotEqual(t, int64(-1), before.Load(), "the timer that had to cascade has not run")
		assert.Less(t, before.Load(), int64(total/2), "callbacks that ran before the timer that had to cascade")
		close(release)
	})
}

// The driver waits for a processor. A worker that finds nothing due takes the overdue timers off
// the wheel.
func TestWorkerDoesTheWorkOfALateDriver(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		ran := false
		tw.AfterFunc(time.Second, func() { ran = true })
		s.own(func() {
			s.skip(time.Second)
			s.alarm.starting = true // no driver begins
		})
		s.alarm.due.Wake()
		assert.True(t, ran)
	})
}

// A timer with zero delay that is armed after a Flush runs after the flushed timers.
func TestTimerWithZeroDelayWaitsBehindAFlush(t *testing.T) {
	t.Parallel()
	h := &held{}
	bubble(t, Options{Executor: h}, func(t *testing.T, tw *TimingWheel) {
		var order []int
		for k := range 5 {
			tw.AfterFunc(time.Duration(k)*time.Hour, func() { order = append(order, k) })
		}
		require.Equal(t, 5, tw.Flush())
		tw.AfterFunc(0, func() { order = append(order, 5) })
		synctest.Wait()
		h.release()
		require.Len(t, order, 6)
		require.Equal(t, 5, order[5])
	})
}

// RemoveAll takes due, cascading and queued timers.
func TestRemoveAllTakesEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		w, err := NewTimeouts(Options{Shards: 1, Executor: h, WheelSize: 4, Levels: 3}, func([]int) { t.Error("ran") })
		require.NoError(t, err)
		defer w.Stop()
		s := w.engine.shards[0]
		var want []int
		var timers []Timer
		add := func(d time.Duration) Timer {
			want = append(want, len(want))
			timers = append(timers, w.Add(d, len(want)-1))
			return timers[len(timers)-1]
		}
		for range 40 {
			add(5 * ms)
		}
		pass(10 * ms)
		for range 40 {
			add(0)
			add(50 * ms)
		}
		synctest.Wait()
		s.own(func() {
			s.owner.drainAll()
			s.owner.tick += 45 // the bucket of the timers of 50 ms expires and begins to move
			s.owner.wheel.pop(s.owner.tick)
			require.NotZero(t, s.owner.wheel.cascade.live())
			require.NoError(t, s.verify())
		})
		postponed := add(time.Hour)
		require.True(t, postponed.Reschedule(2*time.Hour))
		require.True(t, postponed.Reschedule(30*time.Minute))
		require.True(t, timers[0].Stop())
		require.ElementsMatch(t, want[1:], w.RemoveAll())
		require.Empty(t, w.RemoveAll())
		require.Zero(t, w.Len())
		require.EqualValues(t, len(want), w.Stats().Stopped)
		verifyShard(t, s)
		h.release()
		for _, timer := range timers {
			require.False(t, timer.Stop())
		}
	})
}

// While a limit is reached or an inline callback blocks, timers that are stopped after they became
// due leave few entries in the queue, and Overdue counts for the timer behind them.
func TestStoppedDueTimersLeaveFewEntries(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]Executor{"limit": Limit(1), "inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{Executor: x, Shards: 1}, func(t *testing.T, tw *TimingWheel) {
				release := make(chan struct{})
				tw.AfterFunc(0, func() { <-release })
				pass(ms)
				timers := make([]Timer, 1000)
				for range 20 {
					for i := range timers {
						timers[i] = tw.AfterFunc(0, func() {})
					}
					pass(2 * ms)
					for _, timer := range timers {
						require.True(t, timer.Stop())
					}
				}
				last := tw.AfterFunc(0, func() {})
				pass(10 * ms)
				require.Equal(t, 1, tw.Len())
				require.Less(t, len(tw.engine.dues[0].Waiting(6000)), 6000)
				require.Equal(t, 1, tw.Stats().Due)
				require.GreaterOrEqual(t, tw.Stats().Overdue, 8*ms)
				require.True(t, last.Stop())
				close(release)
			})
		})
	}
}

// A timer that was moved away and back while it is due keeps one of its entries.
func TestLiveEntriesAreThoseOfDueTimersOnce(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	timers := make([]Timer, 200)
	for i := range timers {
		timers[i] = tw.AfterFunc(time.Hour, func() {})
	}
	for _, s := range tw.engine.shards {
		s.placeAll()
	}
	require.True(t, timers[7].Stop())
	live := tw.engine.liveFilter()
	for round := range 2 {
		for i, timer := range timers {
			require.Equal(t, round == 0 && i != 7, live(timer), i)
		}
	}
}
