// Package durabletest tests programs that use a durable queue, without waiting for delays. Its
// queue is in memory and has a clock that only the test moves:
//
//	q, test := durabletest.New(t, durable.Options{})
//	placeOrder(ctx, q, 42) // enqueues a message with a delay
//	require.Len(t, test.Pending(), 1)
//	test.Advance(30 * time.Minute)
//	events := test.RunDue(ctx, handler, durable.ConsumerOptions{})
//
// A test that runs Consume itself uses memstore in a testing/synctest bubble instead.
package durabletest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// Tester moves the clock of an in-memory queue, and delivers due messages. [New] returns it.
type Tester struct {
	q  *durable.Queue
	tb testing.TB

	mu     sync.Mutex
	now    time.Time
	events []durable.Event
}

// New returns an empty queue, which is closed when the test ends. Its clock starts at the current
// time, in milliseconds. The queue has one partition unless options sets another number, so that
// messages are delivered in order of due time.
func New(t testing.TB, options durable.Options) (*durable.Queue, *Tester) {
	t.Helper()
	test := &Tester{tb: t, now: time.Now().Truncate(time.Millisecond)}
	options.Partitions = cmp.Or(options.Partitions, 1)
	onEvent := options.OnEvent
	options.OnEvent = func(e durable.Event) {
		if onEvent != nil {
			onEvent(e)
		}
		if e.Kind >= durable.EventAcked && e.Kind <= durable.EventExpired {
			test.mu.Lock()
			defer test.mu.Unlock()
			test.events = append(test.events, e)
		}
	}
	store := memstore.New(memstore.Options{Now: test.clock})
	var err error
	if test.q, err = durable.Open(context.Background(), store, options); err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	t.Cleanup(func() {
		test.q.Close()
		_ = store.Close() // never fails
	})
	return test.q, test
}

// clock returns the time of the queue's clock.
func (t *Tester) clock() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// Advance moves the queue's clock by d. It calls no handler: see [Tester.RunDue].
func (t *Tester) Advance(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = t.now.Add(d)
}

// Pending returns the messages that are scheduled or being delivered, in the order of their due
// times and ids.
func (t *Tester) Pending() (pending []durable.Record) {
	t.tb.Helper()
	for _, state := range []durable.State{durable.StateScheduled, durable.StateLeased} {
		for r, err := range t.q.List(context.Background(), state) {
			if err != nil {
				t.tb.Fatalf("durabletest: %v", err)
			}
			pending = append(pending, r)
		}
	}
	slices.SortFunc(pending, func(a, b durable.Record) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
	return pending
}

// RunDue calls the handler for each message that is due or becomes due during the call, one at a
// time, and settles the messages: see [durable.Queue.Consume]. It removes due messages whose
// ExpireAt has passed. It leaves alone the messages of a paused queue, and those that Take has
// returned until their leases end. The leases of RunDue do not end. Concurrency, Visibility,
// Membership, Horizon, Fallback and SlowHandler of options have no effect.
//
// RunDue returns the events for the outcomes, such as EventAcked, in the order of the deliveries.
// It fails the test if ctx ends or options are invalid. It must not be called concurrently.
func (t *Tester) RunDue(ctx context.Context, handler durable.Handler, options durable.ConsumerOptions) []durable.Event {
	t.tb.Helper()
	t.mu.Lock()
	t.events = nil
	t.mu.Unlock()
	options.Concurrency, options.Visibility, options.Membership = 1, long, long
	options.Horizon, options.Fallback = 10*time.Millisecond, 500*time.Millisecond // the handler may move the clock
	var handlers atomic.Int32
	err := context.Cause(ctx)
	for err == nil && !t.idle() {
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			defer stop()
			ended <- t.q.Consume(running, func(ctx context.Context, d *durable.Delivery) error {
				if d.Due.After(t.clock()) { // the message has begun ahead, or the clock was set back
					stop()
					return d.Release(ctx)
				}
				handlers.Add(1)
				defer handlers.Add(-1)
				return handler(ctx, d)
			}, options)
		}()
		for pause := time.Millisecond; running.Err() == nil && (handlers.Load() > 0 || !t.idle()); pause = min(2*pause, 50*time.Millisecond) {
			time.Sleep(pause)
		}
		stop()
		err = cmp.Or(<-ended, context.Cause(ctx))
	}
	if err != nil {
		t.tb.Fatalf("durabletest: %v", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.events, func(a, b durable.Event) int { return cmp.Compare(a.Token, b.Token) })
	return t.events
}

// long is the lease of a message that RunDue delivers. A test may stop in a debugger.
const long = 100 * 365 * 24 * time.Hour

// idle reports whether no message is due, and none that RunDue has begun is firing.
func (t *Tester) idle() bool {
	stats, _ := t.q.Stats(context.Background()) // Pending reports the error
	now := t.clock()
	return !slices.ContainsFunc(t.Pending(), func(r durable.Record) bool {
		if left := r.LeaseEnd.Sub(now); r.State == durable.StateFiring && left > 0 {
			return left > long/2
		}
		return !stats.Paused && !r.Due.After(now)
	})
}
