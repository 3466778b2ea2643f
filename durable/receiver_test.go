package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"testing/synctest"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// taker is a receiver, or a queue with its own receiver.
type taker interface {
	Take(ctx context.Context) (*durable.Delivery, error)
}

func receiver(t *testing.T, q *durable.Queue, options durable.ConsumerOptions) *durable.Receiver {
	t.Helper()
	r, err := q.Receiver(options)
	require.NoError(t, err)
	return r
}

func take(t *testing.T, q taker) *durable.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	d, err := q.Take(ctx)
	require.NoError(t, err)
	return d
}

func TestTakeSettlesByAckNackAndBury(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{MaxAttempts: 2}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		enqueue(t, q, "m", time.Second)
		d := take(t, q)
		assert.Equal(t, "m", d.ID)
		assert.InDelta(t, 1, time.Since(start).Seconds(), 0.05)
		require.NoError(t, d.NackAfter(t.Context(), time.Minute, errors.New("busy")))
		assert.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost, "the delivery was already settled")

		d = take(t, q)
		assert.InDelta(t, 61, time.Since(start).Seconds(), 0.05)
		assert.Equal(t, 1, d.Attempts)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, "busy", r.Reason)
		require.NoError(t, d.Nack(t.Context(), errors.New("still busy")))
		r, err = q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, r.State, "both attempts have failed")
		assert.Equal(t, "still busy", r.Reason)

		n, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
		r, err = q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, "enough", r.Reason)

		require.NoError(t, q.Replay(t.Context(), "m", 0))
		d = take(t, q)
		require.NoError(t, d.Ack(t.Context()))
		require.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost)
		require.ErrorIs(t, d.Extend(t.Context(), time.Second), durable.ErrLeaseLost)
		_, err = q.Get(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrNotFound)
	})
}

// A receiver whose lease has expired has lost the message, and cannot settle it.
func TestTakenMessageIsLostWithItsLease(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: 10 * time.Second, MaxCrashes: 2})
		enqueue(t, q, "m", 0)
		first := take(t, r)
		require.NoError(t, first.Extend(t.Context(), time.Minute))
		start := time.Now()
		second := take(t, r)
		assert.InDelta(t, 60, time.Since(start).Seconds(), 1.1, "when the extended lease has expired")
		assert.Equal(t, 1, second.Crashes)
		assert.Zero(t, second.Attempts)
		assert.Greater(t, second.Token, first.Token)
		assert.ErrorIs(t, first.Ack(t.Context()), durable.ErrLeaseLost)
		assert.ErrorIs(t, first.Extend(t.Context(), time.Hour), durable.ErrLeaseLost)
		require.NoError(t, second.Ack(t.Context()))

		enqueue(t, q, "poison", 0)
		take(t, r)
		take(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := r.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		dead, err := q.Get(t.Context(), "poison")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, dead.State)
		assert.Equal(t, 2, dead.Crashes)
	})
}

// A Take whose context ends takes no message, and many such calls leave nothing behind.
func TestTakeThatGivesUpTakesNoMessage(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		gone := errors.New("gone")
		for range 100 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, gone)
			_, err := q.Take(ctx)
			require.ErrorIs(t, err, gone)
			cancel()
		}
		enqueue(t, q, "m", 0)
		assert.Equal(t, "m", take(t, q).ID)
	})
}

// If Take is no longer called, other consumers get the prefetched messages.
func TestIdleReceiverReleasesPrefetchedMessages(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Hour})
		for _, id := range []string{"a", "b", "c", "d"} {
			enqueue(t, q, id, 0)
		}
		require.NoError(t, take(t, r).Ack(t.Context()))
		time.Sleep(time.Minute)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, stats.Prefetched)
		assert.EqualValues(t, 3, stats.Due)
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(time.Now(), d)
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(time.Second)
		stop()
		assert.Len(t, got.list(), 3)
	})
}

func TestManyTakersGetEachMessageOnce(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		const takers, each = 50, 20
		var got sync.Map
		var all sync.WaitGroup
		for range takers {
			all.Go(func() {
				for range each {
					d, err := q.Take(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					_, twice := got.LoadOrStore(d.ID, true)
					assert.False(t, twice, "%s was delivered twice", d.ID)
					assert.NoError(t, d.Ack(t.Context()))
				}
			})
		}
		messages := make([]durable.Message, takers*each)
		for i := range messages {
			messages[i].Delay = time.Duration(i) * time.Millisecond
		}
		ids, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		all.Wait()
		for _, id := range ids {
			_, ok := got.Load(id)
			assert.True(t, ok, "%s was not delivered", id)
		}
	})
}

func TestTakeOfAClosedQueueFails(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		failed := make(chan error)
		go func() {
			_, err := q.Take(t.Context())
			failed <- err
		}()
		time.Sleep(time.Second)
		require.NoError(t, q.Shutdown(t.Context()))
		require.ErrorIs(t, <-failed, durable.ErrClosed)
		_, err := q.Take(t.Context())
		require.ErrorIs(t, err, durable.ErrClosed)
		_, err = q.Enqueue(t.Context(), durable.Message{})
		require.ErrorIs(t, err, durable.ErrClosed)
		_, err = q.Cancel(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrClosed)
		require.ErrorIs(t, q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{}), durable.ErrClosed)
		require.NoError(t, q.Shutdown(t.Context()), "a second Shutdown has no effect")
	})
}

