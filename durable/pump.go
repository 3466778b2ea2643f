package durable

import (
	"context"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// pump claims the near future of one partition while the consumer owns it.
//
// It looks at the partition when the next message that it knows of comes near, when a hint says that an earlier one has come,
// when there is room again after there was none, and otherwise once in each Fallback, when it also ends the leases that are over.
type pump struct {
	c      *consumer
	part   int
	cancel context.CancelFunc // nil: the partition is not owned. Touched by the membership's goroutine only
	done   chan struct{}

	// Touched by run only.
	claimed    time.Time // when it asked the store last
	over       time.Time // when the first lease is over, zero: there is none
	seen       uint64    // the highest token that it has received
	unanswered bool      // the last claim was not answered, and may have taken place
	lost       int       // messages without a record that were not reported yet
	reported   time.Time // when lost and unreadable messages were reported last

	mu     sync.Mutex
	next   time.Time     // when it looks at the partition again
	kicked chan struct{} // of capacity one: next has come nearer
}

// A pump looks so that messages are claimed about nine tenths of the horizon ahead, and at most ten times in a horizon while nothing is
// urgent: so many are claimed together, but not so many that other calls of the store have to wait for it. What is due within a fifth of
// the horizon is claimed at once.
func (c *consumer) step() time.Duration   { return c.opts.Horizon / 10 }
func (c *consumer) urgent() time.Duration { return c.opts.Horizon / 5 }

// claimPause is what other calls of the store get between two claims that are not urgent.
const claimPause = 2 * time.Millisecond

func newPump(c *consumer, part int) *pump {
	return &pump{c: c, part: part, kicked: make(chan struct{}, 1)}
}

func (p *pump) start() {
	ctx, cancel := context.WithCancel(p.c.ctx)
	p.cancel, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		p.run(ctx)
	}()
}

// stop ends the claiming and gives back what has not begun.
func (p *pump) stop() {
	p.cancel()
	<-p.done
	p.cancel = nil
	p.c.release(p.part)
}

func (p *pump) run(ctx context.Context) {
	for ctx.Err() == nil {
		next := time.Now().Add(p.c.opts.Fallback)
		if !p.over.IsZero() && p.over.Before(next) {
			next = p.over
		}
		p.mu.Lock()
		p.next = next
		p.mu.Unlock()
		p.claim(ctx)
		p.wait(ctx)
	}
	if p.unanswered {
		p.claimUnseen()
	}
	p.c.starve(p.c.parts[p.part])
}

// claim claims what there is room for, and sees to it that the pump looks again in time for more.
func (p *pump) claim(ctx context.Context) {
	for again := false; ; again = true {
		sent := time.Now()
		stale := sent.Sub(p.claimed) >= p.c.opts.Fallback || !p.over.IsZero() && !sent.Before(p.over)
		claim, ok := p.c.plan(p.c.parts[p.part], stale)
		if !ok || claim.Max == 0 && again {
			return // whoever makes room, or grants takers, wakes the pump
		}
		p.claimed, p.over = sent, time.Time{}
		claimed, err := p.call(ctx, claim)
		p.c.hold(p.part, claimed, sent)
		p.report(claimed)
		if err != nil {
			if ctx.Err() == nil {
				p.c.q.report("claim from partition %d: %w", p.part, err)
			}
			p.sooner(sent.Add(failurePause))
			return
		}
		if claimed.Lease > 0 {
			p.over = time.Now().Add(max(0, p.c.parts[p.part].clock.until(claimed.Lease)) + time.Millisecond)
			p.sooner(p.over)
		}
		if claimed.Next > 0 && claimed.Next <= driver.InstantOf(claimed.Now).Add(claim.Horizon) && len(claimed.Records) > 0 {
			if claimed.Next.Time().Sub(claimed.Now) > p.c.urgent() {
				p.sooner(time.Now().Add(claimPause))
				return
			}
			continue
		}
		if claimed.Next > 0 && claim.Max > 0 {
			p.sooner(time.Now().Add(p.c.lead(p.part, claimed.Next)))
		}
		return
	}
}

// call claims. A call that is under way goes on for a moment when ctx ends, as otherwise its messages might be leased to nobody.
func (p *pump) call(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	if ctx.Err() != nil {
		return driver.Claimed{}, context.Cause(ctx)
	}
	if claim.Begin > 0 {
		defer p.c.patient(p.c.parts[p.part]).Stop()
	}
	longer, cancel := context.WithCancel(p.c.life)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		pause(longer, leaveTime)
		cancel()
	})()
	return p.send(longer, claim)
}

