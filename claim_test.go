package timingwheel

import (
	"runtime"
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
func batchBubble(t *testing.T, opts Options, test func(t *testing.T, tw *TimingWheel, s *shardOf[func()])) {
	t.Helper()
	bubble(t, opts, func(t *testing.T, tw *TimingWheel) { test(t, tw, tw.engine.shards[0]) })
}

// serveAlone runs the timers that are due d later as one batch on this goroutine. So a callback
// sees a known state of the other timers of its batch.
func serveAlone(e *engine[func()], d time.Duration) {
	s := e.shards[0]
	e.config.Base = e.config.Base.Add(-d)
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
	e.run(timers)
}

// Each timer of a batch is pending until its claim: Len counts it, and a callback of the same batch
// can stop and reschedule it. Len and Stats count claims at once.
func TestTimersOfABatchArePending(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		const n = batchSize
		var timers [n]Timer
		var ran [n]int
		var at [n]time.Duration
		for i := range n {
			timers[i] = tw.AfterFunc(time.Second, func() {
				ran[i]++
				at[i] = time.Duration(tw.engine.config.Read())
				switch i { // each of these counts the claims, so each has one to itself
				case 0:
					assert.EqualValues(t, 1, tw.Stats().Fired)
				case 1:
					_, pending := timers[1].Deadline()
					assert.False(t, pending)
				case 2:
					next, some := tw.Next()
					assert.True(t, some)
					assert.False(t, next.After(tw.Now()))
				case 3:
					assert.Equal(t, n-4, tw.Len())
					st := tw.Stats()
					assert.EqualValues(t, 4, st.Fired)
					assert.Equal(t, n-4, st.Due)
					assert.Zero(t, st.Buckets)
					verifyShard(t, &s.shard)
					for _, claimed := range timers[:4] {
						_, pending := claimed.Deadline()
						assert.False(t, pending)
						assert.False(t, claimed.Stop())
						assert.False(t, claimed.Reschedule(time.Hour))
					}
					due, pending := timers[5].Deadline()
					assert.True(t, pending)
					assert.False(t, due.After(tw.Now()))
					assert.True(t, timers[5].Stop())
					assert.False(t, timers[5].Stop())
					assert.True(t, timers[6].Reschedule(time.Minute))
					assert.True(t, timers[7].Reschedule(0))
					assert.True(t, timers[8].Reschedule(time.Hour))
					assert.True(t, timers[8].Reschedule(time.Second))
					assert.Equal(t, n-5, tw.Len())
					verifyShard(t, &s.shard)
				}
			})
		}
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, 2, tw.Len())
		verifyShard(t, &s.shard)
		pass(time.Hour)
		assert.Zero(t, tw.Len())
		for i := range ran {
			assert.Equal(t, map[bool]int{true: 0, false: 1}[i == 5], ran[i], i)
			assert.True(t, s.slotIsFree(timers[i].index), i)
		}
		assert.Equal(t, 61*time.Second, at[6])
		assert.Equal(t, time.Second, at[7])
		assert.Equal(t, 2*time.Second, at[8])
		verifyShard(t, &s.shard)
	})
}

func TestStopOfBatchedTimerPreventsItsCallback(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var timers [batchSize]Timer
		ran := 0
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran++; i > 0 {
					return
				}
				typed := s
				requireAllStop(t, timers[1:])
				for _, timer := range timers[1:] {
					assert.Nil(t, typed.values.At(timer.index >> 9)[timer.index&511], "the closure is released")
					assert.False(t, timer.Stop())
				}
				assert.Zero(t, tw.Len())
				verifyShard(t, &s.shard)
			})
		}
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, 1, ran)
		assert.EqualValues(t, batchSize-1, tw.Stats().Stopped)
		verifyShard(t, &s.shard)
		for _, timer := range timers {
			assert.True(t, s.slotIsFree(timer.index))
		}
	})
}

// A slot whose timer was stopped in a batch is reused, and the batch does not claim the next timer
// of the slot.
func TestStaleEntryDoesNotClaimTheNextTimerOfItsSlot(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
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
		assert.True(t, slices.ContainsFunc(later, func(l Timer) bool { return l.index == timers[7].index }), "the slot is reused")
		assert.Equal(t, len(later), tw.Len())
		for _, timer := range timers {
			assert.False(t, timer.Stop())
		}
		verifyShard(t, &s.shard)
		pass(time.Hour)
		assert.EqualValues(t, len(later), late.Load())
	})
}

