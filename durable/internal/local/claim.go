package local

import (
	"bytes"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// claim is a claim in a partition.
type claim struct {
	tx
	request *driver.Claim
	records []driver.Record
	size    int // of the bodies of records
	givenUp int // messages that ended the process too often
}

// run ends expired leases and leases messages. If an error follows the first leased message, run
// returns the messages and not the error, because their leases have begun. The next claim returns
// the error.
func (c *claim) run() (driver.Claimed, error) {
	p := c.p
	claimed := driver.Claimed{Now: c.now, Paused: p.counters.Paused}
	reserved := p.counters.Tokens
	err := c.endLeases()
	if err == nil {
		err = p.trimDead(c.now, c.limits)
	}
	switch {
	case err != nil:
	case !p.counters.Paused:
		err = c.takeNew()
	case !p.frontier.known:
		_ = p.findHead(nil) // if it fails, later claims do
	}
	if p.counters.Tokens != reserved { // seconds have passed since the last time
		c.deleteGone()
	}
	if err != nil && len(c.records) == 0 {
		return claimed, err
	}
	claimed.Records, claimed.Next = c.records, p.frontier.head
	claimed.Lease, claimed.Unreadable = p.leases.firstEnd(), len(p.frontier.unreadable)
	return claimed, nil
}

// deleteGone deletes the range in which all messages are gone. Scans and compactions then pass the
// keys that were deleted one by one. It is O(n) for n leases.
func (c *claim) deleteGone() {
	p, f := c.p, &c.p.frontier
	first := f.front
	if free, ok := f.free.Min(); ok {
		first = free.key
	}
	for _, l := range p.leases.byID {
		if l.before(first) {
			first = l.key
		}
	}
	if len(f.unreadable) == 0 && f.behind.before(first) {
		from := bytes.Clone(p.table.timeKey(kindScheduled, f.behind))
		p.s.db.DeleteRange(from, p.table.timeKey(kindScheduled, first))
		f.behind = first
		p.change()
	}
}

// endLeases ends expired leases, at most [driver.MaxBatch].
func (c *claim) endLeases() error {
	p := c.p
	for range driver.MaxBatch {
		if end := p.leases.firstEnd(); end == 0 || end > transition.Floor(c.now) {
			return nil
		}
		l := p.leases.ends.At(0)
		if !l.firing {
			p.endLease(l, 0)
			continue
		}
		at := l.place()
		if p.counters.Crashed++; l.marked() {
			p.counters.Cancelled++
			p.drop(at, 0)
			continue
		}
		r, err := p.table.read(at)
		if err != nil {
			return err
		}
		transition.Crash(&r.msg, string(process), c.now)
		r.last, r.msg.Token = 0, l.token
		if c.request.MaxCrashes > 0 && r.msg.Crashes >= c.request.MaxCrashes {
			transition.GiveUp(&p.counters.Counters, &r.msg, c.now)
		}
		p.move(at, r)
	}
	return nil
}

// takeNew leases messages in order of due time.
func (c *claim) takeNew() error {
	p := c.p
	for free, ok := p.frontier.free.Min(); ok; free, ok = p.frontier.free.Min() {
		k := free.key
		r, err := p.table.read(place{kindScheduled, k})
		if err != nil {
			return err
		}
		if !c.take(k, r) {
			break
		}
	}
	if err := p.findHead(c.take); err != nil || c.givenUp == 0 {
		return err
	}
	return p.findHead(nil) // the scan may not have seen the messages that now wait until Never
}

// take leases a message, or gives it up if it has ended the process too often. It reports false if
// the claim has no room for the message, or the message is due after its horizon.
func (c *claim) take(k key, r *record) bool {
	p := c.p
	switch {
	case len(c.records)+c.givenUp >= c.request.Max || k.at > transition.Floor(c.now).Add(c.request.Horizon) ||
		len(c.records) > 0 && c.size+len(r.msg.Body) > c.request.MaxBytes:
		return false
	case r.last == opCrash && c.request.MaxCrashes > 0 && r.msg.Crashes >= c.request.MaxCrashes:
		c.givenUp++
		r.last = 0
		transition.GiveUp(&p.counters.Counters, &r.msg, c.now)
		p.move(place{kindScheduled, k}, r)
		return true
	}
	token, reserved := p.nextToken(c.now)
	c.size += len(r.msg.Body)
	l := &lease{key: k, token: token, enqueued: r.msg.Enqueued, replaced: r.msg.Enqueued, crashed: r.msg.Crashes > 0,
		planned: r.msg.Planned}
	l.firing = len(c.records) < c.request.Begin && k.at <= transition.Floor(c.now) && contract.CrashDelay(r.msg.Crashes) == 0
	c.call.Waits = c.call.Waits || !reserved || l.firing && l.crashed
	l.end = transition.LeaseEnd(c.now, k.at, c.request.Visibility)
	if !l.firing && c.request.Hold > 0 {
		l.end = transition.LeaseEnd(c.now, k.at, c.request.Hold)
	}
	p.lease(l)
	c.records = append(c.records, p.export(r))
	return true
}
