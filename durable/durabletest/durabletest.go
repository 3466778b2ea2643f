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

// RunDue calls the handler for each message that is due, one at a time, until none is due, and
// settles the messages: see [durable.Queue.Consume]. This includes messages that become due
// meanwhile, such as those that the handler enqueues without a delay. The messages of a paused
// queue, and those whose ExpireAt has passed, are not delivered.
//
// RunDue returns the events for the outcomes, such as EventAcked, in the order of the deliveries.
// It fails the test if ctx ends or options are invalid. It must not be called concurrently.
func (t *Tester) RunDue(ctx context.Context, handler durable.Handler, options durable.ConsumerOptions) []durable.Event {
	t.tb.Helper()
	t.mu.Lock()
	t.events = nil
	t.mu.Unlock()
	options.Concurrency = 1
	for n := t.due(); n > 0; n = t.due() {
		running, stop := context.WithCancel(ctx)
		err := t.q.Consume(running, func(ctx context.Context, d *durable.Delivery) error {
			defer func() {
				if n--; n == 0 {
					stop()
				}
			}()
			return handler(ctx, d)
		}, options)
		stop()
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			t.tb.Fatalf("durabletest: %v", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.events, func(a, b durable.Event) int { return cmp.Compare(a.Token, b.Token) })
	return t.events
}

// due returns the number of messages to deliver.
func (t *Tester) due() (n int) {
	stats, err := t.q.Stats(context.Background())
	if err != nil {
		t.tb.Fatalf("durabletest: %v", err)
	}
	now := t.clock()
	for _, r := range t.Pending() {
		if !stats.Paused && !r.Due.After(now) && (r.ExpireAt.IsZero() || !r.ExpireAt.Before(now)) {
			n++
		}
	}
	return n
}
