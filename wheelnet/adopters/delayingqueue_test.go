package adopters

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
)

var _ delayingInterface = (*DelayingQueue[string])(nil)

// The same random calls at the same times have the same results as with a queue of client-go, apart
// from TestDelayingQueueAddsWaitingItemOnce. No two items are due at the same time, because
// client-go does not define their order.
func TestDelayingQueueAgreesWithClientGo(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			ours, theirs := NewDelayingQueue[int](nil), workqueue.NewTypedDelayingQueue[int]()
			dues := make(map[time.Time]bool)
			var processing []int
			get := func() {
				item, shutdown := theirs.Get()
				got, ended := ours.Get()
				require.Equal(t, shutdown, ended)
				require.Equal(t, item, got)
				if !shutdown {
					processing = append(processing, item)
				}
			}
			step := func() {
				item := rng.IntN(20)
				switch rng.IntN(10) {
				case 0:
					ours.Add(item)
					theirs.Add(item)
				case 1, 2, 3, 4:
					d := below(rng, time.Second) - 10*time.Millisecond
					if _, waits := ours.waiting[item]; waits {
						d = max(d, 1)
					}
					for ; dues[time.Now().Add(d)]; d++ {
					}
					dues[time.Now().Add(d)] = true
					ours.AddAfter(item, d)
					theirs.AddAfter(item, d)
				case 5, 6:
					time.Sleep(below(rng, 200*time.Millisecond))
				case 7, 8:
					if theirs.Len() > 0 {
						get()
					}
				case 9:
					if len(processing) > 0 {
						i := rng.IntN(len(processing))
						ours.Done(processing[i])
						theirs.Done(processing[i])
						processing = slices.Delete(processing, i, i+1)
					}
				}
				synctest.Wait()
				require.Equal(t, theirs.Len(), ours.Len())
			}
			for range 300 {
				step()
			}
			ours.ShutDown()
			theirs.ShutDown()
			require.True(t, ours.ShuttingDown())
			for range 50 { // client-go keeps ready items and drops waiting items
				step()
			}
			for theirs.Len() > 0 {
				get()
			}
			get()
		})
	}
}

// An item that is added again while it waits keeps the earlier time, and is delivered once.
func TestDelayingQueueKeepsEarlierTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[string](nil)
		defer q.ShutDown()
		start := time.Now()
		q.AddAfter("moved", 3*time.Second)
		q.AddAfter("moved", time.Second)
		q.AddAfter("kept", 2*time.Second)
		q.AddAfter("kept", 4*time.Second)
		require.Equal(t, 2, q.Waiting())
		for i, want := range []string{"moved", "kept"} {
			item, shutdown := q.Get()
			require.False(t, shutdown)
			require.Equal(t, want, item)
			require.Equal(t, time.Duration(i+1)*time.Second, time.Since(start))
			q.Done(item)
		}
		time.Sleep(time.Hour)
		require.Zero(t, q.Len())
		require.Zero(t, q.Waiting())
	})
}

// An item that waits and is then added without a delay is added immediately, and not once more when
// its first delay is over.
func TestDelayingQueueAddsWaitingItemOnce(t *testing.T) {
	for _, d := range []time.Duration{1, 0, -1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			q := NewDelayingQueue[string](nil)
			defer q.ShutDown()
			q.AddAfter("item", 300*time.Millisecond)
			q.AddAfter("item", d)
			time.Sleep(max(d, 0))
			synctest.Wait()
			require.Equal(t, 1, q.Len())
			require.Zero(t, q.Waiting())
			item, _ := q.Get()
			q.Done(item)
			time.Sleep(time.Hour)
			require.Zero(t, q.Len())
		})
	}
}

// Random calls agree with a map of the times at which items are due.
func TestDelayingQueueRemoveAgreesWithModel(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			q := NewDelayingQueue[int](nil)
			defer q.ShutDown()
			model := make(map[int]time.Time)
			for range 300 {
				item := rng.IntN(20)
				due, waits := model[item]
				switch rng.IntN(4) {
				case 0, 1:
					at := time.Now().Add(below(rng, time.Second) - 10*time.Millisecond)
					if !waits || at.Before(due) {
						model[item] = at
					}
					q.AddAfter(item, time.Until(at))
				case 2:
					require.Equal(t, waits, q.Remove(item))
					require.False(t, q.Remove(item))
					delete(model, item)
				case 3:
					time.Sleep(below(rng, 200*time.Millisecond))
				}
				synctest.Wait()
				var want, got []int
				for item, due := range model {
					if !due.After(time.Now()) {
						want = append(want, item)
						delete(model, item)
					}
				}
				for q.Len() > 0 {
					item, _ := q.Get()
					q.Done(item)
					got = append(got, item)
				}
				require.ElementsMatch(t, want, got)
				require.Equal(t, len(model), q.Waiting())
			}
		})
	}
}

// If an item is removed at about the time at which it is due, either Remove returns true or the
// item is delivered, never both. If Remove returns false, the test adds the item again for later.
func TestDelayingQueueRemoveRacesWithDue(t *testing.T) {
	const n = 5_000
	q := NewDelayingQueue[int](nil)
	outcomes := make([]int, n) // deliveries and removals of each item
	var consumer, removers sync.WaitGroup
	var mu sync.Mutex
	count := func(item int) {
		mu.Lock()
		outcomes[item]++
		mu.Unlock()
	}
	consumer.Go(func() {
		for {
			item, shutdown := q.Get()
			if shutdown {
				return
			}
			count(item)
			q.Done(item)
		}
	})
	for r := range 4 {
		removers.Go(func() {
			for i := r; i < n; i += 4 {
				q.AddAfter(i, time.Duration(i%50)*time.Microsecond)
				time.Sleep(time.Duration(i%7) * 10 * time.Microsecond)
				if q.Remove(i) {
					count(i)
				} else {
					q.AddAfter(i, time.Hour)
				}
			}
		})
	}
	removers.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.Contains(outcomes, 0)
	}, never, time.Millisecond)
	require.Equal(t, q.Waiting(), q.delays.Len())
	for i := range n {
		q.Remove(i)
	}
	require.Zero(t, q.Waiting())
	q.ShutDown()
	consumer.Wait()
	require.Equal(t, slices.Repeat([]int{1}, n), outcomes)
}

