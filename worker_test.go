package timingwheel

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// batchBubble runs a test on a wheel of one shard whose first worker takes a full batch.
func batchBubble(t *testing.T, opts Options, test func(t *testing.T, tw *TimingWheel, s *shardOf[func()])) {
	t.Helper()
	bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		s.own(func() { s.owner.pool.size = batchSize })
		test(t, tw, s)
	})
}

// serveAlone runs a driver and its worker on this goroutine, d later and without a spare, and keeps
// other drivers from beginning. So a callback sees a known state of the other timers of its batch.
func serveAlone(e *engine[func()], d time.Duration) {
	_, serve := loneWorker(e, d)
	serve()
}

// loneWorker returns the worker of serveAlone, and a function that runs it.
func loneWorker(e *engine[func()], d time.Duration) (w *worker[func()], serve func()) {
	s := e.shards[0]
	e.Base = e.Base.Add(-d)
	s.wheelMu.Lock()
	s.skip(d)
	s.armMu.Lock()
	s.alarm.starting = true
	s.armMu.Unlock()
	s.advance()
	w = s.newWorker()
	w.spareStarting = true
	w.begin()
	return w, func() {
		defer s.letDriversBegin()
		defer w.exit()
		w.serve()
	}
}

// startSpare starts the spare of a lone worker.
func (w *worker[T]) startSpare() {
	s := w.s
	s.own(func() {
		spare := s.newWorker()
		spare.parent, spare.taken, spare.started = w, s.owner.counters.taken, s.Read()
		s.owner.pool.starting++
		go spare.runSpare()
	})
}

// letDriversBegin lets drivers begin again after serveAlone, and starts one if it was requested
// meanwhile.
func (s *shard) letDriversBegin() {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	s.alarm.starting = false
	if s.alarm.at.Load() == driverActive {
		s.alarm.startDriver()
	}
}

// inBatches returns the number of pending timers in the batches of workers.
func (s *shard) inBatches() (n int) {
	s.own(func() {
		for _, b := range s.owner.pool.batches {
			n += b.unclaimed()
		}
	})
	return n
}

// batches returns the number of batches that may have pending timers.
func (s *shard) batches() (n int) {
	s.own(func() { n = len(s.owner.pool.batches) })
	return n
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
				at[i] = time.Duration(tw.engine.Read())
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
					assert.Equal(t, n-4, s.inBatches())
					assert.Equal(t, n-4, tw.Len())
					st := tw.Stats()
					assert.EqualValues(t, 4, st.Fired)
					assert.Equal(t, 1, st.Running)
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
		assert.Zero(t, s.inBatches())
		assert.Zero(t, s.batches())
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
				assert.Equal(t, batchSize-1, tw.Len())
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

// The slot of such a timer leaves its bucket before it is free.
func TestSlotOfABatchedTimerLeavesItsBucketBeforeItIsFree(t *testing.T) {
	t.Parallel()
	wheel, sh := newRecordingWheelAndShard(t, Options{Executor: &held{}})
	s := wheel.engine.shards[0]
	timers := wheel.fill(batchSize, time.Second)
	wheel.Advance(modelStart.Add(time.Second))
	w := &worker[func()]{s: s}
	s.own(func() {
		w.batch = s.owner.pool.newBatch()
		w.batch.entries, _ = s.owner.fill(w.batch.entries, batchSize, never)
		s.owner.pool.list(w.batch)
	})
	require.True(t, timers[7].Reschedule(time.Hour))
	require.True(t, timers[7].Reschedule(0))
	sh.placeAll()
	require.NotZero(t, *s.owner.store.pos(timers[7].index))
	for k := range w.batch.entries {
		_, _, ok := s.claim(&w.batch.entries[k], w.batch.id)
		require.True(t, ok)
		w.claimed |= 1 << k
	}
	s.own(w.finishBatch)
	require.Zero(t, *s.owner.store.pos(timers[7].index))
	verifyShard(t, sh)
	require.True(t, sh.slotIsFree(timers[7].index))
	require.Zero(t, wheel.Len())
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
				assert.Zero(t, s.batches())
				verifyShard(t, &s.shard)
				for _, timer := range timers {
					assert.True(t, s.slotIsFree(timer.index))
				}
			})
			assert.EqualValues(t, map[string]int{"panic": 19}[name], reported.Load())
		})
	}
}