// send claims, and keeps account of what the consumer has received. The store gives it again what it has not.
func (p *pump) send(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	claim.Consumer, claim.Seen = p.c.name, p.seen
	claimed, err := p.c.q.backend.Claim(ctx, claim)
	p.unanswered = err != nil
	for i := range claimed.Records {
		p.seen = max(p.seen, claimed.Records[i].Token)
	}
	return claimed, err
}

// claimUnseen takes over what a claim has given whose answer was lost, when no other claim follows. It is given back with
// all else that has not begun; otherwise it would count crashes when its leases end.
func (p *pump) claimUnseen() {
	ctx, cancel := context.WithTimeout(p.c.life, leaveTime)
	defer cancel()
	sent := time.Now()
	claim := driver.Claim{Partition: p.part, Visibility: p.c.opts.Visibility, Hold: p.c.holdTime(), MaxCrashes: p.c.opts.MaxCrashes}
	claimed, err := p.send(ctx, claim)
	p.c.hold(p.part, claimed, sent)
	if err != nil && p.c.q.ctx.Err() == nil {
		p.c.q.report("claim from partition %d: %w", p.part, err)
	}
}

// reportPeriod is the least time between two reports of a partition's lost and unreadable messages.
const reportPeriod = time.Minute

// report reports messages that were lost or cannot be read: at once, and then as often as reportPeriod says.
func (p *pump) report(claimed driver.Claimed) {
	p.lost += claimed.Lost
	if p.lost == 0 && claimed.Unreadable == 0 || !p.reported.IsZero() && time.Since(p.reported) < reportPeriod {
		return
	}
	if p.lost > 0 {
		p.c.q.report("partition %d: %d messages are lost: their records are gone, as the server has evicted them or someone has deleted them", p.part, p.lost)
	}
	if claimed.Unreadable > 0 {
		p.c.q.report("partition %d: %d messages cannot be read: a newer version has written them, or they are damaged; they stay in the queue: %w",
			p.part, claimed.Unreadable, ErrVersion)
	}
	p.lost, p.reported = 0, time.Now()
}

// lead is how long from now the store should be asked for a message.
func (c *consumer) lead(part int, due driver.Instant) time.Duration {
	switch left := c.parts[part].clock.until(due); {
	case left <= c.urgent():
		return 0
	case left <= c.opts.Horizon:
		return c.step()
	default:
		return left - c.opts.Horizon + c.step()
	}
}

// failurePause is how long a pump waits where the store cannot be reached.
const failurePause = 250 * time.Millisecond

// quota is the number of messages that each owned partition may have claimed and not begun.
func (c *consumer) quota() int { return max(1, c.opts.Prefetch/max(1, c.owned)) }

// quotaBytes is how many bytes of them.
func (c *consumer) quotaBytes() int { return max(1, c.opts.PrefetchBytes/max(1, c.owned)) }

// room is how many messages, and bytes of them, a partition may claim, and how far ahead. A quarter is kept for what is due soon, so that it
// need not wait until there is room among what is due later. mu is held.
func (c *consumer) room(p *consumed) (messages, bytes int, horizon time.Duration) {
	most := c.quotaBytes()
	messages, bytes = c.quota()-p.unbegun, most-p.bytes
	p.starved = messages <= 0 || bytes <= 0
	if p.starved {
		return 0, 1, c.opts.Horizon
	}
	if m, b := messages-c.quota()/4, bytes-most/4; m > 0 && b > 0 {
		return m, b, c.opts.Horizon
	}
	return messages, bytes, 2 * c.urgent()
}

// hint lets the pump look at the partition in time for a message that has become its earliest.
func (p *pump) hint(due driver.Instant) {
	next := time.Now()
	if due > 0 {
		next = next.Add(p.c.lead(p.part, due))
		p.c.expect(p.c.parts[p.part], due)
	}
	p.sooner(next)
}

func (p *pump) wake() { p.sooner(time.Now()) }

// sooner lets the pump look no later than at next.
func (p *pump) sooner(next time.Time) {
	p.mu.Lock()
	earlier := next.Before(p.next)
	if earlier {
		p.next = next
	}
	p.mu.Unlock()
	if earlier {
		select {
		case p.kicked <- struct{}{}:
		default:
		}
	}
}

// wait waits until it is time to look at the partition.
func (p *pump) wait(ctx context.Context) {
	for {
		p.mu.Lock()
		next := p.next
		p.mu.Unlock()
		t := time.NewTimer(time.Until(next))
		select {
		case <-t.C:
			return
		case <-p.kicked:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}
