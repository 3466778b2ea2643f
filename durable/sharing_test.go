package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// enqueueAll stores n messages with ids that begin with a prefix, all with the same delay.
func enqueueAll(t *testing.T, q *durable.Queue, prefix string, n int, delay time.Duration) {
	t.Helper()
	messages := make([]durable.Message, n)
	for i := range messages {
		messages[i] = durable.Message{ID: fmt.Sprint(prefix, i), Delay: delay}
	}
	_, err := q.EnqueueBatch(t.Context(), messages)
	require.NoError(t, err)
}

// waitUntil waits until done returns true, and returns how long that took.
func waitUntil(t *testing.T, done func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !done() {
		require.Less(t, time.Since(start), time.Hour)
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// sleeps returns a handler that takes some time and counts its messages.
func sleeps(d time.Duration, n *atomic.Int64) durable.Handler {
	return func(context.Context, *durable.Delivery) error {
		time.Sleep(d)
		n.Add(1)
		return nil
	}
}

// hangs returns a handler that returns when its context or the test ends.
func hangs(t *testing.T, running *atomic.Int64) durable.Handler {
	return func(ctx context.Context, d *durable.Delivery) error {
		running.Add(1)
		defer running.Add(-1)
		select {
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		return ctx.Err()
	}
}

// Two consumers with 64 handlers and with one share messages that are due before the consumers
// start, after they have started, or later, by their capacity.
func TestSharesFollowCapacity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before bool
		delay  time.Duration
	}{"before": {true, 0}, "after": {false, 0}, "later": {false, 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
				var n [2]atomic.Int64
				start := func() (stops []func()) {
					for i, concurrency := range []int{64, 1} {
						stops = append(stops, consume(t, q, sleeps(100*time.Millisecond, &n[i]), durable.ConsumerOptions{Concurrency: concurrency}))
					}
					return stops
				}
				if c.before {
					enqueueAll(t, q, "m", 1000, c.delay)
					defer stopAll(start())
				} else {
					defer stopAll(start())
					time.Sleep(4 * time.Second)
					enqueueAll(t, q, "m", 1000, c.delay)
				}
				took := waitUntil(t, func() bool { return n[0].Load()+n[1].Load() == 1000 })
				t.Logf("%v: %d and %d", took, n[0].Load(), n[1].Load())
				assert.LessOrEqual(t, took, c.delay+2500*time.Millisecond)
				assert.Positive(t, n[1].Load())
			})
		})
	}
}

func stopAll(stops []func()) {
	var all sync.WaitGroup
	for _, stop := range stops {
		all.Go(stop)
	}
	all.Wait()
}

// A consumer whose handlers hang delays only the messages that its handlers have.
func TestHungHandlersDelayOnlyTheirMessages(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 10 * time.Second} {
		bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
			var hung, n atomic.Int64
			options := durable.ConsumerOptions{Grace: time.Millisecond}
			defer consume(t, q, hangs(t, &hung), options)()
			defer consume(t, q, sleeps(time.Millisecond, &n), options)()
			time.Sleep(4 * time.Second)
			enqueueAll(t, q, "m", 1000, delay)
			took := waitUntil(t, func() bool { return n.Load()+hung.Load() == 1000 })
			t.Logf("%v: %d hang", took, hung.Load())
			assert.LessOrEqual(t, took, delay+5*time.Second)
			time.Sleep(time.Minute)
			assert.EqualValues(t, 64, hung.Load())
			for i := range 100 { // later messages: also messages of the hung consumer's partitions
				enqueue(t, q, fmt.Sprint("late", i), time.Duration(i)*100*time.Millisecond)
			}
			took = waitUntil(t, func() bool { return n.Load() == 1100-64 })
			assert.LessOrEqual(t, took, 15*time.Second)
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Zero(t, s.Crashed+s.Retried)
		})
	}
}

// lateness returns a handler that takes some time, and the greatest lateness of its messages.
func lateness(d time.Duration) (handler durable.Handler, n *atomic.Int64, most *atomic.Int64) {
	n, most = new(atomic.Int64), new(atomic.Int64)
	return func(_ context.Context, m *durable.Delivery) error {
		late := int64(time.Since(m.Due))
		for old := most.Load(); late > old && !most.CompareAndSwap(old, late); old = most.Load() {
		}
		n.Add(1)
		time.Sleep(d)
		return nil
	}, n, most
}

