package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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

// customer returns the customer in a message's headers.
func customer(d *durable.Delivery) string { return d.Headers["customer"] }

// customers counts the running handlers by customer.
type customers struct {
	mu            sync.Mutex
	running       map[string]int
	most, handled int
}

// handler returns a handler that takes the time that duration returns, even after its context has
// ended.
func (c *customers) handler(duration func() time.Duration) durable.Handler {
	return func(_ context.Context, d *durable.Delivery) error {
		c.add(customer(d), 1)
		time.Sleep(duration())
		c.add(customer(d), -1)
		return nil
	}
}

func (c *customers) add(customer string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[string]int)
	}
	c.running[customer] += n
	if n < 0 {
		c.handled++
	} else if customer != "" {
		c.most = max(c.most, c.running[customer])
	}
}

func (c *customers) state() (handled, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handled, c.most
}

func enqueueFor(t *testing.T, q *durable.Queue, id, customer string) {
	t.Helper()
	_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Headers: map[string]string{"customer": customer}})
	require.NoError(t, err)
}

// Messages of a customer are handled one at a time, messages of different customers concurrently,
// and messages without a customer without a limit. Nothing counts a failure, and no lock is left.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	bubbleOf(t, func(b driver.Backend) driver.Backend { return farBackend{b} }, durable.Options{Partitions: 3}, func(t *testing.T, q *durable.Queue) {
		var c customers
		handler := durable.Chain(c.handler(func() time.Duration { return rand.N(3 * time.Second) }), durable.OneAtATime(customer))
		for range 3 {
			defer consume(t, q, handler, durable.ConsumerOptions{Concurrency: 20, Visibility: time.Second})()
		}
		for i := range 200 {
			enqueueFor(t, q, fmt.Sprint(i), []string{"a", "b", "c", "d", ""}[i%5])
		}
		took := waitUntil(t, func() bool { handled, _ := c.state(); return handled == 200 })
		_, most := c.state()
		assert.Equal(t, 1, most)
		assert.Less(t, took, 4*time.Minute, "40 per customer, 1.5 s each, and up to 5 s between two")
		time.Sleep(5 * time.Second)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Scheduled+s.InFlight+s.Dead, "%+v", s)
		assert.Zero(t, s.Retried+s.Crashed+s.Expired, "%+v", s)
	})
}

// lateChangesBackend is a store to which the changes of scheduled messages are late by delay. Their
// callers get no answer.
type lateChangesBackend struct {
	driver.Backend
	delay *atomic.Int64
}

func (b lateChangesBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	delay := time.Duration(b.delay.Load())
	if delay == 0 || batch.Op != driver.OpReschedule && batch.Op != driver.OpCancel {
		return b.Backend.Apply(ctx, batch)
	}
	time.AfterFunc(delay, func() { _, _ = b.Backend.Apply(context.Background(), batch) })
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// If the lock of a key cannot be renewed, the handler ends before another one starts, and late
// changes of the lock do not affect the next one.
func TestLockThatIsNotRenewedIsLost(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"handler waits": false, "handler returns": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const visibility = 10 * time.Second
				store := memstore.New(memstore.Options{})
				var delay atomic.Int64
				options := durable.Options{OnError: func(error) {}, RetryFor: time.Hour}
				first := open(t, wrapped{store, func(b driver.Backend) driver.Backend { return lateChangesBackend{b, &delay} }}, options)
				second := open(t, store, options)
				var c customers
				ended := make(chan error, 10)
				stop := consume(t, first, durable.Chain(func(ctx context.Context, d *durable.Delivery) error {
					assert.NotContains(t, d.ID, "lock")
					c.add(customer(d), 1)
					defer c.add(customer(d), -1)
					for ctx.Err() == nil && (!returns || delay.Load() == 0) {
						time.Sleep(time.Millisecond)
					}
					ended <- context.Cause(ctx)
					return ctx.Err()
				}, durable.OneAtATime(customer)), durable.ConsumerOptions{Visibility: visibility})
				enqueueFor(t, first, "1", "a")
				time.Sleep(time.Minute)
				require.Empty(t, ended, "the lock is renewed")
				stopFirst := make(chan struct{})
				go func() {
					stop()
					close(stopFirst)
				}()
				delay.Store(int64(visibility * 3 / 2))
				start := time.Now()
				enqueueFor(t, second, "2", "a")
				handler := c.handler(func() time.Duration { return 3 * visibility })
				stopSecond := consume(t, second, durable.Chain(handler, durable.OneAtATime(customer)), durable.ConsumerOptions{Visibility: visibility})
				enqueueFor(t, second, "3", "a")
				if err := <-ended; returns {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, durable.ErrLeaseLost)
					assert.Less(t, time.Since(start), visibility)
				}
				<-stopFirst
				waitUntil(t, func() bool { handled, _ := c.state(); return handled >= 3 })
				time.Sleep(10 * visibility)
				handled, most := c.state()
				assert.Equal(t, map[bool]int{true: 3, false: 4}[returns], handled)
				assert.Equal(t, 1, most)
				s, err := second.Stats(t.Context())
				require.NoError(t, err)
				assert.Zero(t, s.Scheduled+s.InFlight+s.Dead, "%+v", s)
				stopSecond()
				first.Close()
				second.Close()
				require.NoError(t, store.Close())
				synctest.Wait()
			})
		})
	}
}

