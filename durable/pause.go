package durable

import (
	"context"
	"fmt"
	"sync"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Pause pauses the queue: when Pause has returned nil, no message begins until [Queue.Resume], in
// no process. The store keeps the pause, so it lasts over restarts. All else goes on: Enqueue,
// Cancel, Reschedule, Replay, handlers that run with their leases and acknowledgements, and the end
// of leases.
//
// The store refuses to begin a message of a paused queue. Messages that had begun before and wait
// for a handler, at most as many as the handlers take in 5 ms, may still get one until their
// consumer has learned of the pause: at the latest after ConsumerOptions.Fallback, and mostly after
// the duration of a round trip. The consumer then gives back all messages that no handler has,
// without an attempt or a crash. Consume and Take wait; they end as usual.
//
// Pause makes a call of the store for each partition, all at the same time. To pause a paused queue
// does nothing. After an error some partitions may be paused, and others not; Pause and Resume may
// be called again. Errors, and calls that give up, are those of [Queue.Cancel].
func (q *Queue) Pause(ctx context.Context) error {
	return q.setPaused(ctx, "pause", true)
}

// Resume ends a pause: consumers deliver the overdue messages as fast as their handlers take them.
// They learn of it at once or, if the store's hint is lost, after ConsumerOptions.Fallback. To
// resume a queue that is not paused does nothing. For errors see [Queue.Pause].
func (q *Queue) Resume(ctx context.Context) error {
	return q.setPaused(ctx, "resume", false)
}

func (q *Queue) setPaused(ctx context.Context, what string, paused bool) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	errs := make([]error, len(q.parts))
	var all sync.WaitGroup
	for i, p := range q.parts {
		all.Go(func() { _, errs[i] = p.pauses.do(ctx, q.room, paused) })
	}
	all.Wait()
	var first error
	failed := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		if failed++; failed == 1 {
			first = fmt.Errorf("partition %d: %w", i, err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("durable: %s: %d of %d partitions failed: %w",
			what, failed, len(q.parts), first)
	}
	return nil
}

// gatherPauses sets up the batcher of pauses. One caller makes all of them, so a copy of an earlier
// one that comes late changes nothing.
func (p *part) gatherPauses(name string) {
	once := &caller{p: p, name: name + ":pause"}
	p.pauses.retryFor = p.q.options.RetryFor
	p.pauses.key = func(bool) string { return "" } // one at a time
	p.pauses.flush = func(requests []bool) ([]struct{}, error) {
		err := once.call(func(ctx context.Context, call driver.Call) error {
			return p.q.backend.Pause(ctx, driver.Pause{Partition: p.index, Call: call, Paused: requests[0]})
		})
		return make([]struct{}, 1), err
	}
	if _, groups := p.q.backend.(driver.Grouper); groups {
		p.pauses.direct = func(ctx context.Context, paused bool) (struct{}, error) {
			return struct{}{}, p.q.backend.Pause(ctx, driver.Pause{Partition: p.index, Paused: paused})
		}
	}
}
