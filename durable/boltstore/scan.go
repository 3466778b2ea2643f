package boltstore

import (
	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
)

// scan visits what is scheduled in the order of due times, within one transaction and under partition.mu. What it has passed must be
// leased, or is not visited again.
type scan struct {
	p      *partition
	cursor *bolt.Cursor // of the index, at front; nil: not positioned
	index  *bolt.Bucket
	key    []byte // at the cursor
}

// first is the earliest message, false where there is none. What is free comes first, as all of that is before the front.
func (s *scan) first() (key, bool) {
	p := s.p
	if p.free.Len() > 0 {
		return p.free.First().key, true
	}
	if s.cursor == nil {
		s.cursor = s.index.Cursor()
		s.key, _ = s.cursor.Seek(p.front.bytes())
	}
	for s.key != nil {
		k, ok := parseKey(s.key)
		if l := p.leases[k.id]; ok && (l == nil || l.due != k.at) {
			return k, true
		}
		if ok {
			p.front = k.next()
		}
		s.key, _ = s.cursor.Next()
	}
	return key{}, false
}

// pass leaves the first message behind.
func (s *scan) pass(k key) {
	if s.p.freed[k.id] != nil && s.p.freed[k.id].key == k {
		s.p.dropFree(k.id)
		return
	}
	s.p.front = k.next()
	s.key, _ = s.cursor.Next()
}

// findHead reads the earliest due time of what is scheduled.
func (p *partition) findHead(b buckets) {
	s := scan{p: p, index: b.index}
	k, _ := s.first()
	p.head, p.headKnown = k.at, true
}

// tally counts the keys of the index up to a time. It is brought up to date by those who ask, and kept by commits, so that each key is
// walked over once.
type tally struct {
	until driver.Instant
	n     int64
}

func (t *tally) add(at driver.Instant) {
	if at <= t.until {
		t.n++
	}
}

func (t *tally) remove(at driver.Instant) {
	if at <= t.until {
		t.n--
	}
}

// advance counts the keys up to an instant, at most limit of them, and reports whether it has reached that. Where the clock was set back it
// begins anew.
func (t *tally) advance(index *bolt.Bucket, to driver.Instant, limit int) bool {
	if to < t.until {
		*t = tally{}
	}
	c := index.Cursor()
	k, _ := c.Seek(key{at: t.until + 1}.bytes())
	var last driver.Instant
	for n := 0; k != nil; n++ {
		at, ok := parseKey(k)
		if at.at > to || ok && at.at < last { // a damaged file has keys that are out of order
			break
		}
		if n >= limit && at.at != last { // between two times, so that until tells what was counted
			t.until = last
			return false
		}
		if ok {
			t.n++
			last = at.at
		}
		k, _ = c.Next()
	}
	t.until = to
	return true
}
