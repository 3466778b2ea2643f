package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// An Ack that failed can be repeated, whether or not it has taken effect, and so can an Ack whose
// context has ended.
func TestFailedAckCanBeRepeated(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(string) (error, error){
		"it took effect": func(string) (error, error) { return nil, errDown },
		"it did not":     func(string) (error, error) { return errDown, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{RetryFor: 5 * time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
				r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Minute})
				// One is shorter and one longer than RetryFor.
				for _, patience := range []time.Duration{time.Second, time.Hour} {
					enqueue(t, q, "m", 0)
					d := take(t, r)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					f.set(fault)
					require.Error(t, d.Ack(ctx))
					cancel()
					f.set(func(string) (error, error) { return nil, nil })
					require.NoError(t, d.Ack(t.Context()))
					require.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost, "the delivery is settled")
					require.ErrorIs(t, d.Nack(t.Context(), nil), durable.ErrLeaseLost)
					_, err := q.Get(t.Context(), "m")
					require.ErrorIs(t, err, durable.ErrNotFound)
				}
			})
		})
	}
}

// If the Ack of a handler failed, the result of the handler settles the message.
func TestResultOfAHandlerCountsAfterAFailedAck(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"it is over": time.Hour, "it is in progress": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{RetryFor: 5 * time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
				var n atomic.Int64
				stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					if n.Add(1) > 1 {
						return nil
					}
					f.set(func(name string) (error, error) {
						if name == "Ack" && n.Load() == 1 {
							return errDown, nil
						}
						return nil, nil
					})
					ctx, cancel := context.WithTimeout(ctx, patience)
					defer cancel()
					return d.Ack(ctx)
				}, durable.ConsumerOptions{Visibility: 30 * time.Second})
				enqueue(t, q, "m", 0)
				time.Sleep(2 * time.Minute)
				assert.EqualValues(t, 2, n.Load(), "the message was redelivered")
				s, err := q.Stats(t.Context())
				require.NoError(t, err)
				assert.EqualValues(t, 1, s.Acked)
				assert.Zero(t, s.InFlight+int64(s.Firing))
				stop()
			})
		})
	}
}
