package durable_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// watchedBackend counts the messages that begin with a claim and by a begin call. Each call takes
// some time.
type watchedBackend struct {
	driver.Backend
	*watchedCalls
}

type watchedCalls struct {
	trip time.Duration                    // duration of each call
	slow func(driver.Claim) time.Duration // additional duration of some claims

	mu         sync.Mutex
	claimed    int // messages that began with the claim
	began      int // messages that began by a begin call
	firing     int // messages that have begun and are not acknowledged
	mostFiring int
	moved      int // leases that a begin replaced
	released   int
}

func (b watchedBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	claimed, err := b.Backend.Claim(ctx, c)
	b.mu.Lock()
	for _, r := range claimed.Records {
		if r.State == durable.StateFiring {
			b.claimed++
			b.firing++
		}
	}
	b.mostFiring = max(b.mostFiring, b.firing)
	b.mu.Unlock()
	time.Sleep(b.trip)
	if b.slow != nil {
		time.Sleep(b.slow(c))
	}
	return claimed, err
}

func (b watchedBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	time.Sleep(b.trip / 2)
	outcomes, err := b.Backend.Apply(ctx, batch)
	b.mu.Lock()
	for _, o := range outcomes {
		switch {
		case o.Status != driver.StatusDone:
		case batch.Op == driver.OpBegin:
			b.began++
			b.firing++
			if o.Lease > 0 {
				b.moved++
			}
		case batch.Op == driver.OpAck:
			b.firing--
		case batch.Op == driver.OpRelease:
			b.released++
		}
	}
	b.mostFiring = max(b.mostFiring, b.firing)
	b.mu.Unlock()
	time.Sleep(b.trip / 2)
	return outcomes, err
}

// watch runs a test with a watchedBackend.
func watch(t *testing.T, calls *watchedCalls, partitions int, body func(t *testing.T, q *durable.Queue)) {
	t.Helper()
	bubbleOf(t, func(b driver.Backend) driver.Backend { return watchedBackend{b, calls} }, durable.Options{Partitions: partitions}, body)
}

// A message without a delay begins with its claim if a handler waits for it.
func TestOverdueMessageBeginsWithItsClaim(t *testing.T) {
	t.Parallel()
	calls := &watchedCalls{trip: 2 * time.Millisecond}
	watch(t, calls, 2, func(t *testing.T, q *durable.Queue) {
		got := make(chan time.Time, 1)
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { got <- time.Now(); return nil }, durable.ConsumerOptions{})
		time.Sleep(1300 * time.Millisecond) // between two claims of Fallback
		for i := range 10 {
			start := time.Now()
			enqueue(t, q, fmt.Sprint(i), 0)
			assert.LessOrEqual(t, (<-got).Sub(start), 2*calls.trip, "one call after the enqueue")
			time.Sleep(700 * time.Millisecond)
		}
		enqueue(t, q, "later", time.Second)
		<-got
		stop()
		assert.Equal(t, 10, calls.claimed)
		assert.Equal(t, 1, calls.began, "the message was not due when it was claimed")
	})
}

// Overdue messages are delivered once, and in order of due time within a partition. If
// handlers are fast, many messages begin with their claims: all from when the consumer has measured
// how fast they are.
func TestOverdueMessagesAreDeliveredOnceInOrder(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 64} {
		calls := &watchedCalls{trip: time.Millisecond}
		watch(t, calls, 3, func(t *testing.T, q *durable.Queue) {
			messages := testscale.Size(30_000)
			var batch []durable.Message
			for i := range messages {
				batch = append(batch, durable.Message{ID: fmt.Sprint(i), Delay: time.Duration(i*7919%messages) * time.Millisecond})
			}
			_, err := q.EnqueueBatch(t.Context(), batch)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			var mu sync.Mutex
			last, n := make([]time.Time, 3), 0
			stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
				time.Sleep(time.Duration(concurrency) * 10 * time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				p := contract.PartitionOf(d.ID, 3)
				if concurrency == 1 {
					assert.False(t, d.Due.Before(last[p]), "message %s", d.ID)
				}
				last[p] = d.Due
				n++
				return nil
			}, durable.ConsumerOptions{Concurrency: concurrency, Prefetch: messages / 3})
			time.Sleep(time.Minute)
			stop()
			assert.Equal(t, messages, n)
			assert.Equal(t, messages, calls.claimed+calls.began, "each begins once")
			t.Logf("concurrency %d: %d of %d began with their claims", concurrency, calls.claimed, messages)
			assert.Greater(t, calls.claimed, messages/10) // usually half or more
		})
	}
}

