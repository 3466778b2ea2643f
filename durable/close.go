package durable

import (
	"context"
	"fmt"
)

// Shutdown ends the calls of [Queue.Consume] and [Queue.Take] as the end of their contexts would, waits until the handlers that run have
// returned and their messages are settled, and closes the queue. If ctx ends before, it closes the queue all the same and returns ctx's error. What
// was taken with Take and is not settled by then is delivered again when its lease ends.
//
// A handler must not call it, as it would wait for itself: with the handler's context, or one that is derived from it, that is [ErrInvalid] and
// nothing happens. A handler that wants to end the queue starts Shutdown on a goroutine of its own, with another context.
func (q *Queue) Shutdown(ctx context.Context) error {
	if ctx.Value(handling{q}) != nil {
		return fmt.Errorf("durable: shut down queue %q: %w context: it is that of a handler, for which Shutdown would wait; one from outside is accepted",
			q.options.Queue, ErrInvalid)
	}
	q.mu.Lock()
	q.closing = true
	for c := range q.claiming {
		go c.retire()
	}
	q.mu.Unlock()
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

// Close ends the queue at once: contexts of handlers are cancelled, calls that change something and are under way fail with [ErrClosed], unless the store has
// them already; all later ones do; and what this
// process had claimed is delivered again when its leases end. It does not wait. A second call does nothing.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closing = true
	q.mu.Unlock()
	q.cancel(ErrClosed)
}
