package local

import (
	"cmp"
	"maps"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// countStep is the number of messages after which a step that counts stops at the next due time.
// Other calls run between the steps.
const countStep = 1 << 13

// countSteps is the largest number of steps of Count and CountDue. It makes Counts.Due exact up to
// a million messages that have become due since the last Count.
const countSteps = 1 << 7

// advance counts the messages up to an instant, or as many as a step allows. If the clock was set
// back, it begins again.
func (p *partition) advance(to driver.Instant) error {
	due := &p.due
	if to < due.until {
		*due = dueCount{}
	}
	n := int64(0)
	reached, err := p.visit(due.until+1, to, func(key) { n++ })
	if err == nil {
		*due = dueCount{reached, due.n + n}
	}
	return err
}

// visit visits the scheduled messages of the DB, leased ones included, that are due at from or
// later and at most at to. It returns the instant up to which it has visited all.
func (p *partition) visit(from, to driver.Instant, visit func(key)) (reached driver.Instant, err error) {
	reached = to
	n, last := 0, driver.Instant(0)
	err = p.table.walk(kindScheduled, key{at: from}, func(k key, _ []byte) bool {
		if k.at > to {
			return false
		}
		if n >= countStep && k.at != last { // stop between two times, so that reached is exact
			reached = last
			return false
		}
		n++
		last = k.at
		visit(k)
		return true
	})
	return reached, err
}

// countDue returns, for each of the ascending bounds, the number of scheduled messages that are due
// at most then. The first bound is now. It counts the messages that are due, which may need several
// steps, and then as many of the others as a step allows. It estimates the rest.
func (p *partition) countDue(bounds []driver.Instant) (counts []int64, err error) {
	now, last := bounds[0], bounds[len(bounds)-1]
	if err := p.advance(now); err != nil {
		return nil, err
	}
	counts = make([]int64, len(bounds))
	add := func(k key, n int64) {
		if i, _ := slices.BinarySearch(bounds, k.at); i < len(bounds) {
			counts[i] += n
		}
	}
	for _, l := range p.leases.byID {
		add(l.key, -1)
	}
	for k := range p.frontier.unreadable {
		add(k, -1)
	}
	counts[0] += p.due.n
	reached := p.due.until
	if reached == now {
		if reached, err = p.visit(now+1, last, func(k key) { add(k, 1) }); err != nil {
			return nil, err
		}
	}
	from, sum := reached, int64(0)
	for i, bound := range bounds {
		more, err := p.counters.estimate(&p.table, from, bound)
		if err != nil {
			return nil, err
		}
		sum += counts[i] + more
		counts[i] = max(0, sum)
		from = max(from, bound)
	}
	return counts, nil
}

func (p *partition) counts(now driver.Instant) (c driver.Counts, err error) {
	due, err := p.countDue([]driver.Instant{now})
	if err != nil {
		return c, err
	}
	s := &p.counters.state
	leased, unreadable := int64(len(p.leases.byID)), int64(len(p.frontier.unreadable))
	return driver.Counts{
		Now: now, Due: due[0], InFlight: leased, Dead: s.Dead, DeadBytes: s.DeadBytes,
		Unreadable: unreadable, NextDue: p.frontier.head, Paused: s.Paused,
		Scheduled: s.Records - s.Dead - leased - unreadable, Counters: s.Counters,
	}, nil
}

// listPage returns a page of the messages in a state after the message of a cursor.
func listPage(p *partition, state driver.State, after key, limit int) (g page, err error) {
	g = page{p: p, limit: limit, left: contract.PageBytes, records: []driver.Record{}}
	switch state {
	case driver.StateLeased:
		err = g.walkLeases(after)
	case driver.StateDead:
		err = g.walk(kindDead, after)
	default:
		err = g.walk(kindScheduled, after)
	}
	return g, err
}

// page is a page of a list.
type page struct {
	p       *partition
	limit   int
	left    int // bytes for bodies
	records []driver.Record
	last    key
	next    string // the cursor after last, if a message follows it
}

// add adds the message of a key of the list, and reports whether the page had room.
func (g *page) add(k key, r *record) bool {
	if r.msg.State == 0 {
		return true
	}
	if len(g.records) == g.limit || g.left <= 0 {
		g.next = contract.FormatCursor(g.last.at, g.last.id)
		return false
	}
	g.last = k
	g.left -= len(r.msg.Body)
	g.records = append(g.records, g.p.export(r))
	return true
}

func (g *page) walk(kind byte, after key) error {
	return g.p.table.walk(kind, after.next(), func(k key, value []byte) bool {
		if kind == kindScheduled && g.p.leases.byID[k.id] != nil {
			return true
		}
		r := decode(place{kind, k}, value)
		return g.add(k, &r)
	})
}

func (g *page) walkLeases(after key) error {
	leases := slices.DeleteFunc(slices.Collect(maps.Values(g.p.leases.byID)), func(l *lease) bool { return !after.before(l.endKey()) })
	slices.SortFunc(leases, func(a, b *lease) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.id, b.id)) })
	for _, l := range leases {
		if r, err := g.p.table.read(l.place()); err != nil || !g.add(l.endKey(), r) {
			return err
		}
	}
	return nil
}
