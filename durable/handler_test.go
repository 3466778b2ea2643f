package durable_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// A handler that returns at its deadline has failed, and its message is retried after the backoff.
func TestHandlerTimeoutIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{MaxAttempts: 2}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		start := time.Now()
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			got.add(start, d)
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, 10*time.Second, time.Until(deadline))
			<-ctx.Done()
			return ctx.Err()
		}, durable.ConsumerOptions{HandlerTimeout: 10 * time.Second, Visibility: time.Second, Backoff: fixed(time.Minute)})
		enqueue(t, q, "m", 0)
		time.Sleep(3 * time.Minute)
		stop()
		require.Len(t, got.list(), 2)
		assert.InDelta(t, 70, got.list()[1].at.Seconds(), 0.1)
		assert.Zero(t, got.list()[1].crashes)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, r.State)
		assert.Equal(t, context.DeadlineExceeded.Error(), r.Reason)
	})
}

// A message that stays in a handler or with a receiver is seen, and is reported once. Messages that
// wait for a handler are overdue.
func TestSlowHandlersAreSeen(t *testing.T) {
	t.Parallel()
	var errs reportedErrors
	bubble(t, durable.Options{OnError: errs.add}, func(t *testing.T, q *durable.Queue) {
		end := make(chan struct{})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { <-end; return nil },
			durable.ConsumerOptions{Concurrency: 2, SlowHandler: time.Minute})
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			enqueue(t, q, id, time.Second)
		}
		time.Sleep(51 * time.Second)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 3, s.Overdue)
		assert.InDelta(t, 50, s.OverdueFor.Seconds(), 2, "a heartbeat may be old")
		assert.InDelta(t, 50, s.OldestRun.Seconds(), 2)
		assert.NotContains(t, errs.text(), "SlowHandler")
		time.Sleep(time.Hour)
		assert.Equal(t, 2, strings.Count(errs.text(), "the handler has not returned for 1m0s (ConsumerOptions.SlowHandler)"))
		close(end)
		time.Sleep(5 * time.Second)
		s, err = q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Overdue)
		assert.Zero(t, s.OverdueFor)
		assert.Zero(t, s.OldestRun)
		stop()

		enqueue(t, q, "f", 0)
		d, err := q.Take(t.Context())
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		s, err = q.Stats(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 4, s.OldestRun.Seconds(), 3)
		require.NoError(t, d.Ack(t.Context()))
	})
}

// Handlers that ignore their deadlines are reported, and lose their messages when the leases
// expire. Other messages are handled in their place.
func TestStuckHandlersAreReplaced(t *testing.T) {
	t.Parallel()
	var errs reportedErrors
	bubble(t, durable.Options{Partitions: 1, OnError: errs.add}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		start := time.Now()
		wake := make(chan struct{})
		late := make(chan error, 1)
		var running, most atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			if d.ID == "stuck" && d.Crashes == 0 {
				<-wake
				late <- d.Ack(context.Background())
				return errors.New("too late")
			}
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return nil
		}, durable.ConsumerOptions{Concurrency: 1, HandlerTimeout: 10 * time.Second, Visibility: 4 * time.Second})
		enqueue(t, q, "stuck", 0)
		for _, id := range []string{"a", "b", "c"} {
			enqueue(t, q, id, time.Second)
		}
		time.Sleep(10500 * time.Millisecond)
		assert.Equal(t, []string{"stuck"}, got.ids(), "the only slot is occupied")
		assert.NotContains(t, errs.text(), "is still running")
		time.Sleep(time.Second)
		assert.Contains(t, errs.text(), `message "stuck": the handler is still running 1s after its HandlerTimeout of 10s`)
		assert.Len(t, got.list(), 2, "another worker owns the slot")
		time.Sleep(20 * time.Second)
		require.ElementsMatch(t, []string{"stuck", "a", "b", "c", "stuck"}, got.ids())
		for i, d := range got.list() {
			if i > 0 && d.id == "stuck" {
				assert.Equal(t, 1, d.crashes)
				assert.Less(t, d.at, 18*time.Second, "when its lease has expired")
			}
		}
		close(wake)
		require.ErrorIs(t, <-late, durable.ErrLeaseLost)
		for _, id := range []string{"d", "e", "f"} {
			enqueue(t, q, id, 0)
		}
		time.Sleep(10 * time.Second)
		assert.Len(t, got.list(), 8)
		assert.EqualValues(t, 1, most.Load(), "the stuck handler's worker ends when the handler returns")
		stop()
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 7, s.Acked)
		assert.EqualValues(t, 1, s.Crashed)
		assert.Zero(t, s.InFlight+s.Scheduled+s.Dead)
	})
}