// The partitions of a hung consumer are not starved by one that is nearly busy with its own.
func TestBusyConsumerVisitsPartitionsOfHungOne(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue) {
		var hung atomic.Int64
		handler, n, most := lateness(20 * time.Millisecond)
		options := durable.ConsumerOptions{Concurrency: 4, Grace: time.Millisecond}
		defer consume(t, q, hangs(t, &hung), options)()
		time.Sleep(time.Second)
		defer consume(t, q, handler, options)()
		time.Sleep(10 * time.Second)
		enqueueAll(t, q, "hang", 8, 0)
		time.Sleep(time.Second)
		require.EqualValues(t, 4, hung.Load())
		delivered := n.Load()
		const sent = 60 * 180 // 90 % of what the handlers can do
		for i := range sent {
			enqueue(t, q, fmt.Sprint("m", i), time.Second)
			time.Sleep(time.Second / 180)
		}
		waitUntil(t, func() bool { return n.Load()-delivered == sent })
		t.Logf("at most %v late", time.Duration(most.Load()))
		assert.Less(t, time.Duration(most.Load()), 5*time.Second)
	})
}

// One of many free consumers comes soon for the messages that a hung one does not claim.
func TestFreeConsumersVisitPartitionsOfHungOne(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue) {
		var hung atomic.Int64
		defer consume(t, q, hangs(t, &hung), durable.ConsumerOptions{Concurrency: 500, Grace: time.Millisecond})()
		time.Sleep(time.Second)
		enqueueAll(t, q, "hang", 500+100, 0)
		time.Sleep(time.Second)
		handler, n, most := lateness(0)
		for range 20 {
			defer consume(t, q, handler, durable.ConsumerOptions{Concurrency: 1})()
		}
		waitUntil(t, func() bool { return n.Load() >= 100 })
		most.Store(0)
		for i := range 400 {
			enqueue(t, q, fmt.Sprint("m", i), time.Second+time.Duration(i)*100*time.Millisecond)
		}
		waitUntil(t, func() bool { return n.Load() == 500 })
		t.Logf("at most %v late", time.Duration(most.Load()))
		assert.Less(t, time.Duration(most.Load()), 4*time.Second)
	})
}

// A ninth consumer of a queue of eight partitions works, and so does every other one.
func TestConsumersWithoutPartitionsWork(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue) {
		var n [12]atomic.Int64
		var stops []func()
		for i := range n {
			stops = append(stops, consume(t, q, sleeps(100*time.Millisecond, &n[i]), durable.ConsumerOptions{Concurrency: 2}))
		}
		defer stopAll(stops)
		time.Sleep(4 * time.Second)
		enqueueAll(t, q, "m", 1200, 0)
		sum := func() (sum int64) {
			for i := range n {
				sum += n[i].Load()
			}
			return sum
		}
		took := waitUntil(t, func() bool { return sum() == 1200 })
		assert.LessOrEqual(t, took, 8*time.Second, "5 s with 24 busy handlers")
		for i := range n {
			assert.Greater(t, n[i].Load(), int64(20), "consumer %d", i)
		}
	})
}

// idsOf returns n ids of one partition of eight.
func idsOf(partition, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprint("id", i); contract.PartitionOf(id, 8) == partition {
			ids = append(ids, id)
		}
	}
	return ids
}

// Sixteen consumers with one handler handle sixteen messages together, wherever their ids hash.
func TestConsumersShareMessagesOfOnePartition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ids    []string
		before bool
		delay  time.Duration
	}{
		"one partition":         {ids: idsOf(3, 16)},
		"one partition, before": {ids: idsOf(3, 16), before: true},
		"one partition, later":  {ids: idsOf(3, 16), delay: 10 * time.Second},
		"two partitions":        {ids: append(idsOf(1, 10), idsOf(6, 6)...)},
		"all partitions":        {ids: append(append(idsOf(0, 4), idsOf(1, 6)...), idsOf(2, 6)...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue) {
				var n atomic.Int64
				put := func() {
					messages := make([]durable.Message, len(c.ids))
					for i, id := range c.ids {
						messages[i] = durable.Message{ID: id, Delay: c.delay}
					}
					_, err := q.EnqueueBatch(t.Context(), messages)
					require.NoError(t, err)
				}
				if c.before {
					put()
				}
				var stops []func()
				for range 16 {
					stops = append(stops, consume(t, q, sleeps(2*time.Second, &n), durable.ConsumerOptions{Concurrency: 1}))
				}
				defer stopAll(stops)
				if !c.before {
					time.Sleep(time.Minute)
					put()
				}
				took := waitUntil(t, func() bool { return n.Load() == 16 })
				t.Log(took)
				assert.LessOrEqual(t, took, c.delay+5*time.Second)
			})
		})
	}
}