func TestStopAndRescheduleReturnFalseOnceClaimed(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		var timers [4]Timer
		stopped := 0
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				for k := range i + 1 {
					if timers[k].Stop() || timers[k].Reschedule(time.Second) {
						stopped++
					}
				}
			})
		}
		serveAlone(tw.engine, time.Second)
		assert.Zero(t, stopped)
		assert.EqualValues(t, len(timers), tw.Stats().Fired)
	})
}

// In the last callback of a batch no timer is pending, although its worker has not counted its
// claims.
func TestNextAndLenInTheLastCallbackOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		ran := 0
		for range 4 {
			tw.AfterFunc(time.Second, func() {
				ran++
				_, some := tw.Next()
				assert.Equal(t, ran < 4, some)
				assert.Equal(t, 4-ran, tw.Len())
			})
		}
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, 4, ran)
	})
}

// A timer of a batch is moved away and back to the same tick. It may be in a bucket as well when it
// is claimed. It runs once, and its slot is free afterwards.
func TestBatchedTimerMovedAwayAndBackRunsOnce(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
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
				verifyShard(t, &s.shard)
			})
		}
		serveAlone(tw.engine, time.Second)
		pass(2 * time.Hour)
		for i := range ran {
			assert.Equal(t, 1, ran[i], i)
			assert.True(t, s.slotIsFree(timers[i].index), i)
		}
		assert.Zero(t, tw.Len())
		verifyShard(t, &s.shard)
	})
}

// A callback that ends its goroutine, or panics and is reported, loses no other timer of its batch.
func TestGoexitOrPanicLosesNoOtherTimerOfTheBatch(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": boom, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reported atomic.Int32
			batchBubble(t, Options{OnPanic: func(any, []byte) { reported.Add(1) }}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
				var ran atomic.Int32
				var timers []Timer
				for i := range 3 * batchSize {
					timers = append(timers, tw.AfterFunc(time.Second, func() {
						if ran.Add(1); i%5 == 2 {
							leave()
						}
					}))
				}
				pass(time.Hour)
				assert.EqualValues(t, 3*batchSize, ran.Load())
				assert.Zero(t, tw.Len())
				assert.Zero(t, tw.Stats().Running)
				assert.Zero(t, tw.Stats().Workers)
				verifyShard(t, &s.shard)
				for _, timer := range timers {
					assert.True(t, s.slotIsFree(timer.index))
				}
			})
			assert.EqualValues(t, map[string]int{"panic": 19}[name], reported.Load())
		})
	}
}

// After the wheel's Stop has returned, no timer of a batch is claimed.
func TestStopOfTheWheelDiscardsTheRestOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		ran := 0
		timers := make([]Timer, batchSize)
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran++; i == 3 {
					tw.Stop()
					assert.False(t, timers[10].Stop())
				}
			})
		}
		serveAlone(tw.engine, time.Second)
		st := tw.Stats()
		assert.EqualValues(t, 4, st.Fired)
		assert.EqualValues(t, batchSize-4, st.Discarded)
		assert.Equal(t, 4, ran)
	})
}

// A Flush in a callback counts the rest of its batch, and no timer of the batch runs twice.
func TestFlushInACallbackTakesTheRestOfTheBatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var ran [batchSize]int
		far := 0
		for i := range ran {
			tw.AfterFunc(time.Second, func() {
				if ran[i]++; i == 9 {
					assert.Equal(t, batchSize-10+1, tw.Flush())
					assert.Zero(t, tw.Len())
					assert.Equal(t, batchSize-10+1, tw.Stats().Due)
					verifyShard(t, &s.shard)
				}
			})
		}
		tw.AfterFunc(oneYear, func() { far++ })
		serveAlone(tw.engine, time.Second)
		synctest.Wait()
		for _, times := range ran {
			assert.Equal(t, 1, times)
		}
		assert.Equal(t, 1, far)
		verifyShard(t, &s.shard)
	})
}

// Flush makes a postponed timer of a batch due.
func TestFlushIncludesAPostponedTimerOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		var timers [batchSize]Timer
		var ran atomic.Int32
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran.Add(1); i == 0 {
					assert.True(t, timers[5].Reschedule(time.Hour))
					assert.Equal(t, batchSize-1, tw.Flush())
				}
			})
		}
		serveAlone(tw.engine, time.Second)
		pass(ms)
		assert.EqualValues(t, batchSize, ran.Load())
	})
}