// A handler that returns within a second after its deadline settles its message.
func TestHandlerSettlesAfterItsDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		stop := consume(t, q, func(ctx context.Context, _ *durable.Delivery) error {
			<-ctx.Done()
			time.Sleep(900 * time.Millisecond)
			return nil
		}, durable.ConsumerOptions{HandlerTimeout: 5 * time.Second, Visibility: 500 * time.Millisecond})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		stop()
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.Acked)
		assert.Zero(t, s.Crashed)
	})
}

// A handler's context has the values of the context of Consume, and does not end with it.
func TestHandlerContextHasTheValuesOfConsume(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		enqueue(t, q, "m", 0)
		var got any
		require.NoError(t, q.Consume(ctx, func(ctx context.Context, _ *durable.Delivery) error {
			got = ctx.Value(key{})
			cancel()
			time.Sleep(time.Second)
			return ctx.Err()
		}, durable.ConsumerOptions{}))
		assert.Equal(t, "trace", got)
		_, err := q.Get(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrNotFound, "the handler's context has not ended")
	})
}

// Consume and Take with a nil context fail before they call the store.
func TestConsumeRefusesNilContext(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var none context.Context
		err := q.Consume(none, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.EqualError(t, err, "durable: consume: invalid context: nil")
		_, err = q.Take(none)
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.EqualError(t, err, "durable: take: invalid context: nil")
		require.ErrorIs(t, q.Shutdown(none), durable.ErrInvalid)
		time.Sleep(10 * time.Second)
		assert.Zero(t, f.count("Heartbeat")+f.count("Claim")+f.count("Watch"))
		require.NoError(t, q.Shutdown(t.Context()))
	})
}

// deepPanic panics below some frames, so that the stack is longer than the reason in a record.
func deepPanic(depth int, items []string) string {
	if depth == 0 {
		return items[3] // a runtime panic
	}
	return deepPanic(depth-1, items)
}

// OnError receives a panic with its whole stack. The message keeps the place and the first line.
func TestPanicIsReportedWithItsStack(t *testing.T) {
	t.Parallel()
	var errs reportedErrors
	bubble(t, durable.Options{MaxAttempts: 1, OnError: errs.add}, func(t *testing.T, q *durable.Queue) {
		var backoff atomic.Value
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			if d.ID == "runtime" {
				deepPanic(30, nil)
			}
			panic("first line\n" + strings.Repeat("second line\n", 100))
		}, durable.ConsumerOptions{Backoff: func(_ *durable.Delivery, err error) time.Duration { backoff.Store(err); return time.Minute }})
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "value", MaxAttempts: 2})
		require.NoError(t, err)
		time.Sleep(time.Second)
		var panicked *durable.PanicError
		err, _ = backoff.Load().(error)
		require.ErrorAs(t, err, &panicked)
		assert.Contains(t, panicked.Value, "second line")
		assert.Contains(t, string(panicked.Stack), "TestPanicIsReportedWithItsStack")
		enqueue(t, q, "runtime", 0)
		time.Sleep(5 * time.Minute)
		stop()

		r, err := q.Get(t.Context(), "value")
		require.NoError(t, err)
		assert.Regexp(t, `^panic at durable/handler_test\.go:\d+: first line$`, r.Reason)
		r, err = q.Get(t.Context(), "runtime")
		require.NoError(t, err)
		assert.Regexp(t, `^panic at durable/handler_test\.go:\d+: runtime error: index out of range \[3\] with length 0$`, r.Reason)
		assert.Equal(t, 31, strings.Count(errs.text(), "deepPanic("), "frames of the recursion")
		assert.Contains(t, errs.text(), `message "runtime": panic at`)
		errs.mu.Lock()
		defer errs.mu.Unlock()
		require.Len(t, errs.errs, 3)
		require.ErrorAs(t, errs.errs[0], &panicked)
	})
}
