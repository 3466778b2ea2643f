package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// maxBatchBytes is the maximum size of the bodies of a batch, so that a batch does not block the
// store for long. A single larger message is sent alone.
const maxBatchBytes = 1 << 20

// batcher implements group commit: it combines many requests into few calls. Requests that arrive
// while a call is in progress share the next call, up to [driver.MaxBatch] of them. A single
// request is sent immediately, and many requests share a round trip or an fsync. One call is in
// progress at a time.
type batcher[Q, R any] struct {
	ctx   context.Context // of the calls for a batch; ends when the queue is closed
	flush func(ctx context.Context, requests []Q) ([]R, error)
	key   func(Q) string    // the requests of a batch have different keys
	size  func(Q) int       // bytes of a request; nil: not limited
	alike func(a, b Q) bool // the requests of a batch are alike; nil: all requests are

	groups   bool          // the store groups calls itself: each waiting caller makes its own call
	retryFor time.Duration // how long flush retries while the store is unreachable

	mu      sync.Mutex
	waiting lazyFIFO[*call[Q, R]]
	running bool // run is executing
}

// call is a request in progress. Its state changes under batcher.mu:
//
//	waiting ──take──▶ sent ──end──▶ over
//	   └──── the caller gives up ────▶ over
type call[Q, R any] struct {
	request   Q
	then      func(R, error)
	waiting   *outcome[R]   // set if then is nil
	queued    time.Duration // since processStart
	sent      bool
	withdrawn bool         // the caller gave up before the request was sent
	limiter   *callLimiter // has a place in it until the call is over
	bytes     int          // the bytes of its place in limiter
}

// outcome is the result of a call whose caller waits.
type outcome[R any] struct {
	result R
	err    error
	done   chan struct{}
}

// do waits for the result of a request, which occupies a place in the limiter. If ctx ends before
// the request is sent, it is not sent. If ctx ends later, the request may still take effect.
func (b *batcher[Q, R]) do(ctx context.Context, limiter *callLimiter, request Q) (R, error) {
	bytes := 0
	if b.size != nil {
		bytes = b.size(request)
	}
	if err := limiter.acquire(ctx, bytes); err != nil {
		var zero R
		return zero, err
	}
	if b.groups {
		return b.doDirect(ctx, limiter, bytes, request)
	}
	c := newCall[Q, R](request)
	c.limiter, c.bytes = limiter, bytes
	b.add(c)
	return b.wait(ctx, c)
}

// doDirect lets the store group the call. The call keeps its place in the limiter until the store
// has finished it.
func (b *batcher[Q, R]) doDirect(ctx context.Context, limiter *callLimiter, bytes int, request Q) (result R, err error) {
	results, err := b.flush(ctx, []Q{request})
	if underWay := (*contract.UnderWayError)(nil); errors.As(err, &underWay) {
		go func() {
			<-underWay.Done
			limiter.release(bytes)
		}()
		return result, sentError(err)
	}
	limiter.release(bytes)
	if err == nil {
		result = results[0]
	}
	return result, sentError(err)
}

// newCall returns a call whose caller waits.
func newCall[Q, R any](request Q) *call[Q, R] {
	c := &struct {
		call[Q, R]
		outcome[R]
	}{call[Q, R]{request: request}, outcome[R]{done: make(chan struct{})}}
	c.waiting = &c.outcome
	return &c.call
}

// wait waits until a call that newCall added is over, or ctx ends.
func (b *batcher[Q, R]) wait(ctx context.Context, c *call[Q, R]) (result R, err error) {
	o := c.waiting
	select {
	case <-o.done:
		return o.result, o.err
	case <-ctx.Done():
		select {
		case <-o.done:
			return o.result, o.err
		default:
		}
		if err = context.Cause(ctx); !b.withdraw(c) {
			err = unknown(err)
		}
		return result, err
	}
}

