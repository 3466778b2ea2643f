package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// A handler loses its lease and returns the error of its context. That is not a failed attempt, and
// the lost lease is reported once.
func TestLostLeaseIsNoFailedAttempt(t *testing.T) {
	t.Parallel()
	var log logged
	var errs reportedErrors
	var es events
	options := durable.Options{Partitions: 1, Logger: log.logger(), OnError: errs.add, OnEvent: es.add}
	faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(failing("Extend", errors.New("broken")))
		var n atomic.Int64
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			assert.Zero(t, d.Attempts)
			if n.Add(1) > 1 {
				return nil
			}
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), durable.ErrLeaseLost)
			return fmt.Errorf("query: %w", ctx.Err())
		}, durable.ConsumerOptions{Visibility: 4 * time.Second})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		stop()
		assert.EqualValues(t, 2, n.Load())
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Retried+s.Crashed, "the message was released before its lease expired")
	})
	assert.Equal(t, 1, strings.Count(errs.text(), durable.ErrLeaseLost.Error()), errs.text())
	assert.NotContains(t, es.kinds("m"), "Retried")
	for _, r := range log.records(t) {
		assert.NotEqual(t, "durable: delivery failed", r["msg"])
	}
}

// lateClaims delays claims before they reach the store.
type lateClaims struct {
	driver.Backend
	late *atomic.Bool
}

func (b lateClaims) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	if b.late.Load() {
		time.Sleep(12 * time.Second)
	}
	return b.Backend.Claim(ctx, c)
}

// A claim reaches the store late, so that its lease may be over when the answer arrives. Its
// message is released, and need not wait for the end of the lease.
func TestMessageOfALateClaimIsReleased(t *testing.T) {
	t.Parallel()
	var late atomic.Bool
	wrap := func(b driver.Backend) driver.Backend { return lateClaims{b, &late} }
	bubbleOf(t, wrap, durable.Options{Partitions: 1, OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		start := time.Now()
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(start, d); return nil },
			durable.ConsumerOptions{Visibility: 10 * time.Second})
		time.Sleep(5300 * time.Millisecond) // between two claims of Fallback
		late.Store(true)
		enqueue(t, q, "m", 0)
		synctest.Wait()
		late.Store(false)
		time.Sleep(time.Minute)
		stop()
		require.Len(t, got.list(), 1)
		assert.Zero(t, got.list()[0].crashes)
		assert.Less(t, got.list()[0].at, 5300*time.Millisecond+14*time.Second)
	})
}

// lostClaims loses the answers to the claims of partition 0.
type lostClaims struct {
	driver.Backend
	lose *atomic.Bool
}

func (b lostClaims) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	claimed, err := b.Backend.Claim(ctx, c)
	if c.Partition == 0 && b.lose.Load() {
		return driver.Claimed{}, errDown
	}
	return claimed, err
}

// A partition moves away while a claim is unanswered and all handlers are busy. The claim is
// repeated all the same, and its message is released.
func TestUnansweredClaimIsRepeatedWithoutAFreeHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New(memstore.Options{})}
		var lose atomic.Bool
		q := open(t, wrapped{f, func(b driver.Backend) driver.Backend { return lostClaims{b, &lose} }},
			durable.Options{Partitions: 2, OnError: func(error) {}})
		end := make(chan struct{})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { <-end; return nil },
			durable.ConsumerOptions{Concurrency: 1, Visibility: time.Minute, Fallback: time.Hour})
		time.Sleep(5300 * time.Millisecond)
		lose.Store(true)
		id := idOf(0, 0)
		enqueue(t, q, id, 0)
		synctest.Wait()
		r, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, durable.StateFiring, r.State, "the message begins with the claim")
		enqueue(t, q, idOf(1, 0), 0)
		moveAway(t, q, f, time.Minute)
		lose.Store(false)
		time.Sleep(2 * time.Second)
		r, err = q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, durable.StateScheduled, r.State)
		assert.Zero(t, r.Crashes)
		close(end)
		stop()
		q.Close()
		require.NoError(t, f.Close())
		synctest.Wait()
	})
}

// A handler that goes on after its lease was lost is seen like any other.
func TestHandlerWithoutALeaseIsSeen(t *testing.T) {
	t.Parallel()
	var errs reportedErrors
	faultyBubble(t, durable.Options{Partitions: 1, OnError: errs.add}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(failing("Extend", errors.New("broken")))
		var n atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error {
			if n.Add(1) == 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}, durable.ConsumerOptions{Visibility: 4 * time.Second, SlowHandler: 10 * time.Minute})
		enqueue(t, q, "m", 0)
		time.Sleep(30 * time.Minute)
		require.EqualValues(t, 2, n.Load())
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 30, s.OldestRun.Minutes(), 1)
		assert.Zero(t, s.Firing)
		assert.Equal(t, 1, strings.Count(errs.text(), "SlowHandler"))
		time.Sleep(time.Hour)
		s, err = q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.OldestRun)
		stop()
	})
}

// Many consumers are free while one of them handles a stream of messages without delays. The visits
// of the others are bounded, however many consumers there are.
func TestVisitsForDueMessagesAreBounded(t *testing.T) {
	t.Parallel()
	for _, consumers := range []int{2, 40} {
		var claims atomic.Int64
		wrap := func(b driver.Backend) driver.Backend { return countingBackend{b, &claims} }
		bubbleOf(t, wrap, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
			var n atomic.Int64
			var stops []func()
			for range consumers {
				stops = append(stops, consume(t, q, sleeps(0, &n), durable.ConsumerOptions{Concurrency: 4}))
			}
			defer stopAll(stops)
			time.Sleep(time.Minute)
			claims.Store(0)
			for range 1000 {
				enqueue(t, q, "", 0)
				time.Sleep(10 * time.Millisecond)
			}
			visits := float64(claims.Load()-1000) / 10
			t.Logf("%d consumers: %.1f claims per second beside one of each message", consumers, visits)
			assert.Less(t, visits, 25.0)
			assert.EqualValues(t, 1000, n.Load())
		})
	}
}
