package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// partitionClaimer claims messages of one partition shortly before they are due, while the consumer
// owns the partition.
//
// A claimer makes a claim when the next known message is due soon, when a hint announces an earlier
// message, when room or a grant becomes available, and otherwise once per Fallback. Each claim also
// ends expired leases.
//
// Messages are claimed about nine tenths of the horizon ahead, and at most ten times per horizon
// while no message is urgent. This way many messages share a claim, but no claim is so large that
// it delays other calls to the store for long. A message that is due within a fifth of the horizon
// is urgent.
type partitionClaimer struct {
	c      *consumer
	part   *consumerPart
	cancel context.CancelFunc // nil: the partition is not owned. Used by membership only
	done   chan struct{}

	recovery *recovery // the latest, started by run and ended by start; nil: none

	// Used only by run, and by the recovery after it.
	claimed    time.Time // start of the last claim
	leaseEnd   time.Time // end of the first lease to expire; zero: none
	seq        uint64    // of the last claim
	seen       uint64    // the highest token that the consumer has received
	unanswered bool      // the last claim was not answered, and may have taken effect
	reported   time.Time // last report of unreadable messages

	// skipGrant is set by a hint without a due time: the next claim does not wait for a grant.
	skipGrant atomic.Bool

	mu          sync.Mutex
	next        time.Time     // time of the next claim
	rescheduled chan struct{} // capacity 1; signals that next became earlier
}

// claimPause is the pause between two claims that are not urgent, which leaves the store to other
// calls.
const claimPause = 2 * time.Millisecond

func newPartitionClaimer(c *consumer, part *consumerPart) *partitionClaimer {
	return &partitionClaimer{c: c, part: part, rescheduled: make(chan struct{}, 1)}
}

func (p *partitionClaimer) start() {
	if p.recovery != nil { // run repeats its claim
		p.recovery.cancel()
		<-p.recovery.claimed
		p.recovery = nil
	}
	ctx, cancel := context.WithCancel(p.c.ctx)
	p.cancel, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		p.run(ctx)
	}()
}

// stop ends the claiming and releases the messages that no taker has.
func (p *partitionClaimer) stop() {
	p.cancel()
	<-p.done
	p.cancel = nil
	p.c.dispatcher.release(func(h *heldMessage) bool { return h.part == p.part && h.releasable() })
}

func (p *partitionClaimer) run(ctx context.Context) {
	for ctx.Err() == nil {
		next := time.Now().Add(p.c.opts.Fallback)
		if !p.leaseEnd.IsZero() && p.leaseEnd.Before(next) {
			next = p.leaseEnd
		}
		p.mu.Lock()
		p.next = next
		p.mu.Unlock()
		p.claim(ctx)
		p.wait(ctx)
	}
	if p.unanswered {
		p.recover()
		waitFor(p.recovery.over, leaveTime, p.c.life.Done())
	}
	p.c.dispatcher.disowned(p.part)
}

// claim claims as many messages as there is room for, and schedules the next claim.
func (p *partitionClaimer) claim(ctx context.Context) {
	for again := false; ; again = true {
		sent := time.Now()
		stale := p.skipGrant.Load() || sent.Sub(p.claimed) >= p.c.opts.Fallback ||
			!p.leaseEnd.IsZero() && !sent.Before(p.leaseEnd)
		claim, ok := p.c.dispatcher.plan(p.part, stale)
		if !ok || claim.Max == 0 && again {
			return // free room or a grant wakes the claimer
		}
		p.skipGrant.Store(false)
		p.claimed, p.leaseEnd = sent, time.Time{}
		claimed, err := p.call(ctx, claim)
		p.c.dispatcher.hold(p.part, claimed, sent)
		p.report(claimed)
		if err != nil {
			if ctx.Err() == nil {
				p.c.q.reportFault(fault{partition: p.part.index, err: fmt.Errorf("claim: %w", err)})
			}
			p.c.fail(err)
			p.claimBy(sent.Add(failurePause))
			return
		}
		if claimed.Lease > 0 {
			p.leaseEnd = time.Now().Add(max(0, p.part.clock.until(claimed.Lease)) + time.Millisecond)
			p.claimBy(p.leaseEnd)
		}
		if claimed.Paused {
			return // a hint wakes the claimer
		}
		if claimed.Next > 0 && claimed.Next <= driver.InstantOf(claimed.Now).Add(claim.Horizon) && len(claimed.Records) > 0 {
			if claimed.Next.Time().Sub(claimed.Now) > p.c.opts.urgent() {
				p.claimBy(time.Now().Add(claimPause))
				return
			}
			continue
		}
		if claimed.Next > 0 && claim.Max > 0 {
			p.claimBy(time.Now().Add(p.claimDelay(claimed.Next)))
		}
		return
	}
}

// call makes a claim. When ctx ends, a call in progress gets a grace period. If it were abandoned,
// its messages might have to be claimed again.
func (p *partitionClaimer) call(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	if ctx.Err() != nil {
		return driver.Claimed{}, context.Cause(ctx)
	}
	longer, cancel := p.c.graceContext(ctx)
	defer cancel()
	return p.send(longer, claim)
}

// graceContext returns a context for a call to the store that ends leaveTime after ctx. The caller
// must call cancel when the call has returned.
func (c *consumer) graceContext(ctx context.Context) (longer context.Context, cancel context.CancelFunc) {
	longer, end := context.WithCancel(c.life)
	stop := context.AfterFunc(ctx, func() {
		sleep(longer, leaveTime)
		end()
	})
	return longer, func() {
		stop()
		end()
	}
}

