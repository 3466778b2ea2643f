package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

func TestFailedMessageIsRetriedUntilItIsDead(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{MaxAttempts: 3}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		handler := func(_ context.Context, d *durable.Delivery) error {
			n := got.add(start, d)
			if n == 2 {
				panic("the second time")
			}
			return fmt.Errorf("failure %d", n)
		}
		stop := consume(t, q, handler, durable.ConsumerOptions{Backoff: func(d *durable.Delivery, _ error) time.Duration { return time.Duration(d.Attempts+1) * time.Minute }})
		enqueue(t, q, "m", time.Second)
		time.Sleep(5 * time.Minute)
		require.Len(t, got.list(), 3)
		for i, want := range []time.Duration{time.Second, time.Minute + time.Second, 3*time.Minute + time.Second} {
			assert.InDelta(t, want.Seconds(), got.list()[i].at.Seconds(), 0.05)
			assert.Equal(t, i, got.list()[i].attempts)
		}
		assert.Less(t, got.list()[0].token, got.list()[1].token)
		assert.Less(t, got.list()[1].token, got.list()[2].token)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, r.State)
		assert.Equal(t, "failure 3", r.Reason)
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m"})
		assert.ErrorIs(t, err, durable.ErrDuplicate)

		require.NoError(t, q.Replay(t.Context(), "m", time.Second))
		require.ErrorIs(t, q.DeleteDead(t.Context(), "m"), durable.ErrNotFound, "the message is no longer dead")
		time.Sleep(5 * time.Minute)
		assert.Len(t, got.list(), 6)
		require.NoError(t, q.DeleteDead(t.Context(), "m"))
		require.ErrorIs(t, q.DeleteDead(t.Context(), "m"), durable.ErrNotFound)
		_, err = q.Get(t.Context(), "m")
		assert.ErrorIs(t, err, durable.ErrNotFound)
		stop()
	})
}

func TestRejectBuriesAndFailDelays(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		cause := errors.New("no such customer")
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			switch {
			case d.ID == "rejected":
				return durable.Reject(cause)
			case d.Attempts == 0:
				return durable.Fail(cause, 7*time.Minute)
			}
			return nil
		}, durable.ConsumerOptions{})
		enqueue(t, q, "rejected", time.Second)
		enqueue(t, q, "later", 2*time.Second)
		time.Sleep(10 * time.Minute)
		stop()
		assert.Equal(t, []string{"rejected", "later", "later"}, got.ids())
		assert.InDelta(t, 7*60+2, got.list()[2].at.Seconds(), 0.05)
		for r, err := range q.List(t.Context(), durable.StateDead) {
			require.NoError(t, err)
			assert.Equal(t, "rejected", r.ID)
			assert.Contains(t, r.Reason, "no such customer")
			assert.Equal(t, 1, r.Attempts)
		}
		n, err := q.DeleteAllDead(t.Context(), durable.DeadFilter{All: true})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

// Prefetched messages can be cancelled and rescheduled.
func TestCancelAndRescheduleOfPrefetchedMessages(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			got.add(start, d)
			time.Sleep(time.Minute)
			return nil
		}, durable.ConsumerOptions{Horizon: time.Hour, Fallback: time.Minute})
		for _, id := range []string{"cancelled", "earlier", "later", "kept"} {
			enqueue(t, q, id, 30*time.Minute)
		}
		time.Sleep(30*time.Minute - 100*time.Millisecond)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, stats.Prefetched)

		result := func(r durable.Result, err error) durable.Result {
			require.NoError(t, err)
			return r
		}
		assert.Equal(t, durable.ResultCancelled, result(q.Cancel(t.Context(), "cancelled")))
		assert.Equal(t, durable.ResultNotFound, result(q.Cancel(t.Context(), "cancelled")))
		assert.Equal(t, durable.ResultRescheduled, result(q.Reschedule(t.Context(), "earlier", 0)))
		assert.Equal(t, durable.ResultRescheduled, result(q.RescheduleAt(t.Context(), "later", start.Add(40*time.Minute))))
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, []string{"earlier"}, got.ids())
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, []string{"earlier", "kept"}, got.ids())
		assert.Equal(t, durable.ResultFiring, result(q.Cancel(t.Context(), "kept")))
		assert.Equal(t, durable.ResultFiring, result(q.Reschedule(t.Context(), "kept", time.Hour)))
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"earlier", "kept", "later"}, got.ids())
		assert.InDelta(t, 40*60, got.list()[2].at.Seconds(), 0.05)
		assert.Equal(t, durable.ResultNotFound, result(q.Cancel(t.Context(), "kept")))
		stop()
	})
}

// A handler may run longer than Visibility, because its lease is extended.
func TestLongHandlerKeepsItsMessage(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			got.add(start, d)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Minute):
				return nil
			}
		}, durable.ConsumerOptions{Visibility: time.Second})
		enqueue(t, q, "m", 0)
		time.Sleep(2 * time.Minute)
		stop()
		assert.Equal(t, []string{"m"}, got.ids())
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Acked)
		assert.Zero(t, stats.Crashed)
	})
}

// When its context ends, Consume releases the prefetched messages, so that another consumer gets
// them immediately, and waits for its handlers.
func TestConsumeReleasesMessagesAndWaitsForHandlers(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var first, second deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			first.add(start, d)
			time.Sleep(5 * time.Second)
			return nil
		}, durable.ConsumerOptions{Horizon: time.Minute, Visibility: time.Hour, Concurrency: 1})
		for i := range 10 {
			enqueue(t, q, fmt.Sprint(i), time.Second)
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		stop()
		assert.Equal(t, 4*time.Second, time.Since(began).Round(time.Second), "Consume waits for the handler")
		assert.Len(t, first.list(), 1)
		stop = consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			second.add(start, d)
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(time.Second)
		stop()
		assert.Len(t, second.list(), 9)
		for _, d := range second.list() {
			assert.Zero(t, d.crashes)
			assert.Zero(t, d.attempts)
		}
	})
}

// Fail and Reject of a nil error are failures as well.
func TestFailAndRejectWithoutAnError(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		start := time.Now()
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			if d.Attempts == 0 {
				return durable.Fail(nil, 10*time.Minute)
			}
			return durable.Reject(nil)
		}, durable.ConsumerOptions{})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, "retry requested", r.Reason)
		time.Sleep(15 * time.Minute)
		stop()
		require.Len(t, got.list(), 2)
		assert.InDelta(t, 600, got.list()[1].at.Seconds(), 0.1)
		r, err = q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, r.State)
		assert.Equal(t, "rejected", r.Reason)
	})
}
