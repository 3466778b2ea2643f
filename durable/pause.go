package durable

import (
	"context"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Pause pauses the queue in all processes: after Pause has returned nil, no message begins until
// [Queue.Resume]. The store keeps the pause across restarts. Everything else continues: Enqueue,
// Cancel, Reschedule, Replay, running handlers with their leases and acknowledgements, and the
// expiry of leases.
//
// The store refuses to begin a message of a paused queue. Messages that have begun and are waiting
// for a handler, at most as many as the handlers take in 5 ms, may still be delivered until their
// consumer has read the pause. That usually takes one round trip, and at most
// ConsumerOptions.Fallback. The consumer then releases all messages that were not passed to a
// handler, without counting an attempt or a crash. Consume and Take block, and end as usual.
//
// Pause makes one call to the store per partition, concurrently. Pausing a paused queue has no
// effect. After an error some partitions may be paused and others not. Pause and Resume may be
// called again. Pause returns the same errors as [Queue.Cancel], including [ErrOutcomeUnknown].
func (q *Queue) Pause(ctx context.Context) error {
	return q.setPaused(ctx, "pause", true)
}

// Resume ends a pause: consumers deliver the overdue messages as fast as their handlers take them.
// Consumers notice this immediately or, if the store's hint is lost, after
// ConsumerOptions.Fallback. Resuming a queue that is not paused has no effect. Resume returns the
// same errors as [Queue.Pause].
func (q *Queue) Resume(ctx context.Context) error {
	return q.setPaused(ctx, "resume", false)
}

func (q *Queue) setPaused(ctx context.Context, what string, paused bool) error {
	if err := q.checkOpen(ctx); err != nil {
		return err
	}
	failures := onParts(q, func(p *part) error {
		_, err := p.pauses.do(ctx, q.limiter, paused)
		return err
	})
	if len(failures) > 0 {
		return fmt.Errorf("durable: %s: %d of %d partitions failed: %w", what, len(failures), len(q.parts), failures[0])
	}
	return nil
}

// initPauses sets up the batcher of pauses. A single caller makes all of them, so a delayed copy of
// an earlier call changes nothing.
func (p *part) initPauses(name string) {
	once := p.newCaller(name + ":pause")
	key := func(bool) string { return "" } // one at a time
	initBatcher(&p.pauses, p.q, key, func(ctx context.Context, requests []bool) ([]struct{}, error) {
		err := once.call(ctx, func(ctx context.Context, call driver.Call) error {
			return p.q.backend.Pause(ctx, driver.Pause{Partition: p.index, Call: call, Paused: requests[0]})
		})
		return make([]struct{}, 1), err
	})
}
