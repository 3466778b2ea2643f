package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// consumer is one call of Consume, or one Receiver: a member of the queue's consumers that claims
// messages from its share of the partitions and hands them to handlers or calls of Take.
//
//	consumer    the life of all parts: start, hints of the store, membership, end
//	pump        one for each partition: claims messages while the consumer owns the partition
//	dispatcher  hands messages that were claimed to takers when they are due
//	admission   how much may be claimed and begun
//	leases      the messages held, and when their leases have to be extended
//
// Each part knows only those below it. Any consumer may claim any message: ownership of partitions
// only keeps consumers from contending.
type consumer struct {
	q          *Queue
	opts       ConsumerOptions
	name       string // among the members
	dispatcher *dispatcher

	ctx      context.Context // ends when no message is claimed or begun any more
	cancel   context.CancelCauseFunc
	life     context.Context // ends when no handler runs any more
	end      context.CancelFunc
	retiring sync.Once
	retired  chan struct{} // closed when retire is done
	aborting sync.Once
	aborted  chan struct{}  // closed by abort
	stopped  chan struct{}  // closed when stop is done
	claims   sync.WaitGroup // goroutines that end with ctx
	tasks    sync.WaitGroup // goroutines that end with life
}

// newConsumer starts a consumer if the queue has not been closed. q.mu is held. The caller calls
// stop, and q.consumers.Done when Shutdown need not wait for the consumer any more.
func (q *Queue) newConsumer(opts ConsumerOptions) (*consumer, error) {
	if q.closing {
		return nil, ErrClosed
	}
	c := &consumer{q: q, opts: opts, name: newID(q)}
	c.retired, c.aborted, c.stopped = make(chan struct{}), make(chan struct{}), make(chan struct{})
	c.life, c.end = context.WithCancel(q.ctx)
	c.ctx, c.cancel = context.WithCancelCause(c.life)
	d, err := newDispatcher(c.ctx, q, &c.opts)
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	c.dispatcher = d
	for _, p := range d.parts {
		p.pump = newPump(c, p)
		p.share.wake = p.pump.wake
	}
	c.start()
	return c, nil
}

// start makes the consumer claim. q.mu is held.
func (c *consumer) start() {
	c.q.consumers.Add(1)
	c.q.claiming[c] = struct{}{}
	c.claims.Go(c.membership)
	c.claims.Go(c.hints)
	c.tasks.Go(c.renewal)
}

// A consumer ends by retire, abort and stop. Each returns when it is done. The first two may be
// called several times and from several goroutines. Only the owner of the consumer, a call of
// Consume or a Receiver, calls stop.

// retire ends the claiming, gives back the messages that no taker has, and leaves the members.
// Takers settle their messages, and the leases of these are kept.
func (c *consumer) retire() {
	c.retiring.Do(func() {
		go func() {
			defer close(c.retired)
			c.cancel(ErrClosed)
			c.claims.Wait() // the pumps among them
			c.dispatcher.release((*held).releasable)
			c.leave()
		}()
	})
	<-c.retired
}

// abort makes the owner stop waiting for its takers, and waits until the owner has called stop.
func (c *consumer) abort() {
	c.aborting.Do(func() { close(c.aborted) })
	c.retire()
	<-c.stopped
}

// stop ends the leases and the consumer. The owner calls it once, when no taker has a message.
func (c *consumer) stop() {
	c.retire()
	c.end()
	c.tasks.Wait()
	c.dispatcher.drain()
	c.dispatcher.wheel.Stop()
	c.q.mu.Lock()
	delete(c.q.claiming, c)
	c.q.mu.Unlock()
	close(c.stopped)
}

// leave tells the other consumers that this one ends, so that they take over its partitions.
func (c *consumer) leave() {
	ctx, cancel := context.WithTimeout(c.q.ctx, leaveTime)
	defer cancel()
	if _, err := c.q.backend.Heartbeat(ctx, driver.Member{Name: c.name}, 0); err != nil && c.q.ctx.Err() == nil {
		c.q.report("leave the consumers: %w", err)
	}
}

// fail ends the consumer with err, unless the store may work again. The calls of Consume and Take
// then return err.
func (c *consumer) fail(err error) {
	if errors.Is(err, ErrBroken) || errors.Is(err, ErrClosed) && c.ctx.Err() == nil {
		c.cancel(err)
		go c.retire()
	}
}

// failure returns the error that has ended the consumer, or nil if there was none.
func (c *consumer) failure() error {
	// Exactly ErrClosed ends a consumer that has not failed.
	if err := context.Cause(c.ctx); err != ErrClosed { //nolint:errorlint // see above
		return err
	}
	return nil
}

// leaveTime is how long a consumer that ends tries to tell the others. If that fails, they notice
// after Membership.
const leaveTime = time.Second

// renewal extends leases in good time. If that fails, the context of the handler is cancelled
// before the lease ends.
func (c *consumer) renewal() {
	for c.life.Err() == nil {
		sleep(c.life, c.dispatcher.leases.period())
		c.dispatcher.renew(time.Now())
	}
}

// hints passes the store's hints to the pumps.
func (c *consumer) hints() {
	parts := c.dispatcher.parts
	for c.ctx.Err() == nil {
		hints, err := c.q.backend.Watch(c.ctx)
		if err != nil {
			if c.ctx.Err() == nil {
				c.q.report("watch: %w", err)
			}
			sleep(c.ctx, c.opts.Fallback)
			continue
		}
		for _, p := range parts { // messages that were enqueued meanwhile have sent no hint
			p.pump.wake()
		}
		for h := range hints {
			if h.Partition >= 0 && h.Partition < len(parts) {
				parts[h.Partition].pump.hint(h.Due)
			}
		}
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
