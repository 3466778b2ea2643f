package boltstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// view calls f with a consistent view of the file and the memory of a partition.
func (b *backend) view(ctx context.Context, index int, f func(p *partition, parts buckets) error) error {
	p, err := b.enter(ctx, index)
	if err != nil {
		return err
	}
	return b.store.read(ctx, func(tx *bolt.Tx) error {
		parts, err := p.q.buckets(tx, p.index)
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return f(p, parts)
	})
}

// Get is O(log n), and waits for a commit under way, as all readers of the file do.
func (b *backend) Get(ctx context.Context, index int, id string) (r driver.Record, err error) {
	err = b.view(ctx, index, func(p *partition, parts buckets) error {
		value := parts.records.Get([]byte(id))
		if value == nil {
			return fmt.Errorf("boltstore: %w with id %q in partition %d",
				driver.ErrNotFound, id, index)
		}
		stored, err := decode(id, value)
		if err != nil {
			return fmt.Errorf("boltstore: partition %d: %w", index, err)
		}
		r = p.withLease(&stored)
		return nil
	})
	return r, err
}

// withLease adds the state of the memory to a record.
func (p *partition) withLease(stored *record) driver.Record {
	r := stored.export()
	if f, ok := p.ended[r.ID]; ok {
		r.Token = f.token
	}
	if l := p.leases[r.ID]; l != nil && r.State == driver.StateScheduled && l.token != 0 {
		r.State, r.Token, r.LeaseEnd = l.state(), l.token, l.end
	}
	return r
}

// List is O(log n) for each message of the page and for each leased message that it passes. A list
// of leased messages is O(n log n) in the messages in flight.
func (b *backend) List(ctx context.Context, index int, state driver.State, cursor string, limit int) (
	records []driver.Record, next string, err error,
) {
	at, id, err := driver.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("boltstore: list: %w", err)
	}
	from := key{at, id}.next()
	err = b.view(ctx, index, func(p *partition, parts buckets) error {
		page := page{p: p, records: parts.records, limit: limit, bytesLeft: driver.PageBytes, out: []driver.Record{}}
		switch state {
		case driver.StateScheduled:
			page.walk(parts.index, from, func(id string) bool { return p.leases[id] == nil })
		case driver.StateDead:
			page.walk(parts.dead, from, func(string) bool { return true })
		case driver.StateLeased:
			page.leased(from)
		}
		records, next = page.out, page.next
		return nil
	})
	return records, next, err
}

// page is a page of a list.
type page struct {
	p         *partition
	records   *bolt.Bucket
	limit     int
	bytesLeft int // for bodies
	last      key
	out       []driver.Record
	next      string // the cursor after last, if a message follows it
}

// add adds the message of a key, and reports whether the page had room. It skips a key whose record
// is missing or unreadable.
func (g *page) add(k key) bool {
	value := g.records.Get([]byte(k.id))
	if value == nil {
		return true
	}
	stored, err := decode(k.id, value)
	if err != nil {
		return true
	}
	if len(g.out) == g.limit || g.bytesLeft <= 0 {
		g.next = driver.FormatCursor(g.last.at, g.last.id)
		return false
	}
	g.last = k
	r := g.p.withLease(&stored)
	g.bytesLeft -= len(r.Body)
	g.out = append(g.out, r)
	return true
}

func (g *page) walk(index *bolt.Bucket, from key, wanted func(id string) bool) {
	c := index.Cursor()
	for b, _ := c.Seek(from.bytes()); b != nil; b, _ = c.Next() {
		if k, ok := parseKey(b); ok && wanted(k.id) && !g.add(k) {
			return
		}
	}
}

func (g *page) leased(from key) {
	keys := make([]key, 0, len(g.p.leases))
	for _, l := range g.p.leases {
		if k := (key{l.end, l.id}); !k.before(from) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.id, b.id)) })
	for _, k := range keys {
		if !g.add(k) {
			return
		}
	}
}

// Count reports as Unreadable and Lost the keys that claims have found since the store was opened.
//
// Count is O(1), plus the messages in flight and the messages that have become due since the last
// Count. The first Count after the queue was opened visits all messages that are due, tens of
// thousands in each step. Messages of one millisecond are visited in one step. Other calls run
// between the steps.
func (b *backend) Count(ctx context.Context, index int) (c driver.Counts, err error) {
	for done := false; !done && err == nil; {
		err = b.view(ctx, index, func(p *partition, parts buckets) error {
			now := local.Floor(b.store.options.Now())
			if done = p.due.advance(parts.index, now, countStep); done {
				c = p.counts(now)
			}
			return nil
		})
	}
	return c, err
}

const countStep = 1 << 15

func (p *partition) counts(now driver.Instant) driver.Counts {
	s := &p.state
	c := driver.Counts{
		Now: now, Scheduled: s.records - s.dead - int64(len(p.leases)), Due: p.due.n, InFlight: int64(len(p.leases)), Dead: s.dead,
		DeadBytes: max(0, s.deadBytes), NextDue: p.head,
		Counters: driver.Counters{Enqueued: s.enqueued, Acked: s.acked, Retried: s.retried, Buried: s.buried, Cancelled: s.cancelled,
			Crashed: s.crashed, Trimmed: s.trimmed, Expired: s.expired},
	}
	c.Paused = p.isPaused()
	for _, l := range p.leases {
		if l.due <= now {
			c.Due--
		}
	}
	c.Unreadable = int64(len(p.unreadable))
	for _, passed := range []map[key]struct{}{p.unreadable, p.strays} {
		c.Scheduled -= int64(len(passed))
		for k := range passed {
			if k.at <= now {
				c.Due--
			}
		}
	}
	return c
}

// CountDue visits the messages in flight and the messages that are due within the last duration,
// tens of thousands in each step. Other calls run between the steps, so the counts are not a
// snapshot.
func (b *backend) CountDue(ctx context.Context, index int, within []time.Duration) ([]int64, error) {
	bounds := local.Bounds(local.Floor(b.store.options.Now()), within)
	counts := make([]int64, len(within))
	var from key
	for done := false; !done; {
		err := b.view(ctx, index, func(p *partition, parts buckets) error {
			from, done = p.countDue(parts.index, from, bounds, counts)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return local.Sums(counts), nil
}

// countDue counts the scheduled messages from a key on by their bounds. It returns the key at which
// to continue, or true if it is done.
func (p *partition) countDue(index *bolt.Bucket, from key, bounds local.DueBounds, counts []int64) (key, bool) {
	c := index.Cursor()
	b, _ := c.Seek(from.bytes())
	for n := 0; b != nil; n++ {
		k, ok := parseKey(b)
		if ok && n >= countStep && from.before(k) { // a damaged file has keys that are out of order
			return k, false
		}
		i := bounds.Find(k.at)
		if i == len(bounds) {
			break
		}
		if ok && p.scheduled(k) {
			counts[i]++
		}
		b, _ = c.Next()
	}
	return key{}, true
}

// scheduled reports whether a key of the index counts as scheduled.
func (p *partition) scheduled(k key) bool {
	_, unreadable := p.unreadable[k]
	_, stray := p.strays[k]
	return p.leases[k.id] == nil && !unreadable && !stray
}
