package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// consumerTests test the guarantees that a queue gives to its consumers on every store.
var consumerTests = []test{
	{"Consumer/LateAck", consumerLateAck},
	{"Consumer/ForcedEnd", inBubble(consumerForcedEnd)},
	{"Queue/CancelMatching", queueCancelMatching},
	{"Queue/DeadFilter", queueDeadFilter},
}

// openQueue opens the queue of a fixture once more, as another process would.
func openQueue(t *testing.T, f Fixture) *durable.Queue {
	t.Helper()
	q, err := durable.Open(t.Context(), f.Store,
		durable.Options{Queue: "orders", Partitions: 1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q
}

// holdTime is how long consumers keep messages that have not begun. It is long because the clock of
// a store may stand still: a consumer on a busy machine that gave up such a message would never
// receive it again.
const holdTime = 3 * time.Second

// takeOne takes a message with its own receiver.
func takeOne(ctx context.Context, t *testing.T, q *durable.Queue) *durable.Delivery {
	t.Helper()
	r, err := q.Receiver(durable.ConsumerOptions{Visibility: time.Minute, Membership: holdTime})
	require.NoError(t, err)
	defer r.Close()
	d, err := r.Take(ctx)
	require.NoError(t, err)
	return d
}

// consumerLateAck acknowledges a message that another consumer has taken over and acknowledged,
// while the lease has not expired on the first consumer's clock: the store's clock was set forward,
// or the machine was suspended.
func consumerLateAck(t *testing.T, newStore Factory) {
	f := newStore(t)
	if f.Advance == nil {
		t.Skip("the clock of this store cannot be set")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, second := openQueue(t, f), openQueue(t, f)
	for name, settle := range map[string]func(d *durable.Delivery) error{
		"ack":  func(d *durable.Delivery) error { return d.Ack(ctx) },
		"nack": func(d *durable.Delivery) error { return d.NackAfter(ctx, 0, nil) },
		"bury": func(d *durable.Delivery) error { return d.Bury(ctx, "late") },
	} {
		_, err := first.Enqueue(ctx, durable.Message{ID: name})
		require.NoError(t, err)
		late := takeOne(ctx, t, first)
		f.Advance(2 * time.Minute)
		d := takeOne(ctx, t, second)
		assert.Equal(t, late.ID, d.ID)
		assert.Equal(t, 1, d.Crashes)
		require.NoError(t, d.Ack(ctx))
		require.ErrorIs(t, settle(late), durable.ErrLeaseLost, name)
		require.ErrorIs(t, settle(late), durable.ErrLeaseLost, "%s, repeated", name)
	}
}

// consumerForcedEnd closes a queue several times while a message was taken, handlers run, and
// messages are prefetched. No message counts a crash or an attempt, not even after the leases would
// have expired.
func consumerForcedEnd(t *testing.T, newStore Factory) {
	f := newStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ids := []string{"taken", "heeds", "ignores", "ahead"}
	release := make(chan struct{})
	var late sync.WaitGroup
	for range 2 {
		q := openQueue(t, f)
		for _, id := range ids { // the first time
			if _, err := q.Enqueue(ctx, durable.Message{ID: id}); err != nil {
				require.ErrorIs(t, err, durable.ErrDuplicate)
			}
		}
		taken := takeOne(ctx, t, q)
		assert.Zero(t, taken.Crashes+taken.Attempts)
		running := make(chan struct{}, len(ids))
		var begun atomic.Int32
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
				assert.Zero(t, d.Crashes+d.Attempts, d.ID)
				if begun.Add(1) == 1 {
					running <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				late.Add(1)
				defer late.Done()
				running <- struct{}{}
				<-release
				return nil
			}, durable.ConsumerOptions{Concurrency: 2, Visibility: holdTime, Membership: holdTime})
		}()
		for range 2 {
			select {
			case <-running:
			case <-ctx.Done():
				require.NoError(t, context.Cause(ctx), "no handler is running")
			}
		}
		q.Close()
		require.ErrorIs(t, <-done, durable.ErrClosed)
	}
	if f.Advance != nil {
		f.Advance(time.Hour)
	} else {
		time.Sleep(holdTime + holdTime/4)
	}
	q := openQueue(t, f)
	for range ids {
		d := takeOne(ctx, t, q)
		assert.Zero(t, d.Crashes+d.Attempts, d.ID)
		assert.NoError(t, d.Ack(ctx), d.ID)
	}
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	assert.Zero(t, s.Crashed)
	assert.Zero(t, s.Scheduled+s.InFlight+s.Dead)
	close(release)
	late.Wait()
}

// queueCancelMatching cancels several pages of messages by their headers and keeps other messages.
func queueCancelMatching(t *testing.T, newStore Factory) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q := openQueue(t, newStore(t))
	_, err := q.Enqueue(ctx,
		durable.Message{ID: "firing", Headers: map[string]string{"tag": "x", "n": "0"}})
	require.NoError(t, err)
	d := takeOne(ctx, t, q)
	var messages []durable.Message
	for i := range 3 * driver.MaxBatch {
		headers := map[string]string{"tag": string("xy"[i%2]), "n": fmt.Sprint(i % 4)}
		messages = append(messages,
			durable.Message{ID: fmt.Sprint(i), Headers: headers, Delay: far})
	}
	_, err = q.EnqueueBatch(ctx, messages)
	require.NoError(t, err)

	report, err := q.CancelMatching(ctx, map[string]string{"tag": "x", "n": "2"})
	require.NoError(t, err)
	assert.Equal(t, durable.CancelReport{Cancelled: 3 * driver.MaxBatch / 4}, report)
	report, err = q.CancelMatching(ctx, map[string]string{"tag": "x"})
	require.NoError(t, err)
	assert.Equal(t, durable.CancelReport{Cancelled: 3 * driver.MaxBatch / 4, Firing: 1}, report)
	for r, err := range q.List(ctx, durable.StateScheduled) {
		require.NoError(t, err)
		assert.Equal(t, "y", r.Headers["tag"], r.ID)
	}
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 3*driver.MaxBatch/2, s.Scheduled)
	require.NoError(t, d.Ack(ctx))
}

// queueDeadFilter replays and purges dead letters by their reasons and times.
func queueDeadFilter(t *testing.T, newStore Factory) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q := openQueue(t, newStore(t))
	var died []time.Time
	for i, reason := range []string{"timeout", "no user", "a timeout", "timeout"} {
		id := fmt.Sprint(i)
		_, err := q.Enqueue(ctx, durable.Message{ID: id})
		require.NoError(t, err)
		require.NoError(t, takeOne(ctx, t, q).Bury(ctx, reason))
		r, err := q.Get(ctx, id)
		require.NoError(t, err)
		died = append(died, r.Died)
	}
	n, err := q.ReplayAll(ctx, durable.DeadFilter{Until: died[0]},
		durable.ReplayOptions{Delay: far})
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = q.ReplayAll(ctx, durable.DeadFilter{Reason: "a timeout", Since: died[0]},
		durable.ReplayOptions{Delay: far, Rate: 1000})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	n, err = q.DeleteAllDead(ctx, durable.DeadFilter{Reason: "timeout"})
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	assert.Equal(t, [2]int64{1, 1}, [2]int64{s.Dead, s.Scheduled})
	n, err = q.DeleteAllDead(ctx, durable.DeadFilter{Since: died[1]})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}