// ShutDown drops the items that wait and keeps those that are ready.
func TestDelayingQueueDropsWaitingItemsAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[string](nil)
		q.AddAfter("waiting", time.Second)
		q.AddAfter("ready", 0)
		q.ShutDown()
		q.ShutDown() // again
		require.Zero(t, q.Waiting())
		q.AddAfter("late", time.Second)
		q.AddAfter("late", -1)
		require.False(t, q.Remove("waiting"))
		time.Sleep(time.Hour)
		item, shutdown := q.Get()
		require.False(t, shutdown)
		require.Equal(t, "ready", item)
		_, shutdown = q.Get()
		require.True(t, shutdown)
	})
}

func TestDelayingQueueDrainWaitsForDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[string](nil)
		q.AddAfter("waiting", time.Hour)
		q.AddAfter("item", time.Second)
		item, _ := q.Get()
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			q.Done(item)
		}()
		q.ShutDownWithDrain()
		require.Equal(t, time.Second, time.Since(start))
		require.Zero(t, q.Waiting())
	})
}

// A rate-limiting queue of client-go, as controllers have it, uses a DelayingQueue.
func TestDelayingQueueUnderRateLimitingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := NewDelayingQueue[string](nil)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: delays})
		defer q.ShutDown()
		for _, backoff := range []time.Duration{1, 2, 4, 8} {
			start := time.Now()
			q.AddRateLimited("item")
			item, _ := q.Get()
			require.Equal(t, "item", item)
			require.Equal(t, backoff*time.Second, time.Since(start))
			q.Done(item)
		}
		q.AddRateLimited("item")
		require.True(t, delays.Remove("item"))
		time.Sleep(time.Hour)
		require.Zero(t, q.Len())
	})
}

// below returns a random duration from 0 up to, but not including, d.
func below(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// delayingImpls runs a benchmark with each queue.
func delayingImpls(b *testing.B, body func(b *testing.B, newQueue func() delayingInterface)) {
	b.Run("impl=client-go", func(b *testing.B) {
		body(b, workqueue.NewTypedDelayingQueue[string])
	})
	b.Run("impl=delayqueue", func(b *testing.B) {
		body(b, func() delayingInterface { return NewDelayingQueue[string](nil) })
	})
}

type delayingInterface = workqueue.TypedDelayingInterface[string]

// delayedItems returns items with the names of Kubernetes objects, and a delay for each.
func delayedItems(n int) (items []string, delays []time.Duration) {
	items, delays = make([]string, n), make([]time.Duration, n)
	for i := range items {
		items[i] = "namespace/object-" + strconv.Itoa(i)
		delays[i] = time.Hour + rand.N(time.Hour)
	}
	return items, delays
}

// addAll adds items and waits until the queue has processed them. client-go processes them on a
// goroutine, in order.
func addAll(b *testing.B, q delayingInterface, items []string, delays []time.Duration) {
	for i, item := range items {
		q.AddAfter(item, delays[i])
	}
	q.AddAfter("last", time.Nanosecond)
	last, _ := q.Get()
	q.Done(last)
	if last != "last" {
		b.Fatal("an item is due early: ", last)
	}
}

// BenchmarkDelayingQueueAddAfter adds items of which 100,000 wait in the end.
func BenchmarkDelayingQueueAddAfter(b *testing.B) {
	const n = 100_000
	items, delays := delayedItems(n)
	delayingImpls(b, func(b *testing.B, newQueue func() delayingInterface) {
		b.ReportAllocs()
		var used time.Duration
		for left := b.N; left > 0; left -= n {
			b.StopTimer()
			q := newQueue()
			before := processorTime()
			b.StartTimer()
			addAll(b, q, items[:min(n, left)], delays)
			used += processorTime() - before
			b.StopTimer()
			q.ShutDown()
			b.StartTimer()
		}
		b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkDelayingQueueAddAfterAgain adds 100,000 items that wait already, each with a later time
// than before.
func BenchmarkDelayingQueueAddAfterAgain(b *testing.B) {
	const n = 100_000
	items, delays := delayedItems(n)
	again := make([]time.Duration, n)
	for i := range again {
		again[i] = 3 * time.Hour
	}
	delayingImpls(b, func(b *testing.B, newQueue func() delayingInterface) {
		q := newQueue()
		defer q.ShutDown()
		addAll(b, q, items, delays)
		b.ReportAllocs()
		before := processorTime()
		b.ResetTimer()
		for left := b.N; left > 0; left -= n {
			addAll(b, q, items[:min(n, left)], again)
		}
		b.StopTimer()
		b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkDelayingQueueRemove removes a random one of 100,000 waiting items and adds it again. A
// queue of client-go cannot remove items.
func BenchmarkDelayingQueueRemove(b *testing.B) {
	const n = 100_000
	items, delays := delayedItems(n)
	q := NewDelayingQueue[string](nil)
	defer q.ShutDown()
	addAll(b, q, items, delays)
	b.ReportAllocs()
	for b.Loop() {
		i := rand.IntN(n)
		if !q.Remove(items[i]) {
			b.Fatal("an item is not waiting: ", items[i])
		}
		q.AddAfter(items[i], delays[i])
	}
}
