package timingwheel

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alone runs a test on a wheel of one shard whose only worker takes a whole lot: the spare that would recall it
// never begins. So what a callback sees of the others of its lot is certain.
func alone(t *testing.T, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		tw.engine.shards[0].spares = 1
		test(t, tw)
		tw.Stop()
		tw.engine.shards[0].mu.Lock()
		tw.engine.shards[0].spares = 0
		tw.engine.shards[0].mu.Unlock()
	})
}

// lotBubble runs a test on a wheel of one shard whose first worker takes a whole lot.
func lotBubble(t *testing.T, opts Options, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Shards = 1
		tw, err := New(opts)
		require.NoError(t, err)
		defer tw.Stop()
		tw.engine.shards[0].lotSize = chunkSize
		test(t, tw)
	})
}

// heldInLots is the number of timers in lots, claimed ones included whose claim is not in the books yet.
func heldInLots(tw *TimingWheel) int {
	s := tw.engine.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.lots {
		n += l.b.live
	}
	return n
}

// The timers of a lot are pending until each is claimed: they are counted, and can be stopped and reset by a
// callback of the same lot. A claim is in the books as soon as anybody asks.
func TestTimersOfALotArePending(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		const n = chunkSize
		var timers [n]Timer
		var ran [n]atomic.Int32
		start := time.Now()
		for i := range n {
			timers[i] = tw.AfterFunc(time.Second, func() {
				ran[i].Add(1)
				switch i { // each of these brings the books up to date, so each has a claim to itself
				case 0:
					assert.EqualValues(t, 1, tw.Stats().Fired)
				case 1:
					_, pending := timers[1].Deadline()
					assert.False(t, pending)
				case 2:
					far := tw.AfterFunc(time.Hour, func() {})
					next, some := tw.Next()
					assert.True(t, some)
					assert.Equal(t, start.Add(time.Second), next)
					assert.True(t, far.Stop())
				}
				if i != 3 {
					return
				}
				assert.Equal(t, n-3, heldInLots(tw), "one lot, and a claim that is not in the books")
				assert.Equal(t, n-4, tw.Len())
				st := tw.Stats()
				assert.EqualValues(t, 4, st.Fired)
				assert.Equal(t, 1, st.Running)
				assert.Equal(t, 1, st.Buckets)
				verifyShards(t, tw.engine)
				for _, claimed := range timers[:4] {
					_, pending := claimed.Deadline()
					assert.False(t, pending)
					assert.False(t, claimed.Stop())
					assert.False(t, claimed.Reschedule(time.Hour))
				}
				at, pending := timers[5].Deadline()
				assert.True(t, pending)
				assert.Equal(t, start.Add(time.Second), at)
				assert.True(t, timers[5].Stop())
				assert.False(t, timers[5].Stop())
				assert.True(t, timers[6].Reschedule(time.Minute))
				assert.True(t, timers[7].Reschedule(0))
				assert.Equal(t, n-5, tw.Len())
				verifyShards(t, tw.engine)
			})
		}
		tw.Len() // with its lock: the callbacks see all handles
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 1, tw.Len())
		assert.Zero(t, heldInLots(tw))
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		assert.Zero(t, ran[6].Load(), "early")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for i := range ran {
			assert.EqualValues(t, map[bool]int{true: 0, false: 1}[i == 5], ran[i].Load(), i)
		}
		verifyShards(t, tw.engine)
	})
}

// A Stop in the very moment of the claim: without the books' being brought up to date it would find the timer
// in the lot.
func TestStopOfATimerThatWasClaimedFromALot(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
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
		tw.Len() // with its lock: the callbacks see all handles
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, stopped)
		assert.EqualValues(t, len(timers), tw.Stats().Fired)
	})
}

// In the last callback of a lot nothing is pending any more, although the books do not say so yet.
func TestNextInTheLastCallbackOfALot(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		ran := 0
		for range 4 {
			tw.AfterFunc(time.Second, func() {
				ran++
				_, some := tw.Next()
				assert.Equal(t, ran < 4, some)
			})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, 4, ran)
	})
}