// A worker ends in the middle of a batch that another worker shares. The other worker runs the
// rest, and its claims are still counted at once.
func TestLenIsExactAfterGoexitInASharedBatch(t *testing.T) {
	t.Parallel()
	wheel, sh := newRecordingWheelAndShard(t, Options{Executor: &held{}})
	s := wheel.engine.shards[0]
	timers := wheel.fill(batchSize, time.Second)
	wheel.Advance(modelStart.Add(time.Second))
	first, second := &worker[func()]{s: s, unlocked: true}, &worker[func()]{s: s}
	var b *batch
	claim := func(w *worker[func()], k int) {
		_, _, ok := s.claim(&b.entries[k], b.id)
		require.True(t, ok)
		w.claimed |= 1 << k
	}
	s.own(func() {
		c := &s.owner.pool
		b = c.newBatch()
		b.entries, _ = s.owner.fill(b.entries, batchSize, never)
		require.Len(t, b.entries, batchSize)
		c.list(b)
		b.users = 2
		first.batch, second.batch = b, b
	})
	claim(first, 0)
	claim(second, 31)
	require.Equal(t, batchSize-2, wheel.Len())
	first.exit() // its callback has called Goexit
	require.Equal(t, batchSize-2, wheel.Len())
	require.Equal(t, batchSize-2, wheel.Flush())
	require.EqualValues(t, batchSize-2, wheel.Stats().Flushed)
	claim(second, 30)
	require.Equal(t, batchSize-3, wheel.Len())
	require.EqualValues(t, 3, wheel.Stats().Fired)
	verifyShard(t, sh)
	for k := 1; k < 30; k++ {
		claim(second, k)
	}
	require.Zero(t, wheel.Len())
	s.own(func() { second.finishBatch() })
	require.Zero(t, wheel.Len())
	require.EqualValues(t, batchSize, wheel.Stats().Fired)
	require.Zero(t, sh.batches())
	for _, timer := range timers {
		require.True(t, sh.slotIsFree(timer.index))
	}
	verifyShard(t, sh)
}

// After the wheel's Stop has returned, no timer of a batch is claimed, and Shutdown waits for the
// running callback.
func TestStopOfTheWheelDiscardsTheRestOfABatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		ran := 0
		timers := make([]Timer, batchSize)
		release, stopped := make(chan struct{}), make(chan struct{})
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran++; i == 3 {
					tw.Stop()
					close(stopped)
					<-release
				}
			})
		}
		done := make(chan struct{})
		go func() { serveAlone(tw.engine, time.Second); close(done) }()
		<-stopped
		assert.False(t, timers[10].Stop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		st := tw.Stats()
		assert.EqualValues(t, 4, st.Fired)
		assert.EqualValues(t, batchSize-4, st.Discarded)
		close(release)
		require.NoError(t, tw.Shutdown(t.Context()))
		<-done
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
					assert.Equal(t, batchSize-10+1, tw.Len())
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

// A batch may name postponed timers that are in a bucket again. Each counts once, and not as due.
func TestPostponedTimersOfABatchAreCountedOnce(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		const postponed = 11
		var timers [batchSize]Timer
		var ran atomic.Int32
		rescheduled, release := make(chan struct{}), make(chan struct{})
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran.Add(1); i == 0 {
					for _, other := range timers[10 : 10+postponed] {
						assert.True(t, other.Reschedule(time.Hour))
					}
					close(rescheduled)
					<-release
				}
			})
		}
		w, serve := loneWorker(tw.engine, time.Second)
		go serve()
		<-rescheduled
		w.startSpare() // it runs the other timers of the batch
		synctest.Wait()
		assert.EqualValues(t, batchSize-postponed, ran.Load())
		assert.Equal(t, postponed, tw.Len())
		assert.Equal(t, postponed, tw.survey().Pending)
		assert.Zero(t, tw.Stats().Due)
		at, ok := tw.Next()
		assert.True(t, ok)
		assert.Greater(t, time.Until(at), time.Minute)
		s.own(func() { assert.Len(t, s.owner.pool.batches, 1) })
		s.letDriversBegin()
		assert.Equal(t, postponed, tw.Flush())
		pass(0)
		assert.EqualValues(t, batchSize, ran.Load())
		assert.EqualValues(t, postponed, tw.Stats().Flushed)
		close(release)
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

