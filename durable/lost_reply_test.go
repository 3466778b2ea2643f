package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// An acknowledgement that has taken place, and whose reply is lost for half of the lease, is no lost lease: neither where the handler has returned
// nor where it has asked for it itself and waits.
func TestLostReplyOfAnAckIsNoLostLease(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"by returning": false, "by Ack": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New(memstore.Options{})}
				var lost atomic.Int64
				q := open(t, f, durable.Options{Partitions: 1, OnError: func(err error) {
					if errors.Is(err, durable.ErrLeaseLost) {
						lost.Add(1)
					}
				}})
				stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					if !own {
						return nil
					}
					assert.NoError(t, d.Ack(ctx))
					assert.NoError(t, ctx.Err(), "the handler goes on")
					return nil
				}, durable.ConsumerOptions{Visibility: 8 * time.Second})
				start := time.Now()
				f.set(func(name string) (error, error) {
					if name == "Ack" && time.Since(start) < 4*time.Second {
						return nil, errDown
					}
					return nil, nil
				})
				enqueue(t, q, "m", 0)
				time.Sleep(30 * time.Second)
				assert.Zero(t, lost.Load(), "ErrLeaseLost is reported")
				stop()
				q.Close()
				_ = f.Close()
				synctest.Wait()
			})
		})
	}
}

// A Reschedule whose reply is lost says what has become of it, also if its message was delivered at the new time meanwhile.
func TestRescheduleWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var n atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { n.Add(1); return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "m", time.Hour)
		start := time.Now()
		f.set(func(name string) (error, error) {
			if name == "Reschedule" && time.Since(start) < time.Second {
				return nil, errDown
			}
			return nil, nil
		})
		r, err := q.Reschedule(t.Context(), "m", 0)
		require.NoError(t, err)
		assert.Equal(t, durable.Rescheduled, r)
		assert.EqualValues(t, 1, n.Load(), "it was rescheduled")
		r, err = q.Reschedule(t.Context(), "m", 0)
		require.NoError(t, err)
		assert.Equal(t, durable.NotFound, r)
		stop()
	})
}

// PurgeAll counts what it has removed where a reply is lost.
func TestPurgeAllWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		enqueue(t, q, "m", 0)
		require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
		var n atomic.Int64
		f.set(func(name string) (error, error) {
			if name == "Purge" && n.Add(1) == 1 {
				return nil, errDown
			}
			return nil, nil
		})
		removed, err := q.PurgeAll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, removed)
	})
}
