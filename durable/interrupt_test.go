package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// interrupt cancels a running message.
func interrupt(t *testing.T, q *durable.Queue, id string) {
	t.Helper()
	for range 2 {
		r, err := q.Cancel(t.Context(), id, durable.Interrupt)
		require.NoError(t, err)
		require.Equal(t, durable.ResultInterrupted, r)
	}
}

// The context of the handler ends. The message is removed with any result of the handler.
func TestInterruptedMessageIsRemoved(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]func(ctx context.Context, d *durable.Delivery) error{
		"nil":     func(context.Context, *durable.Delivery) error { return nil },
		"ctx.Err": func(ctx context.Context, _ *durable.Delivery) error { return ctx.Err() },
		"the cause": func(ctx context.Context, _ *durable.Delivery) error {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		},
		"an error": func(context.Context, *durable.Delivery) error { return assert.AnError },
		"Fail":     func(context.Context, *durable.Delivery) error { return durable.Fail(assert.AnError, 0) },
		"Reject":   func(context.Context, *durable.Delivery) error { return durable.Reject(assert.AnError) },
		"Postpone": func(context.Context, *durable.Delivery) error { return durable.Postpone(0) },
		"Again":    func(context.Context, *durable.Delivery) error { return durable.Again(0) },
		"Release":  func(ctx context.Context, d *durable.Delivery) error { return d.Release(context.WithoutCancel(ctx)) },
		"Bury":     func(ctx context.Context, d *durable.Delivery) error { return d.Bury(context.WithoutCancel(ctx), "no") },
		"Extend": func(ctx context.Context, d *durable.Delivery) error {
			assert.ErrorIs(t, d.Extend(context.WithoutCancel(ctx), time.Minute), durable.ErrInterrupted)
			return nil
		},
	} {
		for _, repeat := range []string{"", "@every 1m"} {
			t.Run(name+repeat, func(t *testing.T) {
				t.Parallel()
				bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
					_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Delay: 1, Repeat: repeat})
					require.NoError(t, err)
					runs := 0
					stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
						runs++
						began := time.Now()
						interrupt(t, q, "m")
						<-ctx.Done()
						assert.ErrorIs(t, context.Cause(ctx), durable.ErrInterrupted)
						assert.Less(t, time.Since(began), time.Second, "a hint has told the consumer")
						return outcome(ctx, d)
					}, durable.ConsumerOptions{})
					time.Sleep(3 * time.Minute)
					stop()
					assert.Equal(t, 1, runs)
					_, err = q.Get(t.Context(), "m")
					require.ErrorIs(t, err, durable.ErrNotFound)
					c := counters(t, q)
					assert.EqualValues(t, 1, c.Acked+c.Cancelled)
					assert.Zero(t, c.Dead+c.Scheduled+c.InFlight)
				})
			})
		}
	}
}

// Cancel with Interrupt is Cancel for a message that has not begun. Without it a running message
// goes on.
func TestInterruptOfOtherMessages(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "later", time.Hour)
		r, err := q.Cancel(t.Context(), "later", durable.Interrupt)
		require.NoError(t, err)
		assert.Equal(t, durable.ResultCancelled, r)
		r, err = q.Cancel(t.Context(), "later", durable.Interrupt)
		require.NoError(t, err)
		assert.Equal(t, durable.ResultNotFound, r)
		enqueue(t, q, "m", 0)
		d := take(t, q)
		r, err = q.Cancel(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.ResultFiring, r)
		require.NoError(t, d.Extend(t.Context(), time.Minute))
		interrupt(t, q, "m")
		require.ErrorIs(t, d.Extend(t.Context(), time.Minute), durable.ErrInterrupted)
		require.NoError(t, d.Nack(t.Context(), nil))
		_, err = q.Get(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrNotFound)
	})
}

// A message whose lease ends after it was interrupted is not delivered again.
func TestInterruptedMessageOfALostConsumer(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "m", 0)
		d := take(t, q)
		interrupt(t, q, d.ID)
		stop := consume(t, q, func(context.Context, *durable.Delivery) error {
			t.Error("delivered again")
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(time.Hour)
		stop()
		_, err := q.Get(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrNotFound)
		assert.EqualValues(t, 1, counters(t, q).Crashed)
		require.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost)
	})
}
