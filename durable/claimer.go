package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// partitionClaimer claims messages of one partition for a consumer.
//
// If the consumer owns the partition, the claimer claims messages shortly before they are due. It
// makes a claim when the next known message is due soon, when a hint announces an earlier message,
// when room or takers become available, and otherwise once per Fallback. Messages are claimed about
// three quarters of the horizon ahead, and about four times per horizon while no message is urgent.
// This way many messages share a claim, but no claim is so large that it delays other calls to the
// store for long. A message that is due within a fifth of the horizon is urgent.
//
// If another consumer owns the partition, the claimer visits it: it claims messages that are due,
// as many as this consumer has free takers. It visits the partition when a message has been due for
// a while, again soon if it has found messages, and otherwise after claimPeriod. A visitor never
// begins messages with a claim, and has no name unless an earlier claim as owner was not answered.
// Messages of a lost answer therefore return when their short leases expire, without a crash.
type partitionClaimer struct {
	c    *consumer
	part *consumerPart

	// Used only by run.
	own        bool      // the consumer owned the partition at the last claim
	mustBy     time.Time // an own partition is claimed by then: Fallback, or the end of its first lease
	seq        uint64    // of the last claim with a name
	seen       uint64    // the highest token that a claim with a name has returned
	unanswered bool      // the last claim with a name was not answered, and may have taken effect
	reported   time.Time // last report of unreadable messages
	found      time.Time // last visit that found messages

	// must is set by a hint without a due time: the next claim does not wait for a taker.
	must atomic.Bool

	mu      sync.Mutex
	next    time.Time     // time of the next claim
	earlier chan struct{} // capacity 1; signals that next became earlier
}

// claimPause is the pause between two claims that are not urgent, for other calls to the store.
const claimPause = 2 * time.Millisecond

func (p *partitionClaimer) run() {
	ctx := p.c.ctx
	for ctx.Err() == nil {
		var period time.Duration
		period, p.own = p.part.claimPeriod()
		p.mu.Lock()
		p.next = time.Now().Add(period)
		p.mu.Unlock()
		p.claim(ctx)
		if p.own {
			p.claimBy(p.mustBy)
		}
		for p.wait(ctx) {
		}
	}
	if p.unanswered {
		over := make(chan struct{})
		p.c.q.recoveries.Go(func() {
			p.releaseUnanswered()
			close(over)
			p.c.dispatcher.drain()
		})
		waitFor(over, leaveTime, p.c.life.Done())
	}
}

// claim claims as many messages as there is room for, and schedules the next claim.
func (p *partitionClaimer) claim(ctx context.Context) {
	for {
		sent := time.Now()
		must := p.must.Load() || p.unanswered || p.own && !sent.Before(p.mustBy)
		claim, own, ok := p.part.plan(must)
		if !ok || ctx.Err() != nil {
			return // room or a taker wakes the claimer
		}
		p.must.Store(false)
		p.mustBy = sent.Add(p.c.opts.Fallback)
		claimed, err := p.send(p.c.calls, claim, own || p.unanswered)
		if claimed.Lost {
			select {
			case p.c.q.health.again <- struct{}{}:
			default: // the next check follows anyway
			}
		}
		overdue := p.part.hold(claimed, sent)
		if err != nil {
			if ctx.Err() == nil && !deleted(err) {
				p.c.q.reportFault(fault{partition: p.part.index, err: fmt.Errorf("claim: %w", err), repeats: true})
			}
			p.c.fail(err)
			p.claimBy(sent.Add(failurePause))
			return
		}
		if p.own = own; own {
			p.report(claimed)
		}
		if !p.again(claim, claimed, overdue) {
			return
		}
	}
}

// again reports whether another claim must follow immediately, and otherwise schedules it.
func (p *partitionClaimer) again(claim driver.Claim, claimed driver.Claimed, overdue bool) bool {
	n, now := len(claimed.Records), time.Now()
	if p.own && claimed.Lease > 0 {
		if end := now.Add(max(0, p.part.clock.until(claimed.Lease)) + time.Millisecond); end.Before(p.mustBy) {
			p.mustBy = end
		}
	}
	if !p.own && n > 0 {
		p.found = now
	}
	switch {
	case claimed.Paused: // a hint wakes the claimer
	case overdue && (n > 0 || claim.Max == 0):
		return true
	case !p.own && n > 0:
		p.claimBy(now.Add(lateTime))
	case !p.own && claimed.Next > 0:
		p.expect(claimed.Next, now.Sub(p.found) < p.c.opts.Membership)
	case !p.own || claimed.Next == 0 || claim.Max == 0:
	case n > 0 && claimed.Next <= driver.InstantOf(claimed.Now).Add(claim.Horizon):
		if claimed.Next.Time().Sub(claimed.Now) <= p.c.opts.urgent() {
			return true
		}
		p.claimBy(now.Add(claimPause))
	default:
		left := p.part.clock.until(claimed.Next) // urgent if this claim had no Horizon; mostly the next one has
		p.claimBy(now.Add(cmp.Or(p.claimDelay(left), max(claimPause, left/2))))
	}
	return false
}