// Calls to Take that wait for less than a round trip get a message. If there are no more calls, the
// message is released.
func TestTakeShorterThanARoundTripGetsAMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Options{})
		q := open(t, far(st), durable.Options{Partitions: 1})
		shortTake := func() *durable.Delivery {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
			defer cancel()
			d, err := q.Take(ctx)
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			return d
		}
		enqueue(t, q, "m", 0)
		var d *durable.Delivery
		for i := 0; d == nil; i++ {
			require.Less(t, i, 100, "calls to Take")
			d = shortTake()
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, d.Ack(t.Context()))

		enqueue(t, q, "n", 0)
		require.Nil(t, shortTake())
		time.Sleep(time.Minute)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.Due)
		assert.Zero(t, s.InFlight+int64(s.Firing))
		assert.Zero(t, s.Crashed)
		q.Close()
		_ = st.Close()
		synctest.Wait()
	})
}

// Each receiver has its own options, and a closed receiver releases the messages that no call has
// taken.
func TestClosedReceiverReleasesUntakenMessages(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Hour})
		waits := make(chan error)
		for _, id := range []string{"a", "b", "c"} {
			enqueue(t, q, id, 0)
		}
		d := take(t, r)
		other := receiver(t, q, durable.ConsumerOptions{})
		go func() {
			_, err := other.Take(t.Context())
			waits <- err
		}()
		time.Sleep(time.Second)
		r.Close()
		r.Close()
		require.NoError(t, <-waits, "the other receiver gets a message")
		_, err := r.Take(t.Context())
		require.ErrorIs(t, err, durable.ErrClosed)
		require.NoError(t, d.Ack(t.Context()), "taken before Close")
		go func() {
			for {
				if _, err := other.Take(t.Context()); err != nil {
					waits <- err
					return
				}
			}
		}()
		time.Sleep(time.Second)
		other.Close()
		require.ErrorIs(t, <-waits, durable.ErrClosed)
	})
}

// A released message is redelivered unchanged.
func TestReleaseCountsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{MaxAttempts: 1}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "m", 0)
		for range 5 {
			d := take(t, q)
			assert.Zero(t, d.Attempts+d.Crashes)
			require.NoError(t, d.Release(t.Context()))
			require.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost)
		}
		require.NoError(t, take(t, q).Ack(t.Context()))
	})
}

func TestBackoffGetsDeliveryAndError(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			if got.add(start, d) > 1 {
				return nil
			}
			return fmt.Errorf("rate limit: %w", assert.AnError)
		}, durable.ConsumerOptions{Backoff: func(d *durable.Delivery, err error) time.Duration {
			assert.Equal(t, "m", d.ID)
			assert.Zero(t, d.Attempts)
			assert.ErrorIs(t, err, assert.AnError)
			return 7 * time.Minute
		}})
		enqueue(t, q, "m", 0)
		time.Sleep(10 * time.Minute)
		stop()
		require.Len(t, got.list(), 2)
		assert.InDelta(t, 7*60, got.list()[1].at.Seconds(), 0.1)
	})
}

// A Nack uses the Backoff of its receiver, so a message is not dead after a moment. NackAfter has
// its own delay. After the last attempt both make the message a dead letter.
func TestNackOfAReceiverUsesBackoff(t *testing.T) {
	t.Parallel()
	panics := func(*durable.Delivery, error) time.Duration { panic("no delay") }
	nack := func(ctx context.Context, d *durable.Delivery) error { return d.Nack(ctx, assert.AnError) }
	for name, c := range map[string]struct {
		backoff     func(*durable.Delivery, error) time.Duration
		nack        func(ctx context.Context, d *durable.Delivery) error
		attempts    int
		least, most time.Duration // between the first and the last delivery
		reason      string
	}{
		"7 minutes": {func(d *durable.Delivery, err error) time.Duration {
			assert.Equal(t, "m", d.ID)
			assert.ErrorIs(t, err, assert.AnError)
			return 7 * time.Minute
		}, nack, 2, 7 * time.Minute, 7 * time.Minute, assert.AnError.Error()},
		"default":  {nil, nack, 25, 6 * time.Hour, 24 * time.Hour, assert.AnError.Error()},
		"panics":   {panics, nack, 2, time.Second, time.Second, assert.AnError.Error()},
		"no cause": {nil, func(ctx context.Context, d *durable.Delivery) error { return d.Nack(ctx, nil) }, 2, time.Second / 2, 3 * time.Second / 2, "retry requested"},
		"own delay": {panics, func(ctx context.Context, d *durable.Delivery) error {
			return d.NackAfter(ctx, time.Hour, assert.AnError)
		}, 2, time.Hour, time.Hour, assert.AnError.Error()},
		"negative delay": {panics, func(ctx context.Context, d *durable.Delivery) error { return d.NackAfter(ctx, -time.Hour, nil) }, 2, 0, 0, "retry requested"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, durable.Options{Partitions: 1, MaxAttempts: c.attempts}, func(t *testing.T, q *durable.Queue) {
				r := receiver(t, q, durable.ConsumerOptions{Backoff: c.backoff, Fallback: time.Minute})
				enqueue(t, q, "m", 0)
				var start time.Time
				for i := range c.attempts {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
					d, err := r.Take(ctx)
					cancel()
					require.NoError(t, err)
					require.Equal(t, i, d.Attempts)
					if i == 0 {
						start = time.Now()
					}
					require.NoError(t, c.nack(t.Context(), d))
				}
				assert.GreaterOrEqual(t, time.Since(start), c.least-10*time.Millisecond)
				assert.LessOrEqual(t, time.Since(start), c.most+time.Second)
				dead, err := q.Get(t.Context(), "m")
				require.NoError(t, err)
				assert.Equal(t, durable.StateDead, dead.State)
				assert.Equal(t, c.reason, dead.Reason)
			})
		})
	}
}