// A callback that ends its goroutine, or panics and is reported, costs its lot nothing else.
func TestGoexitAndPanicInALot(t *testing.T) {
	for name, leave := range map[string]func(){"panic": boom, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var reported atomic.Int32
			lotBubble(t, Options{OnPanic: func(any, []byte) { reported.Add(1) }}, func(t *testing.T, tw *TimingWheel) {
				var ran atomic.Int32
				for i := range 3 * chunkSize {
					tw.AfterFunc(time.Second, func() {
						if ran.Add(1); i%5 == 2 {
							leave()
						}
					})
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.EqualValues(t, 3*chunkSize, ran.Load())
				assert.Zero(t, tw.Len())
				assert.Zero(t, tw.Stats().Running)
				verifyShards(t, tw.engine)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
			assert.EqualValues(t, map[string]int{"panic": 19}[name], reported.Load())
		})
	}
}

// Once Stop has returned nothing of the lot is claimed, and Shutdown waits for the callback that runs.
func TestStopOfTheWheelInALot(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		ran := 0
		timers := make([]Timer, chunkSize)
		release := make(chan struct{})
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Second, func() {
				if ran++; i == 3 {
					tw.Stop()
					<-release
				}
			})
		}
		tw.Len() // with its lock: the callbacks see all handles
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, 4, ran)
		assert.False(t, timers[10].Stop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		assert.EqualValues(t, 4, tw.Stats().Fired)
		close(release)
		require.NoError(t, tw.Shutdown(t.Context()))
		assert.Equal(t, 4, ran)
	})
}

// A Flush within a lot takes the rest of it along, once.
func TestFlushInALot(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		var ran [chunkSize]int
		far := 0
		for i := range ran {
			tw.AfterFunc(time.Second, func() {
				if ran[i]++; i == 9 {
					assert.Equal(t, chunkSize-10+1, tw.Flush())
				}
			})
		}
		tw.AfterFunc(oneYear, func() { far++ })
		time.Sleep(time.Second)
		synctest.Wait()
		for _, times := range ran {
			assert.Equal(t, 1, times)
		}
		assert.Equal(t, 1, far)
		verifyShards(t, tw.engine)
	})
}

// Timers of a Flush run from lots whatever their deadlines say. A timer that is rescheduled
// meanwhile does not.
func TestRescheduleOfAFlushedTimerInALot(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		var timers [chunkSize]Timer
		var ran [chunkSize]time.Duration
		start := time.Now()
		for i := range timers {
			timers[i] = tw.AfterFunc(oneYear, func() {
				ran[i] = time.Since(start)
				if i == 0 {
					assert.True(t, timers[20].Reschedule(2*oneYear))
					assert.True(t, timers[21].Reschedule(time.Hour))
					tw.engine.shards[0].mu.Lock()
					tw.engine.shards[0].recallLots() // as a spare would
					tw.engine.shards[0].mu.Unlock()
					assert.True(t, timers[22].Reschedule(2*oneYear))
					assert.True(t, timers[23].Reschedule(time.Hour))
				}
			})
		}
		tw.Len() // with its lock: the callbacks see all handles
		tw.AfterFunc(time.Minute, func() { assert.Equal(t, chunkSize, tw.Flush()) })
		time.Sleep(3 * oneYear)
		synctest.Wait()
		for i, d := range ran {
			want := time.Minute
			switch i {
			case 20, 22:
				want += 2 * oneYear
			case 21, 23:
				want += time.Hour
			}
			assert.Equal(t, want, d, i)
		}
	})
}

// Plans keep their slots, so they are claimed under the lock, one by one, also in the midst of a lot.
func TestPlansAmongTimersOfALot(t *testing.T) {
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		var ran, runs atomic.Int32
		for i := range 100 {
			if i%10 == 3 {
				tw.ScheduleFunc(Every(time.Second), func() { runs.Add(1) })
			}
			tw.AfterFunc(time.Second, func() { ran.Add(1) })
		}
		time.Sleep(5*time.Second + 1)
		synctest.Wait()
		assert.EqualValues(t, 100, ran.Load())
		assert.EqualValues(t, 50, runs.Load())
		assert.Equal(t, 10, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// A postponed timer that lies in a due bucket goes back to the wheel when a lot is filled.
func TestPostponedTimerIsNotInALot(t *testing.T) {
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		var ran [2 * chunkSize]time.Duration
		start := time.Now()
		for i := range ran {
			timer := tw.AfterFunc(time.Second, func() { ran[i] = time.Since(start) })
			if i%3 == 0 {
				timer.Reschedule(time.Minute)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, d := range ran {
			assert.Equal(t, map[bool]time.Duration{true: time.Minute, false: time.Second}[i%3 == 0], d)
		}
	})
}

// What a worker writes for each callback is on a cache line that it does not share.
func TestLotLayout(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 64, unsafe.Offsetof(lot{}.b))
}

// The lateness of a lot is that of any of its claims, not of the first, which is the least late.
func TestLatenessOfALot(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		for range 20 * chunkSize {
			tw.AfterFunc(time.Second, func() { time.Sleep(time.Millisecond) })
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		h := tw.Stats().Lateness
		assert.EqualValues(t, 20, h.Count(), "one of each lot")
		assert.GreaterOrEqual(t, h.Max, 19*chunkSize*time.Millisecond)
		assert.Greater(t, h.Sum, 190*chunkSize*time.Millisecond, "the first of each lot")
	})
}