// While the callbacks of a batch block, Len and Flush count the other timers only.
func TestFlushAndLenExcludeBlockedCallbacksOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var ran atomic.Int32
		release := make(chan struct{})
		for range batchSize {
			tw.AfterFunc(time.Second, func() { ran.Add(1); <-release })
		}
		for range 100 {
			tw.AfterFunc(time.Hour, func() { ran.Add(1) })
		}
		pass(time.Second)
		assert.EqualValues(t, batchSize, ran.Load())
		assert.Equal(t, 100, tw.Len())
		assert.Equal(t, 100, tw.Flush())
		synctest.Wait()
		assert.EqualValues(t, batchSize+100, ran.Load())
		assert.Zero(t, tw.Len())
		verifyShard(t, &s.shard)
		close(release)
	})
}

// Plans keep their slots when they are claimed from a batch.
func TestPlansAmongTimersOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var ran, runs atomic.Int32
		var plans []Timer
		for i := range 100 {
			if i%10 == 3 {
				plans = append(plans, tw.ScheduleFunc(Every(time.Second), func() { runs.Add(1) }))
			}
			tw.AfterFunc(time.Second, func() { ran.Add(1) })
		}
		pass(5*time.Second + 1)
		assert.EqualValues(t, 100, ran.Load())
		assert.EqualValues(t, 50, runs.Load())
		assert.Equal(t, 10, tw.Len())
		verifyShard(t, &s.shard)
		requireAllStop(t, plans)
		assert.Zero(t, tw.Len())
	})
}

// A callback stops or reschedules a plan of its batch. The plan then does not run, or runs later.
func TestStopAndRescheduleOfABatchedPlan(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var plans [3]Timer
		var runs [3]atomic.Int32
		counts := func() [3]int32 { return [3]int32{runs[0].Load(), runs[1].Load(), runs[2].Load()} }
		tw.AfterFunc(time.Second, func() {
			assert.True(t, plans[0].Stop())
			assert.True(t, plans[1].Reschedule(500*ms))
			verifyShard(t, &s.shard)
		})
		for k := range plans {
			plans[k] = tw.ScheduleFunc(Every(time.Second), func() { runs[k].Add(1) })
		}
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, [3]int32{0, 0, 1}, counts())
		pass(600 * ms)
		assert.Equal(t, [3]int32{0, 1, 1}, counts())
		assert.Equal(t, 2, tw.Len())
		verifyShard(t, &s.shard)
	})
}

// When a batch is filled, a postponed timer of a due bucket goes back to the wheel.
func TestPostponedTimerIsNotInABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var ran [2 * batchSize]time.Duration
		timers := make([]Timer, len(ran))
		start := time.Now()
		for i := range ran {
			timers[i] = tw.AfterFunc(time.Second, func() { ran[i] = time.Since(start) })
		}
		s.placeAll()
		for i, timer := range timers {
			if i%3 == 0 {
				require.True(t, timer.Reschedule(time.Minute))
			}
		}
		pass(time.Hour)
		for i, d := range ran {
			assert.Equal(t, map[bool]time.Duration{true: time.Minute, false: time.Second}[i%3 == 0], d)
		}
	})
}

// Callbacks that block delay no other timer of their batch: spares continue it, one after the
// other. Only the slots that the blocked workers have claimed are not free yet.
func TestSparesTakeOverTheBatchOfABlockedWorker(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		const n = 10 * batchSize
		release := make(chan struct{})
		for range n {
			tw.AfterFunc(time.Second, func() { <-release })
		}
		quick := false
		tw.AfterFunc(time.Second, func() { quick = true })
		pass(time.Second)
		assert.True(t, quick)
		st := tw.Stats()
		assert.Equal(t, n, st.Running)
		assert.Zero(t, st.Pending)
		assert.Zero(t, st.Due)
		assert.EqualValues(t, n+1, st.Fired)
		s.own(func() { assert.Zero(t, s.owner.store.chunks.used()) })
		verifyShard(t, &s.shard)
		close(release)
		synctest.Wait()
		assert.Zero(t, tw.Stats().Running)
		assert.Zero(t, tw.Stats().Workers)
	})
}