// Flushed timers run from batches whatever their deadlines are. A timer that is rescheduled
// meanwhile does not run then.
func TestRescheduledTimerOfAFlushedBatchDoesNotRun(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		var timers, others [batchSize]Timer
		var ran, ranOthers [batchSize]time.Duration
		for i := range timers {
			timers[i] = tw.AfterFunc(oneYear, func() {
				ran[i] = time.Duration(tw.engine.Read())
				if i == 0 {
					assert.True(t, timers[20].Reschedule(2*oneYear))
					assert.True(t, timers[21].Reschedule(time.Hour))
					assert.True(t, others[22].Reschedule(2*oneYear)) // not in a batch yet
					assert.True(t, others[23].Reschedule(time.Hour))
					verifyShard(t, &s.shard)
				}
			})
		}
		for i := range others {
			others[i] = tw.AfterFunc(oneYear, func() { ranOthers[i] = time.Duration(tw.engine.Read()) })
		}
		s.own(func() { s.alarm.starting = true }) // no driver comes for the Flush
		assert.Equal(t, 2*batchSize, tw.Flush())
		serveAlone(tw.engine, time.Minute)
		s.own(func() { s.alarm.starting = false })
		pass(3 * oneYear)
		for i := range ran {
			want, wantOthers := time.Minute, time.Minute
			switch i {
			case 20:
				want += 2 * oneYear
			case 21:
				want += time.Hour
			case 22:
				wantOthers += 2 * oneYear
			case 23:
				wantOthers += time.Hour
			}
			assert.Equal(t, want, ran[i], i)
			assert.Equal(t, wantOthers, ranOthers[i], i)
		}
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

// The sampled lateness of a batch is that of a random claim, not of the first, which is the least
// late.
func TestLatenessOfABatchIsThatOfARandomClaim(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, _ *shardOf[func()]) {
		for range 20 * batchSize {
			tw.AfterFunc(time.Second, func() { time.Sleep(ms) })
		}
		serveAlone(tw.engine, time.Second)
		h := tw.Stats().Lateness
		assert.EqualValues(t, 20, h.Count(), "one sample of each batch")
		assert.GreaterOrEqual(t, h.Max, 19*batchSize*ms)
		assert.Greater(t, h.Sum, 190*batchSize*ms, "the samples would be of the first claim of each batch")
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
		assert.Zero(t, s.batches())
		s.own(func() {
			assert.Less(t, s.owner.pool.size, batchSize, "batches get smaller")
			assert.Zero(t, s.owner.store.chunks.used())
		})
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
			for i := range timers {
				assert.True(t, s.slotIsFree(timers[i].index), i)
			}
			verifyShard(t, &s.shard)
		})
	}
}

// A blocked worker needs a spare of its own for the rest of its batch, however many other workers
// are starting.
func TestBatchIsTakenOverWhileOtherWorkersAreStarting(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		s.own(func() { s.owner.pool.starting += 1000 })
		release := make(chan struct{})
		var ran atomic.Int32
		for i := range batchSize {
			tw.AfterFunc(time.Second, func() {
				if i == 0 {
					<-release
				}
				ran.Add(1)
			})
		}
		pass(time.Second)
		assert.EqualValues(t, batchSize-1, ran.Load())
		s.own(func() { s.owner.pool.starting -= 1000 })
		close(release)
	})
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

// Half of the callbacks end their goroutines. The rest of their batches runs first, and the numbers
// of buckets and batches stay bounded.
func TestBatchesOfEndedWorkersStayBounded(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		const n = 20000
		var ran, buckets, batches atomic.Int64
		for i := range n {
			tw.AfterFunc(time.Second, func() {
				ran.Add(1)
				if i%100 == 0 {
					buckets.Store(max(buckets.Load(), int64(s.bucketsUsed())))
					batches.Store(max(batches.Load(), int64(s.batches())))
				}
				if i%2 == 0 {
					runtime.Goexit()
				}
			})
		}
		pass(time.Hour)
		assert.EqualValues(t, n, ran.Load())
		assert.Less(t, buckets.Load(), int64(300))
		assert.Less(t, batches.Load(), int64(1000), "at most one batch for each worker")
		assert.Zero(t, s.batches())
	})
}

