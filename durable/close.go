package durable

import "context"

// Shutdown ends the calls of [Queue.Consume] and [Queue.Take] as the end of their contexts would, waits until the handlers that run have
// returned and their messages are settled, and closes the queue. If ctx ends before, it closes the queue all the same and returns ctx's error.
func (q *Queue) Shutdown(ctx context.Context) error {
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

// Close ends the queue at once: contexts of handlers are cancelled, calls under way and later ones fail with [ErrClosed], and what this process had
// claimed is delivered again when its leases end. It does not wait. A second call does nothing.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closing = true
	q.mu.Unlock()
	q.cancel(ErrClosed)
}