// A callback that blocks in the middle of a batch, or at its end, delays no other one.
func TestOneBlockedCallbackDelaysNoOtherOfItsBatch(t *testing.T) {
	t.Parallel()
	for _, blocked := range []int{0, 1, 15, batchSize - 2, batchSize - 1} {
		batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
			release := make(chan struct{})
			var ran atomic.Int32
			timers := make([]Timer, batchSize)
			for i := range timers {
				timers[i] = tw.AfterFunc(time.Second, func() {
					if i == blocked {
						<-release
					}
					ran.Add(1)
				})
			}
			pass(time.Second)
			assert.EqualValues(t, batchSize-1, ran.Load())
			assert.Zero(t, tw.Len())
			assert.Equal(t, 1, tw.Stats().Running)
			assert.False(t, timers[blocked].Stop())
			verifyShard(t, &s.shard)
			close(release)
			synctest.Wait()
			s.placeAll()
			for i := range timers {
				assert.True(t, s.slotIsFree(timers[i].index), i)
			}
			verifyShard(t, &s.shard)
		})
	}
}

// Callbacks of one batch that wait for each other all run.
func TestCallbacksOfABatchCanWaitForEachOther(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		meet := make(chan int)
		var met atomic.Int32
		for i := range batchSize {
			tw.AfterFunc(time.Second, func() {
				if i%2 == 0 {
					meet <- i
				} else {
					<-meet
					met.Add(1)
				}
			})
		}
		pass(time.Hour)
		assert.EqualValues(t, batchSize/2, met.Load())
	})
}

// Chains of zero delays that fill whole batches must not keep their bucket open, or else timers
// that are due behind it would never run.
func TestZeroDelayChainsInBatchesStarveNoTimer(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	var over atomic.Bool
	var chain func()
	chain = func() {
		if !over.Load() {
			tw.AfterFunc(0, chain)
		}
	}
	for range 4 * batchSize { // more than the workers hold at any time
		tw.AfterFunc(0, chain)
	}
	ran := make(chan struct{})
	tw.AfterFunc(20*time.Millisecond, func() { close(ran) })
	receive(t, ran, "a timer behind the chains")
	over.Store(true)
}

// A callback that arms its own timer and flushes it again and again starves no timer that was due
// before.
func TestChainOfFlushesStarvesNoTimer(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batchBubble(t, Options{Executor: executor}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
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

// Callbacks that arm themselves again overload their shard. A timer of a coarser level still fires.
func TestOverloadStarvesNoTimer(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1, Executor: Inline})
	var off atomic.Bool
	defer off.Store(true)
	var again func()
	again = func() {
		spin(time.Microsecond)
		if !off.Load() {
			tw.AfterFunc(ms, again)
		}
	}
	fired := make(chan int, 1)
	tw.AfterFunc(300*ms, func() { fired <- 1 })
	for range 2000 {
		tw.AfterFunc(ms, again)
	}
	require.Equal(t, 1, receive(t, fired, "the timer of the second level"))
}

// While callbacks block and timers are always due, cascading timers make progress. Each worker of
// this test is new and claims one timer.
func TestTimersCascadeWhileCallbacksBlock(t *testing.T) {
	t.Parallel()
	if underInvariants {
		t.Skip("the first batch is larger")
	}
	bubble(t, Options{WheelSize: 256}, func(t *testing.T, tw *TimingWheel) {
		s := &tw.engine.shards[0].shard
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
		tw.engine.config.Base = tw.engine.config.Base.Add(-time.Second)
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
		add := func(d time.Duration) Timer {
			want = append(want, len(want))
			return w.Add(d, len(want)-1)
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
			s.drainAll()
			s.owner.tick += 45 // the bucket of those of 50 ms expires and begins to move
			s.owner.wheel.cascade.push(s.owner.wheel.pop(s.owner.tick))
			require.NotZero(t, s.owner.wheel.cascade.live())
			require.NoError(t, s.verify())
		})
		postponed := add(time.Hour)
		require.True(t, postponed.Reschedule(2*time.Hour))
		require.True(t, postponed.Reschedule(30*time.Minute))
		require.ElementsMatch(t, want, w.RemoveAll())
		require.Zero(t, w.Len())
		require.EqualValues(t, len(want), w.Stats().Stopped)
		verifyShard(t, &s.shard)
		h.release()
		assert.False(t, postponed.Stop())
	})
}