// A message that takes an hour delays no message beside it.
func TestLongMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 10 * time.Second} {
		bubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue) {
			var short, long atomic.Int64
			var stops []func()
			for range 2 {
				stops = append(stops, consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					if d.ID == "long" {
						time.Sleep(time.Hour)
						long.Add(1)
						return nil
					}
					time.Sleep(10 * time.Millisecond)
					short.Add(1)
					return nil
				}, durable.ConsumerOptions{Concurrency: 1, Grace: 2 * time.Hour, SlowHandler: 2 * time.Hour}))
			}
			defer stopAll(stops)
			time.Sleep(5 * time.Second)
			enqueue(t, q, "long", delay)
			enqueueAll(t, q, "short", 15, delay)
			took := waitUntil(t, func() bool { return short.Load() == 15 })
			t.Log(took)
			assert.LessOrEqual(t, took, delay+5*time.Second)
			assert.Zero(t, long.Load())
		})
	}
}

// A consumer with one handler has more messages than it can handle, and others that are due soon.
// It claims the latter when they are due, and does not look for them all the time.
func TestBusyConsumerDoesNotClaimAllTheTime(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(call string) (before, after error) {
			if call == "Claim" && f.count(call) > 5_000 {
				time.Sleep(time.Second) // a claimer that never sleeps would stop the clock of the bubble
			}
			return nil, nil
		})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { time.Sleep(3 * time.Millisecond); return nil },
			durable.ConsumerOptions{Concurrency: 1})
		for burst := range 6 {
			for i := range 200 {
				enqueue(t, q, fmt.Sprint(burst, "-", i), 2*time.Second)
			}
			for range 300 {
				_, err := q.Enqueue(t.Context(), durable.Message{Delay: 2 * time.Second})
				require.NoError(t, err)
				time.Sleep(time.Second / 30)
			}
		}
		stop()
		assert.Less(t, f.count("Claim"), int64(5_000), "in a minute")
	})
}

// A tool that takes one message owns no partition, and delays no message of other consumers.
func TestToolHasNoShare(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		r := receiver(t, q, durable.ConsumerOptions{Tool: true})
		enqueue(t, q, "first", 0)
		require.NoError(t, take(t, r).Ack(t.Context()), "without other consumers a tool takes any message")
		time.Sleep(time.Second) // for the first heartbeat
		consumers, err := q.Consumers(t.Context())
		require.NoError(t, err)
		require.Len(t, consumers, 1)
		assert.Len(t, consumers[0].Partitions, 8)

		var n atomic.Int64
		defer consume(t, q, sleeps(0, &n), durable.ConsumerOptions{})()
		time.Sleep(4 * time.Second)
		consumers, err = q.Consumers(t.Context())
		require.NoError(t, err)
		shares := make(map[int]bool)
		for _, c := range consumers {
			shares[len(c.Partitions)] = true
		}
		assert.Equal(t, map[int]bool{0: true, 8: true}, shares)
		start := time.Now()
		for i := range 100 {
			enqueue(t, q, fmt.Sprint("m", i), time.Second)
		}
		waitUntil(t, func() bool { return n.Load() == 100 })
		assert.Less(t, time.Since(start), 1050*time.Millisecond)
	})
}

// Handlers are quick, so messages begin before handlers are free, and then all handlers hang. A
// moment later no more messages are firing than handlers have. The others can be cancelled, and
// count nothing.
func TestHungHandlersHoldNoBegunMessages(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		var n, hung atomic.Int64
		hang := hangs(t, &hung)
		const quick, all = 40_000, 50_000
		enqueueAll(t, q, "m", all, 0)
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			if n.Add(1) > quick {
				return hang(ctx, d)
			}
			time.Sleep(100 * time.Microsecond)
			return nil
		}, durable.ConsumerOptions{Grace: time.Millisecond})
		waitUntil(t, func() bool { return hung.Load() == 64 })
		time.Sleep(time.Second)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, s.InFlight, int64(64))
		firing, cancelled := 0, 0
		for i := range all {
			switch r, err := q.Cancel(t.Context(), fmt.Sprint("m", i)); {
			case err != nil:
				t.Fatal(err)
			case r == durable.ResultFiring:
				firing++
			case r == durable.ResultCancelled:
				cancelled++
			}
		}
		assert.Equal(t, 64, firing)
		assert.Equal(t, all-quick-64, cancelled)
		time.Sleep(time.Minute)
		stop()
		s, err = q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Crashed+s.Retried)
	})
}

// countingBackend counts claims.
type countingBackend struct {
	driver.Backend
	claims *atomic.Int64
}

func (b countingBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	b.claims.Add(1)
	return b.Backend.Claim(ctx, c)
}