// A worker that blocks in the last callback of a batch does not keep the batch.
func TestWorkersBlockedInTheLastCallbackKeepNoBatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		release := make(chan struct{})
		for range 200 {
			tw.AfterFunc(time.Second, func() {})
			tw.AfterFunc(time.Second, func() { tw.AfterFunc(0, func() { <-release }) })
			tw.AfterFunc(time.Second, func() { <-release })
			pass(time.Second)
		}
		assert.Zero(t, tw.Len())
		assert.Zero(t, s.batches())
		assert.Equal(t, 400, tw.Stats().Running)
		assert.Less(t, len(s.owner.store.all), 50)
		close(release)
	})
}

// A batch is reused once no worker reads it, so a worker that runs batch after batch allocates
// none.
func TestBatchesAreRecycled(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		seen := map[*batch]bool{}
		for range 20 * batchSize {
			tw.AfterFunc(time.Second, func() {
				s.own(func() {
					for _, b := range s.owner.pool.batches {
						seen[b] = true
						assert.Equal(t, 1, b.users)
					}
				})
			})
		}
		serveAlone(tw.engine, time.Second)
		assert.Len(t, seen, 1)
		s.own(func() {
			require.NotNil(t, s.owner.pool.spareBatch)
			assert.Empty(t, s.owner.pool.spareBatch.entries)
			assert.Zero(t, s.owner.pool.spareBatch.entries[:batchSize][5], "a free batch refers to no page")
		})
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

// The timers of an expired coarse bucket cascade while others are due.
func TestTimersCascadeWhileManyAreDue(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		s.own(func() { s.alarm.starting = true }) // no driver begins
		const n = 4 * batchSize
		ran := 0
		for range n {
			tw.AfterFunc(0, func() {
				ran++
				s.own(func() {
					if s.owner.due.ready > batchSize {
						assert.Equal(t, ran <= batchSize, s.owner.wheel.cascade.any(), ran)
					}
				})
			})
		}
		tw.AfterFunc(time.Second, func() {})
		serveAlone(tw.engine, time.Second)
		assert.Equal(t, n, ran)
	})
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
		s.wheelMu.Lock()
		w := s.newWorker()
		w.begin()
		func() {
			defer w.exit()
			w.serve()
		}()
		assert.True(t, ran)
		s.letDriversBegin()
	})
}

// A replaced worker ends if there are enough other workers. If it has done the work of a late
// driver, it serves the timers that it has made due, because the other workers do not know of them.
func TestReplacedWorkerServesTheTimersItHasMadeDue(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		ran := false
		tw.AfterFunc(time.Second, func() { ran = true })
		s.own(func() {
			s.skip(time.Second)
			s.alarm.starting = true // no driver begins
			s.procs = 0             // one worker is a crowd
		})
		s.wheelMu.Lock()
		w := s.newWorker()
		w.begin()
		func() {
			defer w.exit()
			w.replaced = true
			assert.True(t, w.advanceIfLate())
			w.serve()
		}()
		assert.True(t, ran)
		s.letDriversBegin()
	})
}

// In addition to a spare, workers are started for processors without one, at most one for each
// batch.
func TestWorkersAreStartedForIdleProcessors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ procs, serving, stuck, coming, due, size, want int }{
		{1, 1, 0, 0, 1000, 1, 0},
		{2, 1, 0, 0, 1000, 1, 1},
		{2, 2, 0, 0, 1000, 1, 0},
		{2, 1, 0, 1, 1000, 1, 0}, // it is about to begin
		{2, 500, 499, 0, 1000, 1, 1},
		{2, 500, 490, 0, 1000, 1, 0},
		{64, 1, 0, 0, 1000, 1, 63},
		{64, 1, 0, 0, 1000, 32, 31},
		{64, 1, 0, 0, 5, 1, 4}, // the spare has a call as well
		{64, 1, 0, 0, 33, 32, 1},
		{64, 1, 0, 0, 32, 32, 0},
		{64, 1, 0, 0, 1, 1, 0},
		{64, 1, 0, 0, 0, 1, 0},
	} {
		o := &owner{config: &config{perCall: 1, procs: c.procs}}
		o.pool = workerPool{serving: c.serving, stuck: c.stuck, starting: c.coming, size: c.size}
		o.due.ready = c.due
		assert.Equal(t, c.want, o.workersToStart(), "%+v", c)
	}
}

