package durable

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// consumer claims messages ahead of their due times, waits for these in a timing wheel of its own, and begins those that are due
// when somebody wants one. It owns a share of the partitions, which it agrees on with the other consumers of the queue; a
// pump for each of them does the claiming.
//
// A message is claimed once, whoever owns its partition: ownership only keeps consumers from contending.
type consumer struct {
	q        *Queue
	opts     ConsumerOptions
	name     string // among the members
	wheel    *timingwheel.Timeouts[*held]
	parts    []*consumed
	ctx      context.Context // ends when nothing is to be claimed or begun any more
	cancel   context.CancelCauseFunc
	life     context.Context // ends when no handler runs any more
	handling context.Context // of handlers: the context of the queue, with a mark
	end      context.CancelFunc
	retiring sync.Once
	retired  chan struct{}  // closed when it has retired
	claims   sync.WaitGroup // goroutines that end with ctx
	tasks    sync.WaitGroup // those that end with life

	mu        sync.Mutex
	held      map[*held]struct{}
	ready     fifo[*held]     // due, in the order in which they became so, with some that are gone
	gone      int             // of ready, about
	takers    fifo[*taker]    // with some that have left
	waiting   int             // takers that have not left
	beginning int             // messages that the store has been told of and has not answered, those that wait for their due time, and takers that are granted; but for partitions that are away
	begun     fifo[*held]     // that wait for a taker: see pace
	hungry    fifo[*consumed] // partitions that wait for a grant
	pace      pace
	owned     int           // partitions
	pending   int           // calls of the store, and messages that wait for their due time, that stop waits for
	drained   chan struct{} // closed when there are none any more; made by drain
	told      []error       // to be reported when mu is unlocked
	idleSince time.Time     // when somebody waited last
}

// consumed is a consumer's share in a partition.
type consumed struct {
	*pump
	begins  batcher[driver.Change, answer]
	clock   serverClock   // of the server that keeps the partition: those of a Cluster need not agree
	unbegun int           // mu of the consumer: messages claimed and not begun
	bytes   int           // mu: of these
	starved bool          // mu: the pump would claim more if there were fewer
	overdue bool          // mu: the store has messages that are due, as far as is known
	granted int           // mu: takers put aside for its claim
	hungry  bool          // mu: it stands in the consumer's hungry
	claims  uint          // mu: those that are over
	trip    time.Duration // mu: how long the last answer took, at most beginPatience

	asked  int         // mu: messages whose begin has not been answered
	call   uint        // mu: odd while a call of begins is under way, one more with each beginning and end of one
	away   bool        // mu: that call takes long
	parked fifo[*held] // mu: messages that are due and wait until it is over
}

// wheelTick is finer than the milliseconds of due times, so that rounding up to it costs little.
const wheelTick = 250 * time.Microsecond

// newConsumer starts a consumer, if the queue has not been closed. q.mu is held.
func (q *Queue) newConsumer(opts ConsumerOptions) (*consumer, error) {
	if q.closing {
		return nil, ErrClosed
	}
	c := &consumer{q: q, opts: opts, name: newID(q), held: make(map[*held]struct{}), retired: make(chan struct{}), idleSince: time.Now()}
	wheel, err := timingwheel.NewTimeouts(timingwheel.Options{Tick: wheelTick, Shards: 1}, c.expire)
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	c.wheel = wheel
	c.life, c.end = context.WithCancel(q.ctx)
	c.ctx, c.cancel = context.WithCancelCause(c.life)
	c.handling = context.WithValue(q.ctx, handling{q}, true)
	for i, part := range q.parts {
		p := &consumed{pump: newPump(c, i)}
		part.gather(&p.begins, c.watched(p, p.beginAll))
		c.parts = append(c.parts, p)
	}
	c.start()
	return c, nil
}

// beginAll tells the store of messages that begin. Their leases are moved only where one of them would be too short.
func (p *consumed) beginAll(changes []driver.Change) ([]answer, error) {
	batch := driver.Batch{Partition: p.part, Op: driver.OpBegin, Lead: beginLead, Changes: changes}
	for i := range changes {
		batch.Visibility = max(batch.Visibility, changes[i].Delay)
	}
	return p.c.q.parts[p.part].apply(batch)
}

// start makes the consumer claim. q.mu is held.
func (c *consumer) start() {
	c.q.consumers.Add(1)
	c.q.claiming[c] = struct{}{}
	c.claims.Go(c.membership)
	c.claims.Go(c.hints)
	c.tasks.Go(c.renewal)
}

// retire ends the claiming and gives back what has not begun. Several may call it; it is done once, and each returns when it is done.
func (c *consumer) retire() {
	c.retiring.Do(func() {
		go func() {
			defer close(c.retired)
			c.cancel(ErrClosed)
			c.claims.Wait() // the pumps among them
			c.release(-1)
		}()
	})
	<-c.retired
}

// stop retires, waits for calls of the store that are under way, and leaves. Nobody has a message of a handler any more.
func (c *consumer) stop() {
	c.retire()
	c.end()
	c.tasks.Wait()
	c.drain()
	c.wheel.Stop()
	ctx, cancel := context.WithTimeout(c.q.ctx, leaveTime)
	defer cancel()
	if _, err := c.q.backend.Heartbeat(ctx, c.name, 0); err != nil && c.q.ctx.Err() == nil {
		c.q.report("leave the consumers: %w", err)
	}
	c.q.mu.Lock()
	delete(c.q.claiming, c)
	c.q.mu.Unlock()
	c.q.consumers.Done()
}

// drain waits until nothing is pending.
func (c *consumer) drain() {
	c.mu.Lock()
	if c.pending == 0 {
		c.mu.Unlock()
		return
	}
	drained := make(chan struct{})
	c.drained = drained
	c.mu.Unlock()
	<-drained
}

// done ends something that was pending. mu is held.
func (c *consumer) done() {
	if c.pending--; c.pending == 0 && c.drained != nil {
		close(c.drained)
		c.drained = nil
	}
}

// unlock unlocks mu, and then reports what has been noted under it: whoever is told may ask something of the queue.
func (c *consumer) unlock() {
	told := c.told
	c.told = nil
	c.mu.Unlock()
	for _, err := range told {
		c.q.report("%w", err)
	}
}

// leaveTime is how long a consumer that ends tries to tell the others. If it fails they notice after Membership.
const leaveTime = time.Second

// hints lets the pumps know what the store's hints say.
func (c *consumer) hints() {
	for c.ctx.Err() == nil {
		hints, err := c.q.backend.Watch(c.ctx)
		if err != nil {
			if c.ctx.Err() == nil {
				c.q.report("watch: %w", err)
			}
			pause(c.ctx, c.opts.Fallback)
			continue
		}
		for _, p := range c.parts { // what was enqueued meanwhile has sent no hint
			p.wake()
		}
		for h := range hints {
			if h.Partition >= 0 && h.Partition < len(c.parts) {
				c.parts[h.Partition].hint(h.Due)
			}
		}
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (q *Queue) report(format string, args ...any) {
	q.options.OnError(fmt.Errorf("durable: queue %q: "+format, append([]any{q.options.Queue}, args...)...))
}
