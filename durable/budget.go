package durable

import (
	"math"
	"sync"
	"time"
)

// budget bounds what a consumer begins, in addition to its free takers: by its shares of the limits
// of its [Source], and by the handlers that it shares with other sources. It is guarded by the
// dispatcher's mutex.
type budget struct {
	source   Source
	pool     *poolMember   // nil: the handlers are not shared
	running  int           // share of Source.MaxRunning
	interval time.Duration // between two deliveries at the share of Source.Rate; 0: no share
	next     time.Time     // when the next delivery may begin at that rate
	timer    *time.Timer   // calls dispatcher.match then
	joined   time.Time     // when the first heartbeat was answered; used only by consumer.share
	denied   bool          // since the last settle the pool had too few handlers
}

// allow returns how many of n messages for which takers wait may begin now.
func (b *budget) allow(a *admission, n int) int {
	used := b.used(a)
	if b.source.MaxRunning > 0 {
		n = min(n, b.running-used-a.slow)
	}
	if b.source.Rate > 0 {
		n = min(n, b.tokens(time.Now())-a.reserved)
	}
	if n <= 0 || b.pool == nil {
		return n
	}
	most := b.pool.hold(used, n)
	b.denied = b.denied || most < n
	return most
}

// used returns the number of handlers that run or are reserved, except those of slow partitions.
func (b *budget) used(a *admission) int {
	return a.opts.Concurrency - a.handover.takers.len() + a.reserved + a.handover.begun.len()
}

// settle ends what allow has allowed and was not used, and starts the timer if messages wait for
// the rate. It reports whether messages wait for the pool.
func (b *budget) settle(a *admission) (denied bool) {
	denied, b.denied = b.denied, false
	if b.pool != nil {
		b.pool.settle(b.used(a), denied)
	}
	if b.source.Rate > 0 && a.ready.len()+a.suspects.len()+a.waiting.len() > 0 {
		if wait := time.Until(b.next); wait > 0 {
			b.timer.Reset(wait)
		}
	}
	return denied
}

// share sets the consumer's share of the limits, in units of 1/all.
func (b *budget) share(units, all int) {
	b.running, b.interval = units, 0
	if units > 0 {
		interval := float64(time.Second) / b.source.Rate * float64(all) / float64(units)
		b.interval = time.Duration(max(1, min(interval, math.MaxInt64/2)))
	}
}

// tokens returns the number of deliveries that the rate allows now.
func (b *budget) tokens(now time.Time) int {
	late := now.Sub(b.earliest(now))
	if b.interval == 0 || late < 0 {
		return 0
	}
	return int(late/b.interval) + 1
}

// earliest returns when the next delivery may be made, or could have been made. Up to lateTime is
// made up for, so that many messages can begin with one call.
func (b *budget) earliest(now time.Time) time.Time {
	if first := now.Add(b.interval - max(b.interval, lateTime)); b.next.Before(first) {
		return first
	}
	return b.next
}

// delivered records a delivery.
func (b *budget) delivered(now time.Time) {
	if b.source.Rate > 0 {
		b.next = b.earliest(now).Add(b.interval)
	}
}

// pool is the handlers that the sources of one call to [Consume] share. One is kept free for each
// source that has none. A source that wants more than it has receives a free one if it has the
// fewest, in proportion to its weight.
type pool struct {
	mu      sync.Mutex
	free    int
	members []*poolMember // fixed before the first hold
}

// poolMember is a source of a pool. The pool's mutex guards the fields.
type poolMember struct {
	pool   *pool
	weight int
	used   int  // handlers that run or are reserved
	more   int  // others that it may use until settle
	wants  bool // it wants others, and the pool had too few
}

// hold gives the source up to n handlers beside the used ones, and returns how many. It may use
// them until settle.
func (m *poolMember) hold(used, n int) int {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += m.used + m.more - used
	m.used, m.more = used, 0
	room := p.free
	for _, o := range p.members {
		switch {
		case o == m:
		case o.used+o.more == 0: // one is kept for it
			room--
		case o.wants:
			n = min(n, max(1, (o.used+o.more+1)*m.weight/o.weight)-used)
		}
	}
	m.more = max(0, min(n, room))
	p.free -= m.more
	return m.more
}

// settle records how many handlers the source uses now, and whether it wants more than the pool has
// for it.
func (m *poolMember) settle(used int, wants bool) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.pool.free += m.used + m.more - used
	m.used, m.more, m.wants = used, 0, wants
}