// If handlers are slow, no more messages begin than the handlers can take.
func TestSlowHandlersAreGrantedNoMoreThanTheyTake(t *testing.T) {
	t.Parallel()
	calls := &watchedCalls{trip: time.Millisecond}
	watch(t, calls, 2, func(t *testing.T, q *durable.Queue) {
		for i := range 200 {
			enqueue(t, q, fmt.Sprint(i), 0)
		}
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { time.Sleep(time.Second); return nil }, durable.ConsumerOptions{Concurrency: 5})
		time.Sleep(time.Minute)
		stop()
		assert.Equal(t, 200, calls.claimed+calls.began)
		assert.LessOrEqual(t, calls.mostFiring, 10, "messages in handlers, plus as many that are being acknowledged")
	})
}

// A slow claim holds the takers of its grant only briefly.
func TestSlowClaimReturnsItsGrant(t *testing.T) {
	t.Parallel()
	calls := &watchedCalls{slow: func(c driver.Claim) time.Duration {
		if c.Partition == 1 && c.Begin > 0 {
			return 20 * time.Second
		}
		return 0
	}}
	watch(t, calls, 2, func(t *testing.T, q *durable.Queue) {
		var mu sync.Mutex
		var n [2]int
		var late time.Duration
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			p := contract.PartitionOf(d.ID, 2)
			if n[p]++; p == 0 {
				late = max(late, time.Since(d.Due))
			}
			return nil
		}, durable.ConsumerOptions{Concurrency: 1, Visibility: time.Minute})
		time.Sleep(time.Second)
		for i := range 100 {
			enqueue(t, q, fmt.Sprint(i), 0)
			time.Sleep(50 * time.Millisecond)
		}
		mu.Lock()
		sum := n[0]
		mu.Unlock()
		time.Sleep(time.Minute)
		stop()
		assert.Equal(t, 100, n[0]+n[1])
		assert.Positive(t, n[1])
		assert.Equal(t, n[0], sum, "the messages of the other partition were not delayed")
		assert.LessOrEqual(t, late, 200*time.Millisecond)
	})
}

// Messages that begin with a claim while the consumer ends are released without a crash.
func TestEndingConsumerReleasesMessagesThatBeganWithAClaim(t *testing.T) {
	t.Parallel()
	calls := &watchedCalls{slow: func(c driver.Claim) time.Duration {
		if c.Begin > 0 {
			return 300 * time.Millisecond
		}
		return 0
	}}
	watch(t, calls, 1, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(d.Due, d); return nil }, durable.ConsumerOptions{})
		time.Sleep(1800 * time.Millisecond) // between the claims of Fallback, at 1300 and 2300 ms
		for i := range 5 {
			enqueue(t, q, fmt.Sprint(i), 0)
		}
		time.Sleep(100 * time.Millisecond)
		stop()
		require.Positive(t, calls.claimed)
		require.Empty(t, got.ids())
		for i := range 5 {
			r, err := q.Get(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
			assert.Equal(t, durable.StateScheduled, r.State)
			assert.Zero(t, r.Crashes)
		}
		defer consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(d.Due, d); return nil }, durable.ConsumerOptions{})()
		time.Sleep(time.Second)
		assert.ElementsMatch(t, []string{"0", "1", "2", "3", "4"}, got.ids())
	})
}

// A message that begins with its claim does not overtake messages that were claimed earlier and are
// about to begin.
func TestClaimDoesNotOvertakeMessagesThatBegin(t *testing.T) {
	t.Parallel()
	slow := func(b driver.Backend) driver.Backend { return slowBeginBackend{b, 0, 50 * time.Millisecond} }
	bubbleOf(t, slow, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(d.Due, d); return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "first", time.Second)
		time.Sleep(1010 * time.Millisecond)
		enqueue(t, q, "second", 0)
		time.Sleep(time.Second)
		stop()
		assert.Equal(t, []string{"first", "second"}, got.ids())
	})
}

// A claim that begins messages prefetches no more than Prefetch permits.
func TestGrantDoesNotExceedPrefetch(t *testing.T) {
	t.Parallel()
	watch(t, &watchedCalls{}, 1, func(t *testing.T, q *durable.Queue) {
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{Prefetch: 2})
		time.Sleep(1300 * time.Millisecond)
		batch := []durable.Message{{ID: "now"}}
		for i := range 100 {
			batch = append(batch, durable.Message{ID: fmt.Sprint(i), Delay: 400 * time.Millisecond})
		}
		_, err := q.EnqueueBatch(t.Context(), batch)
		require.NoError(t, err)
		time.Sleep(200 * time.Millisecond)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, stats.InFlight, int64(2))
		time.Sleep(time.Minute)
		stop()
	})
}
