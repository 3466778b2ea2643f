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
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// customer returns the customer in a message's headers.
func customer(d *durable.Delivery) string { return d.Headers["customer"] }

// customers counts the handlers that run for each customer.
type customers struct {
	mu            sync.Mutex
	running       map[string]int
	most, handled int
}

// handler returns a handler that takes the time that duration returns, also after its context has
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

// Messages of a customer are handled one at a time, those of different customers concurrently, and
// those of none without a limit. Nothing counts a failure, and no lock is left.
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
		assert.Less(t, took, 4*time.Minute, "40 for each customer, 1.5 s each, and up to 5 s between two")
		time.Sleep(5 * time.Second)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Scheduled+s.InFlight+s.Dead, "%+v", s)
		assert.Zero(t, s.Retried+s.Crashed+s.Expired, "%+v", s)
	})
}

// silentBackend is a store that does not answer a process while silent is set.
type silentBackend struct {
	driver.Backend
	silent *atomic.Bool
}

func (b silentBackend) wait(ctx context.Context) error {
	for b.silent.Load() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return context.Cause(ctx)
}

func (b silentBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := b.wait(ctx); err != nil {
		return nil, err
	}
	return b.Backend.Apply(ctx, batch)
}

func (b silentBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	if err := b.wait(ctx); err != nil {
		return driver.Claimed{}, err
	}
	return b.Backend.Claim(ctx, c)
}

// If the holder of a key does not reach the store, its handler ends before another one starts.
func TestKeyOfUnreachableConsumerIsTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var silent atomic.Bool
		options := durable.Options{OnError: func(error) {}}
		first := open(t, wrapped{store, func(b driver.Backend) driver.Backend { return silentBackend{b, &silent} }}, options)
		second := open(t, store, options)
		var c customers
		ended := make(chan error, 1)
		stop := consume(t, first, durable.Chain(func(ctx context.Context, d *durable.Delivery) error {
			c.add(customer(d), 1)
			<-ctx.Done()
			c.add(customer(d), -1)
			ended <- context.Cause(ctx)
			return ctx.Err()
		}, durable.OneAtATime(customer)), durable.ConsumerOptions{Visibility: 10 * time.Second})
		enqueueFor(t, first, "1", "a")
		time.Sleep(time.Minute)
		require.Empty(t, ended, "the lock is renewed")
		silent.Store(true)
		start := time.Now()
		enqueueFor(t, second, "2", "a")
		stopSecond := consume(t, second, durable.Chain(c.handler(func() time.Duration { return time.Second }), durable.OneAtATime(customer)),
			durable.ConsumerOptions{Visibility: 10 * time.Second})
		waitUntil(t, func() bool { handled, _ := c.state(); return handled == 3 })
		assert.ErrorIs(t, <-ended, durable.ErrLeaseLost)
		assert.Less(t, time.Since(start), 30*time.Second)
		_, most := c.state()
		assert.Equal(t, 1, most)
		silent.Store(false)
		time.Sleep(time.Minute)
		s, err := second.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Scheduled+s.InFlight+s.Dead, "%+v", s)
		stop()
		stopSecond()
		first.Close()
		second.Close()
		require.NoError(t, store.Close())
		synctest.Wait()
	})
}

// The handler of a key whose lock was cancelled is interrupted, and its message is not lost.
func TestHandlerEndsWhenItsLockIsCancelled(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
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
	})
}
