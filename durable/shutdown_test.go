package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// reportedErrors collects the errors that a queue has reported.
type reportedErrors struct {
	mu   sync.Mutex
	errs []error
}

func (r *reportedErrors) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// text returns all errors as one string.
func (r *reportedErrors) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(errors.Join(r.errs...))
}

// Ten deployments are cut off by their deadlines. Each ends the queue while one handler respects
// its context, another one ignores it, one message was taken, and others are prefetched. No message
// counts a crash or an attempt.
func TestForcedShutdownsCountNoCrash(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(q *durable.Queue){
		"Shutdown": func(q *durable.Queue) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			assert.ErrorIs(t, q.Shutdown(ctx), context.DeadlineExceeded)
		},
		"Close": (*durable.Queue).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				ids := []string{"taken", "heeds", "ignores", "ahead"} // in order of due time
				var stuck sync.WaitGroup
				for i := range 10 {
					q := open(t, store, durable.Options{Partitions: 1, OnError: func(error) {}})
					if i == 0 {
						for k, id := range ids {
							enqueue(t, q, id, time.Duration(k)*time.Millisecond)
						}
					}
					r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Minute, MaxCrashes: 3})
					require.Equal(t, "taken", take(t, r).ID, "round %d", i)
					r.Close()
					go func() {
						_ = q.Consume(context.Background(), func(ctx context.Context, d *durable.Delivery) error {
							assert.Zero(t, d.Crashes, "round %d: %s", i, d.ID)
							assert.Zero(t, d.Attempts, "round %d: %s", i, d.ID)
							if d.ID == "heeds" {
								<-ctx.Done()
								return fmt.Errorf("interrupted: %w", ctx.Err())
							}
							stuck.Add(1)
							defer stuck.Done()
							time.Sleep(20 * time.Second)
							return nil
						}, durable.ConsumerOptions{Concurrency: 2, Visibility: 4 * time.Second, MaxCrashes: 3})
					}()
					time.Sleep(2 * time.Second)
					s, err := q.Stats(t.Context())
					require.NoError(t, err)
					require.GreaterOrEqual(t, s.InFlight, int64(3), "the fourth may stay in the store")
					end(q)
					time.Sleep(2 * time.Minute) // leases of messages that were not released expire
				}
				stuck.Wait()
				q := open(t, store, durable.Options{})
				var got deliveries
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(time.Now(), d); return nil }, durable.ConsumerOptions{})
				time.Sleep(time.Minute)
				stop()
				assert.ElementsMatch(t, ids, got.ids(), "each message is delivered once")
				for _, d := range got.list() {
					assert.Zero(t, d.crashes, "crashes of %s", d.id)
					assert.Zero(t, d.attempts, "attempts of %s", d.id)
				}
				q.Close()
				assert.NoError(t, store.Close())
				synctest.Wait()
			})
		})
	}
}

// The contexts of handlers end after Grace. A handler that continues delays neither its message nor
// Consume.
func TestConsumeEndsWithItsGrace(t *testing.T) {
	t.Parallel()
	var errs reportedErrors
	bubble(t, durable.Options{Partitions: 1, OnError: errs.add}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var ended atomic.Int64 // end of the handlers' contexts
		late := make(chan error, 3)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
				<-ctx.Done()
				ended.Store(int64(time.Since(start)))
				assert.ErrorIs(t, context.Cause(ctx), durable.ErrClosed)
				switch d.ID {
				case "finishes":
					return nil
				case "fails":
					return assert.AnError
				case "panics":
					panic("for the test")
				case "rejects":
					return durable.Reject(assert.AnError)
				}
				time.Sleep(time.Minute)
				late <- d.Ack(context.Background())
				return nil
			}, durable.ConsumerOptions{Grace: 7 * time.Second, Visibility: 3 * time.Second})
		}()
		for _, id := range []string{"finishes", "fails", "panics", "rejects", "ignores"} {
			enqueue(t, q, id, 0)
		}
		time.Sleep(10 * time.Second)
		cancel()
		require.NoError(t, <-done)
		assert.InDelta(t, 17, time.Duration(ended.Load()).Seconds(), 0.01, "when Grace has passed")
		assert.InDelta(t, 18, time.Since(start).Seconds(), 0.01, "handlers have one second to return")
		assert.Contains(t, errs.text(), `message "ignores": released because`)

		state := func(id string) durable.Record {
			r, err := q.Get(t.Context(), id)
			require.NoError(t, err, id)
			return r
		}
		_, err := q.Get(t.Context(), "finishes")
		require.ErrorIs(t, err, durable.ErrNotFound)
		for _, id := range []string{"fails", "ignores"} {
			r := state(id)
			assert.Equal(t, durable.StateScheduled, r.State, id)
			assert.Zero(t, r.Attempts+r.Crashes, id)
		}
		assert.Equal(t, 1, state("panics").Attempts)
		assert.Equal(t, durable.StateDead, state("rejects").State)

		d := take(t, q)
		for d.ID != "ignores" {
			d = take(t, q)
		}
		require.ErrorIs(t, <-late, durable.ErrLeaseLost)
	})
}

// A consumer that ends leaves its partitions immediately, and keeps the leases of its handlers.
func TestPartitionsMoveDuringTheGrace(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 4}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(ctx, func(context.Context, *durable.Delivery) error { time.Sleep(15 * time.Second); return nil },
				durable.ConsumerOptions{Visibility: time.Second, Membership: time.Hour})
		}()
		enqueue(t, q, "long", 0)
		time.Sleep(time.Second)
		defer consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(time.Now(), d); return nil },
			durable.ConsumerOptions{Membership: 600 * time.Millisecond})()
		cancel()
		time.Sleep(time.Second)
		for i := range 40 {
			enqueue(t, q, fmt.Sprint(i), 0)
		}
		time.Sleep(time.Second)
		assert.Len(t, got.list(), 40, "messages of all partitions")
		require.NoError(t, <-done)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 41, s.Acked)
		assert.Zero(t, s.Crashed)
	})
}

// Close in a handler stops waiting for the handler after a second, and releases its message.
func TestCloseInAHandlerReleasesItsMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		q := open(t, store, durable.Options{OnError: func(error) {}})
		closed := make(chan time.Duration, 1)
		enqueue(t, q, "m", 0)
		err := q.Consume(t.Context(), func(context.Context, *durable.Delivery) error {
			start := time.Now()
			q.Close()
			closed <- time.Since(start)
			return nil
		}, durable.ConsumerOptions{})
		require.ErrorIs(t, err, durable.ErrClosed)
		assert.Less(t, <-closed, 2*time.Second)
		q = open(t, store, durable.Options{})
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateScheduled, r.State)
		assert.Zero(t, r.Attempts+r.Crashes)
		q.Close()
		assert.NoError(t, store.Close())
		synctest.Wait()
	})
}

// Close returns after five seconds if the store is unreachable.
func TestCloseInAnOutageEnds(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{RetryFor: time.Hour}, func(t *testing.T, q *durable.Queue, f *faulty) {
		running := make(chan struct{})
		enqueue(t, q, "m", 0)
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(t.Context(), func(ctx context.Context, _ *durable.Delivery) error {
				close(running)
				<-ctx.Done()
				return ctx.Err()
			}, durable.ConsumerOptions{})
		}()
		<-running
		f.set(func(string) (error, error) { return errDown, nil })
		start := time.Now()
		q.Close()
		assert.InDelta(t, 5, time.Since(start).Seconds(), 0.1)
		require.ErrorIs(t, <-done, durable.ErrClosed)
		f.set(func(string) (error, error) { return nil, nil })
	})
}