// send makes a claim. If the claim is named, send records the highest token that the consumer has
// received. The store then returns messages again that the consumer has not received, and rejects
// unanswered claims that arrive after this one.
func (p *partitionClaimer) send(ctx context.Context, claim driver.Claim, named bool) (driver.Claimed, error) {
	if !named {
		return p.c.q.backend.Claim(ctx, claim)
	}
	p.seq++
	claim.Consumer, claim.Seen, claim.Seq, claim.Repeat = p.c.name, p.seen, p.seq, p.unanswered
	claimed, err := p.c.q.backend.Claim(ctx, claim)
	p.unanswered = err != nil && !deleted(err)
	for i := range claimed.Records {
		p.seen = max(p.seen, claimed.Records[i].Token)
	}
	return claimed, err
}

// releaseUnanswered releases the messages of an unanswered claim when the consumer has ended.
// Otherwise no consumer would know of them until their leases expire, and messages that have begun
// would count a crash. It repeats an empty claim until the store has answered, for at most
// Visibility. After that the store rejects the unanswered claim if it arrives late.
func (p *partitionClaimer) releaseUnanswered() {
	ctx, cancel := context.WithTimeout(p.c.q.ctx, p.c.opts.Visibility)
	defer cancel()
	claim := p.c.dispatcher.admission.emptyClaim(&p.part.share)
	sent := time.Now()
	claimed, err := p.send(ctx, claim, true)
	for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		sleep(ctx, failurePause)
		claimed, err = p.send(ctx, claim, true)
	}
	if err != nil && p.c.q.ctx.Err() == nil {
		p.c.q.report("partition %d: the last claim was not answered: its messages are redelivered when their leases expire, "+
			"and messages that have begun count a crash: %w", p.part.index, err)
	}
	p.part.hold(claimed, sent) // releases them
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

// claimDelay returns how long to wait before a claim of a message that is due after left.
func (p *partitionClaimer) claimDelay(left time.Duration) time.Duration {
	horizon := p.c.opts.Horizon
	switch {
	case left <= p.c.opts.urgent():
		return 0
	case left <= horizon:
		return min(horizon/4, left-horizon/10)
	default:
		return left - horizon + horizon/4
	}
}

// failurePause is how long a claimer waits while the store is unreachable.
const failurePause = 250 * time.Millisecond

// hint makes the claimer claim in time for a message that has become the earliest of its partition.
func (p *partitionClaimer) hint(due driver.Instant) {
	if due == 0 {
		p.must.Store(true)
		p.wake()
		return
	}
	p.expect(due, false)
}

// expect schedules a claim for a message. In the partition of another consumer, about three of the
// consumers with free takers visit, or all in turn if the message is due. The owner comes first.
// always means that this consumer visits. No visit is added for a due message if one comes in time
// anyway, so all consumers together make at most about two visits per lateTime.
func (p *partitionClaimer) expect(due driver.Instant, always bool) {
	now, left, visitors := time.Now(), p.part.clock.until(due), 3
	own, free := p.part.expect(left)
	if left <= 0 {
		always, visitors = true, free
	}
	turns := time.Duration(visitors) * lateTime
	switch {
	case own:
		p.claimBy(now.Add(p.claimDelay(left)))
	case left <= 0 && p.comesBy(now.Add(lateTime+turns)):
	case always || rand.IntN(free) < visitors:
		p.claimBy(now.Add(max(0, left) + lateTime + rand.N(turns)))
	}
}

// comesBy reports whether the next claim is due by t.
func (p *partitionClaimer) comesBy(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.next.After(t)
}

func (p *partitionClaimer) wake() { p.claimBy(time.Now()) }

// claimBy makes the next claim happen no later than next.
func (p *partitionClaimer) claimBy(next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next.Before(p.next) {
		p.next = next
		select {
		case p.earlier <- struct{}{}:
		default:
		}
	}
}

// wait waits until the time of the next claim, and reports whether that time has changed.
func (p *partitionClaimer) wait(ctx context.Context) (changed bool) {
	p.mu.Lock()
	left := time.Until(p.next)
	p.mu.Unlock()
	// A due claim uses no timer: several due timers of a synctest bubble crash the race detector.
	return left > 0 && waitFor(p.earlier, left, ctx.Done())
}