// withdraw withdraws a call that waits. It reports false if the call was sent.
func (b *batcher[Q, R]) withdraw(c *call[Q, R]) bool {
	b.mu.Lock()
	if c.sent || c.withdrawn {
		b.mu.Unlock()
		return !c.sent
	}
	var none Q
	c.withdrawn, c.request = true, none
	b.waiting.removed()
	b.mu.Unlock()
	c.limiter.release(c.bytes)
	return true
}

// gone reports whether the caller has given up.
func (c *call[Q, R]) gone() bool { return c.withdrawn }

// send makes a request and calls then with its result, on the batcher's goroutine.
func (b *batcher[Q, R]) send(request Q, then func(R, error)) {
	b.add(&call[Q, R]{request: request, then: then})
}

// add adds calls, and starts run if it is not executing.
func (b *batcher[Q, R]) add(calls ...*call[Q, R]) {
	now := time.Since(processStart)
	for _, c := range calls {
		c.queued = now
	}
	b.mu.Lock()
	b.waiting.push(calls...)
	start := !b.running
	b.running = true
	b.mu.Unlock()
	if start {
		go b.run()
	}
}

// run makes calls until no request waits.
func (b *batcher[Q, R]) run() {
	batch, keys := make([]*call[Q, R], 0, driver.MaxBatch), make(map[string]struct{})
	for {
		clear(keys)
		batch = b.take(batch[:0], keys)
		if len(batch) == 0 {
			return
		}
		err := b.flushBatch(batch)
		clear(batch)
		if errors.Is(err, ErrUnavailable) {
			b.fail()
		}
	}
}

// fail ends the calls that have waited for at least half of retryFor while the store was
// unreachable. Otherwise a call would wait as long as all batches before it together.
func (b *batcher[Q, R]) fail() {
	var over []*call[Q, R]
	b.mu.Lock()
	for {
		c, ok := b.waiting.first()
		if !ok || time.Since(processStart)-c.queued <= b.retryFor/2 {
			break
		}
		b.pop()
		over = append(over, c)
	}
	b.mu.Unlock()
	for _, c := range over {
		var none R
		c.end(none, fmt.Errorf("%w: a call before this one failed, and this one was not sent", ErrUnavailable))
	}
}

// end passes the result to the caller.
func (c *call[Q, R]) end(result R, err error) {
	c.limiter.release(c.bytes)
	if c.then != nil {
		c.then(result, err)
		return
	}
	c.waiting.result, c.waiting.err = result, err
	close(c.waiting.done)
}

// take takes the next batch, in the order of the requests. The batch ends before a second request
// with the same key.
func (b *batcher[Q, R]) take(batch []*call[Q, R], keys map[string]struct{}) []*call[Q, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	for bytes := 0; len(batch) < driver.MaxBatch; {
		c, ok := b.waiting.first()
		if !ok {
			break
		}
		if b.alike != nil && len(batch) > 0 && !b.alike(batch[0].request, c.request) {
			break
		}
		if b.size != nil {
			if bytes += b.size(c.request); bytes > maxBatchBytes && len(batch) > 0 {
				break
			}
		}
		key := b.key(c.request)
		if _, again := keys[key]; again {
			break
		}
		keys[key] = struct{}{}
		b.pop()
		batch = append(batch, c)
	}
	if len(batch) == 0 {
		b.running = false
	}
	return batch
}

// pop takes the first waiting call.
func (b *batcher[Q, R]) pop() {
	if c, ok := b.waiting.pop(); ok {
		c.sent = true
	}
}

// flushBatch makes one call for a batch and ends the calls in it.
func (b *batcher[Q, R]) flushBatch(batch []*call[Q, R]) error {
	requests := make([]Q, len(batch))
	for i, c := range batch {
		requests[i] = c.request
	}
	results, err := b.flush(b.ctx, requests)
	for i, c := range batch {
		var result R
		if err == nil {
			result = results[i]
		}
		c.end(result, sentError(err))
	}
	return err
}