func TestMessageWithInvalidKeyBecomesDeadLetter(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		handler := func(context.Context, *durable.Delivery) error { t.Error("handled"); return nil }
		defer consume(t, q, durable.Chain(handler, durable.OneAtATime(customer)), durable.ConsumerOptions{})()
		enqueueFor(t, q, "1", strings.Repeat("a", 252))
		enqueueFor(t, q, "2", "a\nb")
		time.Sleep(time.Second)
		for id, reason := range map[string]string{"1": "257 bytes; it must have 1 to 255", "2": "control character"} {
			r, err := q.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, durable.StateDead, r.State)
			assert.Contains(t, r.Reason, reason)
		}
	})
}

// A handler that does not return after its timeout keeps its key. Messages become suspects, so the
// test is not parallel.
func TestHandlerKeepsItsKeyAfterItsTimeout(t *testing.T) {
	bubble(t, durable.Options{OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		var c customers
		handler := durable.Chain(c.handler(func() time.Duration { return 30 * time.Second }), durable.OneAtATime(customer))
		stop := consume(t, q, handler, durable.ConsumerOptions{Visibility: 2 * time.Second, HandlerTimeout: time.Second})
		enqueueFor(t, q, "1", "a")
		enqueueFor(t, q, "2", "a")
		time.Sleep(5 * time.Minute)
		handled, most := c.state()
		assert.Greater(t, handled, 5, "the messages are redelivered")
		assert.Equal(t, 1, most)
		stop()
		time.Sleep(time.Minute) // until the last handler has returned
	})
}

// The handler of a key whose lock was cancelled is interrupted, and its message is not lost.
func TestHandlerEndsWhenItsLockIsCancelled(t *testing.T) {
	t.Parallel()
	var errs atomic.Int64
	bubble(t, durable.Options{OnError: func(err error) {
		assert.ErrorIs(t, err, durable.ErrLeaseLost)
		errs.Add(1)
	}}, func(t *testing.T, q *durable.Queue) {
		var n atomic.Int64
		defer consume(t, q, durable.Chain(func(ctx context.Context, d *durable.Delivery) error {
			if n.Add(1) > 1 {
				return nil
			}
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), durable.ErrLeaseLost)
			return ctx.Err()
		}, durable.OneAtATime(customer)), durable.ConsumerOptions{})()
		enqueueFor(t, q, "1", "a")
		time.Sleep(time.Second)
		_, err := q.CancelAll(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, n.Load())
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.Acked)
		assert.Zero(t, s.Retried)
		assert.EqualValues(t, 1, errs.Load())
	})
}