// If all timers of a batch are claimed, spares do not take it over, and it does not make later
// batches larger.
func TestSparesDoNotTakeOverAnExhaustedBatch(t *testing.T) {
	t.Parallel()
	batchBubble(t, Options{}, func(t *testing.T, tw *TimingWheel, s *shardOf[func()]) {
		s.own(func() { s.owner.pool.size = 2 })
		release := make(chan struct{})
		for range 1000 {
			tw.AfterFunc(time.Second, func() { <-release })
		}
		pass(time.Second)
		s.own(func() {
			assert.Equal(t, 1, s.owner.pool.size)
			assert.Less(t, s.owner.pool.filled, uint64(10), "batches")
			assert.Empty(t, s.owner.pool.batches)
		})
		assert.Zero(t, tw.Len())
		assert.Equal(t, 1000, tw.Stats().Running)
		close(release)
	})
}

// runBeside runs a replaced worker that returns from a callback while enough other workers are
// active. It returns the number of workers that have begun or are starting since.
func runBeside(e *engine[func()]) int {
	s := e.shards[0]
	s.wheelMu.Lock()
	s.advance()
	for s.owner.wheel.cascade.any() {
		s.owner.cascadeQuantum()
	}
	c := &s.owner.pool
	begun := c.begun
	w := s.newWorker()
	w.begin()
	w.replaced = true
	c.serving += s.procs
	defer func() {
		s.own(func() { c.serving -= s.procs })
	}()
	defer w.exit()
	w.serve()
	return int(c.begun-begun) + c.starting
}

// A worker that returns from a callback that blocked runs another callback without a spare if there
// are enough other workers. It does not count as active meanwhile.
func TestReturningWorkerRunsWithoutASpare(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		ran := 0
		for range 100 {
			tw.AfterFunc(time.Second, func() {
				ran++
				s.own(func() { assert.Equal(t, 1, s.owner.pool.stuck) })
			})
		}
		s.own(func() {
			s.skip(time.Second)
			s.owner.pool.size = 1
			s.alarm.starting = true // no driver begins
		})
		assert.Zero(t, runBeside(tw.engine), "workers that the returning worker has started")
		s.own(func() {
			assert.Zero(t, s.owner.pool.stuck)
			assert.Zero(t, s.owner.pool.serving)
		})
		assert.Equal(t, 100, ran)
		assert.Zero(t, tw.Len())
		s.letDriversBegin()
	})
}

// A spare that is not needed ends. Its worker starts another one for its next batch, so a callback
// that blocks there does not delay the others.
func TestWorkerWhoseSpareHasEndedStartsAnother(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		release := make(chan struct{})
		var ran atomic.Bool
		tw.AfterFunc(time.Second, func() { <-release })
		tw.AfterFunc(time.Second, func() { ran.Store(true) })
		w, spare := s.newWorker(), s.newWorker()
		s.own(func() {
			s.skip(time.Second)
			s.alarm.starting = true // no driver begins
			s.advance()
			w.begin()
			w.spareStarting, spare.parent = true, w
			c := &s.owner.pool
			c.size, c.starting, c.serving = 2, 1, s.procs
		})
		w.waiting.Store(true) // for the lock, after its callbacks
		spare.runSpare()
		w.waiting.Store(false)
		s.own(func() {
			assert.Zero(t, s.owner.pool.starting)
			s.owner.pool.serving = 0
		})
		go func() {
			s.wheelMu.Lock()
			defer w.exit()
			w.serve()
		}()
		synctest.Wait()
		assert.True(t, ran.Load())
		close(release)
		s.letDriversBegin()
	})
}

// A worker is marked as waiting after its callbacks only, and not while the next one runs.
// Otherwise its spare would end, and a callback that blocks would delay the others.
func TestWorkerThatRunsACallbackIsNotWaiting(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		w := s.newWorker()
		w.spareStarting = true // it starts none
		ran := 0
		for range 3 {
			tw.AfterFunc(time.Second, func() { ran++; assert.False(t, w.waiting.Load()) })
		}
		s.own(func() {
			s.skip(time.Second)
			s.alarm.starting, s.owner.pool.size = true, 1 // no driver begins
		})
		s.wheelMu.Lock()
		w.begin()
		func() {
			defer w.exit()
			w.serve()
		}()
		assert.Equal(t, 3, ran)
		s.letDriversBegin()
	})
}

