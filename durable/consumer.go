package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// consumer is one call to Consume, or one Receiver: a member of the queue that claims messages and
// passes them to handlers or calls to Take.
//
//	consumer    the lifecycle of all parts: start, hints from the store, membership, end
//	claimer     one per partition: claims messages ahead if the consumer owns the partition, and
//	            messages that are overdue otherwise
//	dispatcher  passes claimed messages to takers when they are due
//	admission   how much may be claimed and begun
//	budget      limits, and handlers that several queues share
//	handover    matches begun messages with takers
//	held        the messages, and when their leases must be extended
//
// Each part depends only on the parts below it. Any consumer may claim any message: ownership of
// partitions reduces contention and latency, and never decides whether a message is delivered.
type consumer struct {
	q          *Queue
	opts       ConsumerOptions
	name       string // unique among the members
	dispatcher *dispatcher

	ctx      context.Context // ends when no more messages are claimed or begun
	cancel   context.CancelCauseFunc
	calls    context.Context // of claims and heartbeats; ends leaveTime after ctx
	life     context.Context // ends when no more handlers run
	end      context.CancelFunc
	retiring sync.Once
	retired  chan struct{} // closed when retire is done
	aborting sync.Once
	aborted  chan struct{}  // closed by abort
	stopped  chan struct{}  // closed when stop is done
	claims   sync.WaitGroup // goroutines that end with ctx
}

// newConsumer starts a consumer unless the queue is closing. q.mu is held. The caller must call
// stop, and q.consumers.Done as soon as Shutdown need not wait for the consumer.
func (q *Queue) newConsumer(opts ConsumerOptions, b budget) (*consumer, error) {
	if q.closing {
		return nil, ErrClosed
	}
	c := &consumer{q: q, opts: opts, name: newID(q)}
	c.retired, c.aborted, c.stopped = make(chan struct{}), make(chan struct{}), make(chan struct{})
	c.life, c.end = context.WithCancel(q.ctx)
	c.ctx, c.cancel = context.WithCancelCause(c.life)
	calls, endCalls := context.WithCancel(c.life)
	c.calls = calls
	context.AfterFunc(c.ctx, func() {
		sleep(calls, leaveTime)
		endCalls()
	})
	d, err := newDispatcher(c.ctx, q, &c.opts, b)
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	c.dispatcher = d
	for _, p := range d.parts {
		p.claimer = &partitionClaimer{c: c, part: p, earlier: make(chan struct{}, 1)}
		p.share.wake = p.claimer.wake
	}
	q.consumers.Add(1)
	q.claiming[c] = struct{}{}
	d.pending++ // until renewal returns
	go c.renewal()
	c.claims.Go(c.membership)
	c.claims.Go(c.hints)
	for _, p := range d.parts {
		c.claims.Go(p.claimer.run)
	}
	return c, nil
}

// A consumer ends by retire, abort and stop. Each returns when it is done. The first two may be
// called several times and concurrently. Only the owner of the consumer, a call to Consume or a
// Receiver, calls stop.

// retire stops claiming, releases the messages that no taker has, and leaves the membership. Takers
// settle their messages, whose leases are kept.
func (c *consumer) retire() {
	c.retiring.Do(func() {
		go func() {
			defer close(c.retired)
			c.cancel(ErrClosed)
			c.claims.Wait() // for the claimers too
			c.dispatcher.release((*heldMessage).releasable)
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
	c.dispatcher.drain()
	if h := turn.Load(); h != nil && h.part.d == c.dispatcher { // abandoned, or the store does not answer
		h.endTurn()
	}
	c.dispatcher.wheel.Stop()
	c.dispatcher.checker.Stop()
	c.dispatcher.admission.budget.timer.Stop()
	c.q.mu.Lock()
	delete(c.q.claiming, c)
	c.q.mu.Unlock()
	close(c.stopped)
}

// leave removes the consumer from the membership.
func (c *consumer) leave() {
	ctx, cancel := context.WithTimeout(c.q.ctx, leaveTime)
	defer cancel()
	if _, err := c.q.backend.Heartbeat(ctx, driver.Member{Name: c.name}, 0); err != nil && c.q.ctx.Err() == nil && !deleted(err) {
		c.q.report("leave the consumers: %w", err)
	}
}

// deleted reports whether a call failed because the queue was deleted. Such an error ends the
// consumer, and is not reported as well.
func deleted(err error) bool { return errors.Is(err, ErrNoQueue) || errors.Is(err, ErrPartitions) }

// fail ends the consumer with err if the store will not serve it. The calls to Consume and Take
// then return err.
func (c *consumer) fail(err error) {
	final := []error{ErrBroken, ErrLocked, ErrInvalid, ErrNoQueue, ErrPartitions, ErrClosed}
	if c.ctx.Err() == nil && slices.ContainsFunc(final, func(kind error) bool { return errors.Is(err, kind) }) {
		c.cancel(err)
		go c.retire()
	}
}

// failure returns the error that ended the consumer, or nil.
func (c *consumer) failure() error {
	// A consumer that has not failed ends with exactly ErrClosed.
	if err := context.Cause(c.ctx); err != ErrClosed { //nolint:errorlint // see above
		return err
	}
	return nil
}

// leaveTime is how long an ending consumer waits for its claims and heartbeats in progress, and
// tries to leave the membership. If a claim were abandoned, its messages might have to be claimed
// again. If a heartbeat were abandoned, it might take effect after the call to leave, and the
// consumer would be listed until Membership has passed.
const leaveTime = time.Second

// renewal extends leases in time. If an extension fails, the handler's context is cancelled before
// the lease expires.
func (c *consumer) renewal() {
	defer c.dispatcher.done()
	for c.life.Err() == nil {
		sleep(c.life, c.opts.hold()/leaseChecks)
		c.dispatcher.renew(time.Now())
	}
}

// maxHintsPause limits the pause between two attempts to receive hints.
const maxHintsPause = time.Minute

// hints passes the store's hints to the claimers.
func (c *consumer) hints() {
	parts, reported, pause := c.dispatcher.parts, "", c.opts.Fallback
	for c.ctx.Err() == nil {
		hints, err := c.q.backend.Watch(c.ctx)
		if err != nil {
			if c.ctx.Err() == nil && err.Error() != reported && !deleted(err) {
				reported = err.Error()
				c.q.report("messages may be late by %v (ConsumerOptions.Fallback): watch: %w", c.opts.Fallback, err)
			}
			sleep(c.ctx, pause)
			pause = min(2*pause, max(pause, maxHintsPause))
			continue
		}
		reported, pause = "", c.opts.Fallback
		for _, p := range parts { // messages enqueued or interrupted in the meantime sent no hint
			p.claimer.wake()
		}
		c.interrupt(func(*heldMessage) bool { return true })
		for h := range hints {
			switch {
			case h.Partition < 0 || h.Partition >= len(parts):
			case h.ID != "":
				c.interrupt(func(m *heldMessage) bool { return m.part == parts[h.Partition] && m.record.ID == h.ID })
			default:
				parts[h.Partition].claimer.hint(h.Due)
			}
		}
	}
}

// interrupt extends the leases of the messages for which ok returns true, if their handlers run.
// The answer interrupts the handler if the message was cancelled.
func (c *consumer) interrupt(ok func(*heldMessage) bool) {
	d := c.dispatcher
	d.mu.Lock()
	defer d.unlock()
	for h := range d.held {
		if h.renew && h.state == heldTaken && ok(h) {
			d.extend(h)
		}
	}
}

// sleep waits until d has passed or ctx ends.
func sleep(ctx context.Context, d time.Duration) { waitFor(ctx.Done(), d, nil) }
