package durable

import (
	"math"
	"sync"
	"time"
)

// budget bounds what a consumer begins beside its free takers: by its shares of the limits of its
// [Source], and by the handlers that it shares with other sources. It is guarded by the
// dispatcher's mutex.
type budget struct {
	source Source
	pool   *poolMember // nil: the handlers are not shared
	denied bool        // since the last endRound the pool had too few handlers

	running  int           // share of Source.MaxRunning
	interval time.Duration // between two deliveries at the share of Source.Rate; 0: no share
	next     time.Time     // when the next delivery conforms to the rate
	timer    *time.Timer   // calls dispatcher.match then
	joined   time.Time     // when the first heartbeat was answered; used only by consumer.updateShare
}

// reserve returns how many of n messages, which have takers, may begin before endRound.
func (b *budget) reserve(a *admission, n int) int {
	if n <= 0 {
		return n
	}
	used := b.used(a)
	if b.source.MaxRunning > 0 {
		n = min(n, b.running-used-a.slow)
	}
	if b.source.Rate > 0 {
		n = min(n, b.conforming(time.Now())-a.reserved)
	}
	if n <= 0 || b.pool == nil {
		return n
	}
	most := b.pool.reserve(used, n)
	b.denied = b.denied || most < n
	return most
}

// used returns the number of handlers that run or are reserved, except handlers of slow partitions.
func (b *budget) used(a *admission) int {
	return a.opts.Concurrency - a.handover.takers.len() + a.reserved + a.handover.begun.len()
}

// endRound returns to the pool what has not begun, and starts the timer if messages wait for the
// rate. It reports whether messages wait for the pool.
func (b *budget) endRound(a *admission) (denied bool) {
	denied, b.denied = b.denied, false
	if b.pool != nil {
		b.pool.endRound(b.used(a), denied)
	}
	if b.source.Rate > 0 && a.ready.len()+a.suspects.len()+a.waiting.len() > 0 {
		if wait := time.Until(b.next); wait > 0 {
			b.timer.Reset(wait)
		}
	}
	return denied
}

// setShare sets the consumer's share of the limits, in units of 1/all.
func (b *budget) setShare(units, all int) {
	b.running, b.interval = units, 0
	if units > 0 {
		interval := float64(time.Second) / b.source.Rate * float64(all) / float64(units)
		b.interval = time.Duration(max(1, min(interval, math.MaxInt64/2)))
	}
}

// The rate is limited by the generic cell rate algorithm of ITU-T I.371.

// rateBurst is the time of which deliveries may be made together, so that they share calls.
const rateBurst = 100 * time.Millisecond

// arrival returns the theoretical arrival time of the next delivery.
func (b *budget) arrival(now time.Time) time.Time {
	if first := now.Add(b.interval - max(b.interval, rateBurst)); b.next.Before(first) {
		return first
	}
	return b.next
}

// conforming returns the number of deliveries that conform to the rate now.
func (b *budget) conforming(now time.Time) int {
	late := now.Sub(b.arrival(now))
	if b.interval == 0 || late < 0 {
		return 0
	}
	return int(late/b.interval) + 1
}

// delivered records a delivery.
func (b *budget) delivered(now time.Time) {
	if b.source.Rate > 0 {
		b.next = b.arrival(now).Add(b.interval)
	}
}

// pool is the handlers that the sources of one call to [Consume] share. The free ones are those
// that no source uses or has reserved; their number is negative while messages of slow partitions
// run. Every source keeps one. The others go to the starved source that has the fewest for its
// weight. A starved source asks again when one of its messages begins or ends, and every
// checkPeriod. The dispatchers' mutexes come before mu.
type pool struct {
	mu      sync.Mutex
	free    int
	members []*poolMember // fixed before the first reserve
}

// poolMember is a source of a pool. The pool's mutex guards the fields.
type poolMember struct {
	pool     *pool
	weight   int
	used     int  // handlers that run, or for which messages begin
	reserved int  // others, until endRound
	starved  bool // it wants others, and the pool had too few
}

// reserve records how many handlers the source uses, and reserves up to n others. It returns how
// many. The cost is O(sources).
func (m *poolMember) reserve(used, n int) int {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += m.used + m.reserved - used
	m.used, m.reserved = used, 0
	room := p.free
	for _, o := range p.members {
		switch {
		case o == m:
		case o.used+o.reserved == 0:
			room--
		case o.starved:
			n = min(n, max(1, (o.used+o.reserved+1)*m.weight/o.weight)-used)
		}
	}
	m.reserved = max(0, min(n, room))
	p.free -= m.reserved
	return m.reserved
}

// endRound records how many handlers the source uses and whether it is starved. It reserves none.
func (m *poolMember) endRound(used int, starved bool) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.pool.free += m.used + m.reserved - used
	m.used, m.reserved, m.starved = used, 0, starved
}