// send makes a claim and records the highest token that the consumer has received. The store
// returns messages again that the consumer has not received, and rejects unanswered claims that
// arrive after this one.
func (p *partitionClaimer) send(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	p.seq++
	claim.Consumer, claim.Seen, claim.Seq, claim.Repeat = p.c.name, p.seen, p.seq, p.unanswered
	claimed, err := p.c.q.backend.Claim(ctx, claim)
	p.unanswered = err != nil
	for i := range claimed.Records {
		p.seen = max(p.seen, claimed.Records[i].Token)
	}
	return claimed, err
}

// recovery releases the messages of an unanswered claim after its claimer has stopped. Otherwise no
// consumer would know of them until their leases expire, and messages that have begun would count a
// crash. The recovery ends with the queue. It delays the end of the consumer by at most leaveTime.
type recovery struct {
	cancel  context.CancelFunc // ends its claims
	claimed chan struct{}      // closed after the last claim
	over    chan struct{}      // closed after its messages are released as well
}

// recover starts a recovery, which repeats an empty claim until the store has answered, for at most
// Visibility.
func (p *partitionClaimer) recover() {
	ctx, cancel := context.WithTimeout(p.c.q.ctx, p.c.opts.Visibility)
	r := &recovery{cancel, make(chan struct{}), make(chan struct{})}
	p.recovery = r
	p.c.q.recoveries.Go(func() {
		defer close(r.over)
		records := p.claimUnseen(ctx)
		cancel()
		close(r.claimed)
		p.release(records)
	})
}

// claimUnseen returns the messages of the unanswered claims. After the store has answered, it
// rejects these claims if they arrive late.
func (p *partitionClaimer) claimUnseen(ctx context.Context) []driver.Record {
	for {
		claimed, err := p.send(ctx, p.c.dispatcher.admission.emptyClaim(&p.part.share))
		if err == nil {
			return claimed.Records
		}
		if ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
			sleep(ctx, failurePause)
		}
		if ctx.Err() != nil || !errors.Is(err, ErrUnavailable) {
			if p.c.q.ctx.Err() == nil && !errors.Is(ctx.Err(), context.Canceled) {
				p.c.q.report("partition %d: the last claim was not answered: its messages are redelivered when their leases expire, "+
					"and messages that have begun count a crash: %w", p.part.index, err)
			}
			return nil
		}
	}
}

// release releases messages that the dispatcher does not know, and waits for the answers.
func (p *partitionClaimer) release(records []driver.Record) {
	var answers sync.WaitGroup
	for i := range records {
		answers.Add(1)
		change := driver.Change{ID: records[i].ID, Token: records[i].Token}
		p.part.changes[driver.OpRelease].send(change, func(_ answer, err error) {
			defer answers.Done()
			if err != nil && p.c.q.ctx.Err() == nil {
				p.c.q.reportFault(fault{partition: p.part.index, id: change.ID, err: fmt.Errorf("release: %w", err)})
			}
		})
	}
	answers.Wait()
}

// reportPeriod is the minimum time between two reports of a partition's unreadable messages.
const reportPeriod = time.Minute

// report reports unreadable messages: immediately, and then at most once per reportPeriod.
func (p *partitionClaimer) report(claimed driver.Claimed) {
	if claimed.Unreadable == 0 || !p.reported.IsZero() && time.Since(p.reported) < reportPeriod {
		return
	}
	p.c.q.report("partition %d: %d messages cannot be read: a newer version wrote them, or they are damaged; they stay in the queue: %w",
		p.part.index, claimed.Unreadable, ErrVersion)
	p.reported = time.Now()
}

// claimDelay returns the time from now until the claimer should claim a message.
func (p *partitionClaimer) claimDelay(due driver.Instant) time.Duration {
	horizon := p.c.opts.Horizon
	switch left := p.part.clock.until(due); {
	case left <= p.c.opts.urgent():
		return 0
	case left <= horizon:
		return horizon / 10
	default:
		return left - horizon + horizon/10
	}
}

// failurePause is how long a claimer waits while the store is unreachable.
const failurePause = 250 * time.Millisecond

// hint makes the claimer claim in time for a message that has become the earliest of its partition.
func (p *partitionClaimer) hint(due driver.Instant) {
	next := time.Now()
	if due > 0 {
		next = next.Add(p.claimDelay(due))
		p.c.dispatcher.expect(p.part, due)
	} else {
		p.skipGrant.Store(true)
	}
	p.claimBy(next)
}

func (p *partitionClaimer) wake() { p.claimBy(time.Now()) }

// claimBy makes the next claim happen no later than next.
func (p *partitionClaimer) claimBy(next time.Time) {
	p.mu.Lock()
	earlier := next.Before(p.next)
	if earlier {
		p.next = next
	}
	p.mu.Unlock()
	if earlier {
		select {
		case p.rescheduled <- struct{}{}:
		default:
		}
	}
}

// wait waits until the time of the next claim.
func (p *partitionClaimer) wait(ctx context.Context) {
	for {
		p.mu.Lock()
		next := p.next
		p.mu.Unlock()
		t := time.NewTimer(time.Until(next))
		select {
		case <-t.C:
			return
		case <-p.rescheduled:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}
