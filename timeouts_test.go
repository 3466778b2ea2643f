package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func startTimeouts[T any](tb testing.TB, opts Options, expire func([]T)) *Timeouts[T] {
	tb.Helper()
	w, err := NewTimeouts(withLimit(opts), expire)
	require.NoError(tb, err)
	tb.Cleanup(w.Stop)
	return w
}

// drained returns a function that reports whether nothing is pending and nothing runs.
func drained[T any](w *Timeouts[T]) func() bool {
	return func() bool { st := w.Stats(); return st.Pending+st.Running == 0 }
}

// Each payload arrives exactly once, intact and not early, in a batch of 1 to 256, with every
// executor. Large batches also follow batches of one.
func TestTimeoutsDeliverEachPayloadOnce(t *testing.T) {
	t.Parallel()
	type payload struct {
		id, check int
		due       time.Time
	}
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 6000
			var got [n]atomic.Int32
			var largest atomic.Int64
			w := startTimeouts(t, Options{Shards: 2, Executor: executor(t)}, func(batch []payload) {
				now := time.Now()
				largest.Store(max(largest.Load(), int64(len(batch))))
				assert.NotEmpty(t, batch)
				assert.LessOrEqual(t, len(batch), 256)
				for _, p := range batch {
					got[p.id].Add(1)
					if p.check != ^p.id || now.Before(p.due) {
						t.Errorf("payload %d: check %d, early by %v", p.id, p.check, p.due.Sub(now))
					}
				}
			})
			next := 0
			add := func(count int, at time.Time) {
				for range count {
					w.AddAt(at, payload{next, ^next, at})
					next++
				}
			}
			for _, count := range []int{1, 255, 256, 257, 1, 1000} {
				add(count, time.Now().Add(ms))
				await(t, "the payloads that were added", drained(w))
			}
			for next < n {
				add(1, time.Now().Add(rand.N(5*ms)))
			}
			await(t, "all payloads", drained(w))
			for id := range got {
				if got[id].Load() != 1 {
					t.Fatalf("payload %d arrived %d times", id, got[id].Load())
				}
			}
			assert.Greater(t, largest.Load(), int64(1), "no batch had more than one payload")
		})
	}
}

// Add, Stop, Reschedule, RemoveAll and the expiry race. Each payload expires, is stopped or is
// removed, exactly once.
func TestRaceTimeoutsExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			const adders = 16
			each := max(scaled(2000), 100)
			ended := make([]atomic.Int32, adders*each) // how often each payload has ended
			w := startTimeouts(t, opts, func(batch []int) {
				for _, id := range batch {
					ended[id].Add(1)
				}
			})
			var all sync.WaitGroup
			for g := range adders {
				all.Go(func() {
					timers := map[int]Timer{}
					for id := g * each; id < (g+1)*each; id++ {
						timers[id] = w.Add(rand.N(2*ms), id)
						for old, timer := range timers { // any timer
							if rand.IntN(2) == 0 {
								timer.Reschedule(rand.N(2 * ms))
							} else if delete(timers, old); timer.Stop() {
								ended[old].Add(1)
							}
							break
						}
						if g == 0 && id%(each/4) == 0 {
							for _, removed := range w.RemoveAll() {
								ended[removed].Add(1)
							}
						}
					}
				})
			}
			all.Wait()
			await(t, "all payloads", drained(w))
			verifyShards(t, w.engine)
			for id := range ended {
				if ended[id].Load() != 1 {
					t.Fatalf("payload %d has ended %d times", id, ended[id].Load())
				}
			}
		})
	}
}

// A panic or a Goexit loses at most the rest of its batch.
func TestTimeoutsPanicLosesAtMostItsBatch(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for how, leave := range map[string]func(){"panic": boom, "Goexit": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				const n = 2000
				var seen, reported, left atomic.Int64
				opts := Options{Shards: 1, Executor: executor(t), OnPanic: func(any, []byte) { reported.Add(1) }}
				w := startTimeouts(t, opts, func(batch []int) {
					for _, id := range batch {
						seen.Add(1)
						if id%500 == 499 {
							left.Add(int64(len(batch)))
							leave()
						}
					}
				})
				for id := range n {
					w.Add(ms, id)
				}
				await(t, "the claim of all payloads", drained(w))
				assert.GreaterOrEqual(t, seen.Load(), n-left.Load())
				assert.EqualValues(t, n, w.Stats().Fired)
				if how == "panic" {
					assert.LessOrEqual(t, reported.Load(), int64(4))
					assert.Positive(t, reported.Load())
				} else {
					assert.Zero(t, reported.Load())
				}
				before := seen.Load()
				w.Add(0, 1)
				await(t, "the next payload", func() bool { return seen.Load() == before+1 })
				verifyShards(t, w.engine)
			})
		}
	}
}

// A batch that blocks delays no other batch.
func TestTimeoutsBlockedBatchDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate, got := make(chan struct{}), make(chan int, 100)
			defer close(gate)
			w := startTimeouts(t, Options{Shards: 1, Executor: executor}, func(batch []int) {
				for _, id := range batch {
					got <- id
				}
				<-gate
			})
			for id := range 50 { // each payload has its own batch, because the previous batch has begun
				w.Add(ms, id)
				assert.Equal(t, id, receive(t, got, "a batch"))
			}
		})
	}
}

// Stop waits for the claims of a batch whose call has not begun.
func TestStopWaitsForTheClaimsOfABatch(t *testing.T) {
	t.Parallel()
	w := startTimeouts(t, Options{}, func([]int) {})
	w.engine.claiming.Add(1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Stop()
	}()
	for range 1000 {
		runtime.Gosched()
		require.False(t, isClosed(stopped))
	}
	w.engine.claiming.Add(-1)
	<-stopped
}
