package durable_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The answers to a begin are lost until the message is dropped. When an answer arrives, the message
// is released without a crash.
func TestLateAnswerToABeginCountsNoCrash(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		start := time.Now()
		f.set(func(name string) (error, error) {
			if (name == "Begin" || name == "Extend") && time.Since(start) < 4*time.Second {
				return nil, errDown
			}
			return nil, nil
		})
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(start, d); return nil },
			durable.ConsumerOptions{Visibility: 2 * time.Second})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		stop()
		require.Len(t, got.list(), 1)
		assert.Zero(t, got.list()[0].crashes)
	})
}

// A message that is due keeps its lease while it waits for a handler, however long that takes.
func TestDueMessageKeepsItsLeaseWhileItWaits(t *testing.T) {
	t.Parallel()
	var es events
	bubble(t, durable.Options{Partitions: 1, OnEvent: es.add}, func(t *testing.T, q *durable.Queue) {
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { time.Sleep(20 * time.Second); return nil },
			durable.ConsumerOptions{Concurrency: 1, Visibility: 2 * time.Second})
		enqueue(t, q, "a", 0)
		enqueue(t, q, "b", 5*time.Second) // later than Fallback: until then "a" may keep the consumer from claiming ahead
		time.Sleep(6 * time.Second)
		r, err := q.Get(t.Context(), "b")
		require.NoError(t, err)
		require.Equal(t, durable.StateLeased, r.State)
		time.Sleep(11 * time.Second)
		assert.Equal(t, []string{"Claimed"}, es.kinds("b"), "the message was not claimed again")
		stop()
	})
}

// lateBackend fails begin calls until a given time.
type lateBackend struct {
	driver.Backend
	until time.Time
}

func (b lateBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if batch.Op == driver.OpBegin && time.Now().Before(b.until) {
		return nil, durable.ErrUnavailable
	}
	return b.Backend.Apply(ctx, batch)
}

func TestMessageThatBeginsLateHasItsWholeLease(t *testing.T) {
	t.Parallel()
	late := func(b driver.Backend) driver.Backend { return lateBackend{b, time.Now().Add(10 * time.Second)} }
	bubbleOf(t, late, durable.Options{RetryFor: time.Minute, OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "a", time.Second)
		d, err := receiver(t, q, durable.ConsumerOptions{Visibility: 30 * time.Second}).Take(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		r, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Until(r.LeaseEnd), 29*time.Second)
		require.NoError(t, d.Ack(t.Context()))
	})
}

// A prefetched message has a short lease, and gets its full lease when it begins.
func TestLeaseIsReplacedWhenTheMessageBegins(t *testing.T) {
	t.Parallel()
	const visibility = 8 * time.Second
	calls := &watchedCalls{}
	watch(t, calls, 1, func(t *testing.T, q *durable.Queue) {
		var left []time.Duration
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			r, err := q.Get(ctx, d.ID)
			assert.NoError(t, err)
			left = append(left, time.Until(r.LeaseEnd))
			time.Sleep(3 * time.Second)
			return nil
		}, durable.ConsumerOptions{Concurrency: 1, Visibility: visibility})
		enqueue(t, q, "a", time.Second)
		enqueue(t, q, "b", time.Second+time.Millisecond)
		time.Sleep(time.Minute)
		stop()
		require.Len(t, left, 2)
		for _, l := range left {
			assert.GreaterOrEqual(t, l, visibility-2*time.Millisecond, "it begins at most 2 ms before it is due")
			assert.LessOrEqual(t, l, visibility)
		}
		assert.Equal(t, 2, calls.moved)
	})
}

// The store's clock is set forward, past the end of a lease, and then the message begins. Its lease
// is extended, and no other consumer gets the message.
func TestLeaseIsExtendedIfTheClockWasSetAheadBeforeABegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		st := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		q := open(t, st, durable.Options{Partitions: 1})
		var n atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { n.Add(1); time.Sleep(5 * time.Second); return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "a", 1300*time.Millisecond)
		time.Sleep(1290 * time.Millisecond)
		ahead.Store(int64(time.Hour))
		time.Sleep(time.Minute)
		stop()
		assert.EqualValues(t, 1, n.Load())
		q.Close()
		assert.NoError(t, st.Close())
		synctest.Wait()
	})
}

// A consumer loses its connection while it holds prefetched messages. Another consumer gets them
// after Membership, not Visibility. The message that had begun keeps its lease, and only this
// message counts a crash.
func TestMessagesClaimedAheadHaveAShortLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const visibility, membership = 5 * time.Minute, 5 * time.Second
		st := memstore.New(memstore.Options{})
		f := &faulty{Store: st}
		options := durable.ConsumerOptions{Concurrency: 1, Visibility: visibility, Membership: membership}
		dead := open(t, f, durable.Options{Partitions: 1, OnError: func(error) {}})
		stopDead := consume(t, dead, func(ctx context.Context, _ *durable.Delivery) error { <-ctx.Done(); return nil }, options)
		live := open(t, st, durable.Options{Partitions: 1})
		for i := range 100 {
			enqueue(t, live, fmt.Sprint(i), time.Second)
		}
		time.Sleep(20 * time.Second) // the leases are renewed in the meantime
		s, err := live.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 100, s.InFlight)
		f.set(func(string) (error, error) { return errDown, nil })
		cut := time.Now()
		var last time.Duration
		var n, crashes int
		stop := consume(t, live, func(_ context.Context, d *durable.Delivery) error {
			n++
			crashes += d.Crashes
			if d.Crashes == 0 {
				last = time.Since(cut)
			}
			return nil
		}, options)
		time.Sleep(visibility + time.Minute)
		stop()
		assert.Equal(t, 100, n)
		assert.Equal(t, 1, crashes)
		assert.LessOrEqual(t, last, membership*4/3+time.Second)
		stopDead()
		live.Close()
		dead.Close()
		assert.NoError(t, st.Close())
		synctest.Wait()
	})
}