// The consumers of an idle queue together make at most two claims of each partition per second.
func TestIdleConsumersVisitRarely(t *testing.T) {
	t.Parallel()
	for _, consumers := range []int{1, 2, 5, 20} {
		var claims atomic.Int64
		wrap := func(b driver.Backend) driver.Backend { return countingBackend{b, &claims} }
		bubbleOf(t, wrap, durable.Options{Partitions: 4}, func(t *testing.T, q *durable.Queue) {
			var stops []func()
			var n atomic.Int64
			for range consumers {
				stops = append(stops, consume(t, q, sleeps(0, &n), durable.ConsumerOptions{}))
			}
			defer stopAll(stops)
			time.Sleep(time.Minute)
			claims.Store(0)
			time.Sleep(100 * time.Second)
			rate := float64(claims.Load()) / 4 / 100
			t.Logf("%d consumers: %.2f claims per second and partition", consumers, rate)
			assert.LessOrEqual(t, rate, 2.2)
		})
	}
}

// A released message does not travel between consumers that are all busy.
func TestBusyConsumersKeepTheirMessages(t *testing.T) {
	t.Parallel()
	var releases atomic.Int64
	wrap := func(b driver.Backend) driver.Backend { return releaseBackend{b, &releases} }
	bubbleOf(t, wrap, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		var n atomic.Int64
		var stops []func()
		for range 4 {
			stops = append(stops, consume(t, q, sleeps(100*time.Millisecond, &n), durable.ConsumerOptions{Concurrency: 4}))
		}
		defer stopAll(stops)
		time.Sleep(5 * time.Second)
		for i := range 2000 { // 200 per second; the handlers can take 160
			enqueue(t, q, fmt.Sprint(i), 5*time.Second+time.Duration(i)*5*time.Millisecond)
		}
		waitUntil(t, func() bool { return n.Load() == 2000 })
		t.Log(releases.Load(), "releases")
		assert.LessOrEqual(t, releases.Load(), int64(1000))
	})
}

type releaseBackend struct {
	driver.Backend
	releases *atomic.Int64
}

func (b releaseBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if batch.Op == driver.OpRelease {
		b.releases.Add(int64(len(batch.Changes)))
	}
	return b.Backend.Apply(ctx, batch)
}

// Consumers join, leave, hang and lose their connections at random. As long as one consumer has
// free handlers, each message is delivered within seconds, or a lease and seconds after a crash.
func TestRandomConsumersStarveNoMessage(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testscale.Size(50)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 29))
			store := memstore.New(memstore.Options{})
			q := open(t, store, durable.Options{Partitions: 1 + random.IntN(12)})
			start := time.Now()
			var got deliveries
			var ends sync.WaitGroup
			handler := func(slow func() time.Duration) durable.Handler {
				return func(ctx context.Context, d *durable.Delivery) error {
					got.add(start, d)
					select {
					case <-time.After(slow()):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
			options := durable.ConsumerOptions{Visibility: 4 * time.Second, Membership: time.Second, Grace: time.Millisecond}
			steady := consume(t, q, handler(func() time.Duration { return time.Millisecond }), options)
			for i := range 20 { // others, for some time each
				f := &faulty{Store: store}
				other := open(t, f, durable.Options{OnError: func(error) {}})
				o := options
				o.Concurrency = 1 << random.IntN(8)
				long := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Hour}[i%4]
				joins, stays, cut := time.Duration(random.IntN(60))*time.Second, time.Duration(random.IntN(20))*time.Second, random.IntN(4) == 0
				ends.Go(func() {
					time.Sleep(joins)
					stop := consume(t, other, handler(func() time.Duration { return long }), o)
					time.Sleep(stays)
					if cut {
						f.set(down)
					}
					stop()
					other.Close()
				})
			}
			const messages = 3000
			for i := range messages {
				enqueue(t, q, fmt.Sprint(i), time.Duration(random.IntN(3))*time.Duration(random.IntN(4000))*time.Millisecond)
				time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
			}
			ends.Wait()
			time.Sleep(time.Minute)
			steady()
			first := make(map[string]time.Duration)
			for _, d := range got.list() {
				if _, again := first[d.id]; !again {
					first[d.id] = d.at - d.due
					assert.Less(t, d.at-d.due, 10*time.Second, "seed %d, message %s", seed, d.id)
					assert.GreaterOrEqual(t, d.at, d.due)
				}
			}
			assert.Len(t, first, messages)
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Zero(t, s.Scheduled+s.InFlight+s.Dead, "seed %d", seed)
			q.Close()
			require.NoError(t, store.Close())
			synctest.Wait()
		})
	}
}
