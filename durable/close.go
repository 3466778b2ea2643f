package durable

import (
	"context"
	"fmt"
	"time"
)

// Shutdown ends the calls of [Queue.Consume] as the end of their contexts would, and the receivers,
// waits until the handlers have returned and their messages are settled (see ConsumerOptions.Grace),
// and closes the queue. If ctx ends before, Shutdown closes the queue all the same and returns the
// cause of ctx. A deployment that is cut off by its deadline thus counts no crash: see [Queue.Close].
//
// A handler must not call Shutdown, as it would wait for itself. With the handler's context, or one
// that is derived from it, that is [ErrInvalid] and nothing happens. A handler that wants to end the
// queue starts Shutdown on another goroutine, with another context.
func (q *Queue) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("durable: shut down queue %q: %w context nil", q.options.Queue, ErrInvalid)
	}
	if ctx.Value(handling{q}) != nil {
		return fmt.Errorf("durable: shut down queue %q: %w context: it is that of a handler, for which Shutdown would wait; one from outside is accepted",
			q.options.Queue, ErrInvalid)
	}
	for _, c := range q.endConsumers() {
		go c.retire()
	}
	done := make(chan struct{})
	go func() {
		q.consumers.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	q.Close()
	return err
}

// closeTime is how long Close waits for handlers and the store. It is longer than settleTime.
const closeTime = 5 * time.Second

// Close ends the queue. It ends the claiming, cancels the contexts of handlers with [ErrClosed] as the
// cause, and waits a second for them. Then it gives back all messages that this process has and has
// not settled, those of [Queue.Take] too, which counts neither an attempt nor a crash. Calls that
// change something and are under way fail with ErrClosed, unless the store has them already; all later
// ones do.
//
// Close returns at once if the queue has no messages, and after five seconds if the store cannot be
// reached or does not answer; then the messages come again when their leases end, and a crash is
// counted for those that had begun. A second call does nothing. A handler may call Close; it waits in
// vain for this handler to return. Options.OnError must not call it.
func (q *Queue) Close() {
	ended := make(chan struct{})
	consumers := q.endConsumers()
	go func() {
		defer close(ended)
		for _, c := range consumers {
			go c.abort()
		}
		for _, c := range consumers {
			<-c.stopped
		}
	}()
	endsIn(ended, closeTime, q.ctx.Done())
	q.cancel(ErrClosed)
}

// endConsumers lets no further consumer start, and returns those that are there.
func (q *Queue) endConsumers() (consumers []*consumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
	for c := range q.claiming {
		consumers = append(consumers, c)
	}
	return consumers
}