// A returning worker ends if callbacks are quick, or if too many workers wait for the lock.
func TestReturningWorkerEndsIfItIsNotNeeded(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(s *shardOf[func()]){
		"quick callbacks": func(s *shardOf[func()]) { s.owner.pool.size = 2 },
		"many return":     func(s *shardOf[func()]) { s.claims.returning.Store(returningMax + 1) },
	} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			s := tw.engine.shards[0]
			for range 100 {
				tw.AfterFunc(time.Second, func() {})
			}
			s.own(func() {
				s.skip(time.Second)
				s.owner.pool.size = 1
				set(s)
				s.alarm.starting = true
			})
			runBeside(tw.engine)
			assert.Zero(t, tw.Stats().Fired, name)
			s.own(func() { s.startWorkers(1) }) // one of the others
			s.letDriversBegin()
			pass(time.Second)
			assert.EqualValues(t, 100, tw.Stats().Fired, name)
		})
	}
}

// A batch is open while one of its timers is pending: such a timer may get the word of its entry
// again.
func TestBatchIsOpenWhileATimerMayGetItsWordAgain(t *testing.T) {
	t.Parallel()
	page := new(arena.Page)
	w := page.Arm(0, 0, 7)
	b := &batch{entries: []entry{{page, w.With(arena.Placed), 0}}}
	for kind, open := range map[arena.Kind]bool{
		arena.Staged: true, arena.Placed: true,
		arena.Ending: false, arena.Ended: false, arena.Dead: false, arena.Spent: false,
	} {
		page.Store(0, w.With(kind).WithBits(9))
		assert.Equal(t, open, b.open(), kind)
	}
	page.Arm(0, 0, 7)
	assert.False(t, b.open(), "another timer uses the slot")
}

// A timer of a batch that is moved away and back within its tick gets the word of its entry again.
// So a batch whose timers are all claimed or in the inbox stays listed: its claims are counted, and
// the wheel's Stop revokes it.
func TestBatchStaysListedWhileATimerIsInTheInbox(t *testing.T) {
	t.Parallel()
	for k := range 4 {
		stop, shared := k&1 == 1, k&2 == 2
		bubble(t, Options{Tick: time.Second}, func(t *testing.T, tw *TimingWheel) {
			s := tw.engine.shards[0]
			first := tw.AfterFunc(time.Second, func() {})
			moved := tw.AfterFunc(time.Second, func() {})
			w, spare := s.newWorker(), s.newWorker()
			s.own(func() {
				s.skip(time.Second)
				s.alarm.starting, s.owner.pool.size = true, 2
				s.advance()
				w.begin()
				require.True(t, w.takeBatch())
			})
			entries := map[uint32]*entry{}
			for k := range w.batch.entries {
				entries[w.batch.entries[k].index] = &w.batch.entries[k]
			}
			_, _, ok := s.claim(entries[first.index], w.batch.id)
			require.True(t, ok)
			require.True(t, moved.Reschedule(2*time.Second))
			require.True(t, moved.Reschedule(0))
			require.Equal(t, arena.Staged, moved.word().Kind())
			s.own(func() {
				if shared { // another worker has tried all entries
					w.batch.users++
					spare.s, spare.batch = s, w.batch
					spare.finishBatch()
				} else {
					spare.takeOver(w)
				}
				require.Nil(t, spare.batch)
				s.drainAll()
			})
			e := entries[moved.index]
			require.Equal(t, e.word, moved.word())
			if stop {
				tw.Stop()
				require.False(t, e.page.Swap(e.index, e.word, e.word.With(arena.Spent)), "a claim that has read closed already")
				return
			}
			_, _, ok = s.claim(e, w.batch.id)
			require.True(t, ok)
			require.Zero(t, tw.Len())
			require.EqualValues(t, 2, tw.Stats().Fired)
			s.own(func() { w.finishBatch() })
			s.letDriversBegin()
		})
	}
}
