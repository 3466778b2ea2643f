package boltstore

import (
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// partition is what the memory holds of a partition: what is claimed, and how far the index on disk has been claimed. Everything
// else is read from the file when it is needed, so a partition costs memory for what is in flight, not for what is stored.
//
// The index holds leased messages, too. A claim does not walk over them, as all keys of it before front are leased or in free:
//
//	index:  [ leased, leased, free, leased | front → scheduled, scheduled, … ]
//
// What is scheduled before front, since its lease has ended or since it came later with an earlier time, goes to free.
type partition struct {
	q     *queue
	index int

	mu     sync.Mutex
	state  state  // as of the last commit
	token  uint64 // the last one given; below state.tokens
	grants local.Grants
	leases map[string]*lease
	ends   local.Heap[*lease] // all leases, by their ends
	front  key
	free   local.Heap[*freeKey]
	freed  map[string]*freeKey // of free, by id
	former map[string]former   // leases that have ended in memory only

	busy    map[string]struct{} // what the group of the committer touches
	settled chan struct{}       // closed when busy has been emptied; nil: nobody waits
	notes   map[string]struct{} // begun since the last commit

	head       driver.Instant // the earliest due time of what is scheduled; 0: nothing is
	headKnown  bool           // false only within a critical section
	oldestDead driver.Instant // time of the first death; 0: there is none
	due        dueCount

	// What claims have met in the index and passed over. It is in memory only, so each opening
	// meets it anew.
	strays     map[key]struct{} // keys without a record
	unreadable map[key]struct{} // keys of records that cannot be read
	lost       uint64           // strays so far
}

// maxFree is the length of free at which it is given up, so that it does not grow when much is put that nobody claims: the front goes back to
// its first key. Tests have less.
const maxFree = 1 << 16

// maxFormer is the number of leases that ended without a commit of which the last token is known.
const maxFormer = 1 << 16

// lease is a claimed message.
type lease struct {
	id     string
	due    driver.Instant
	end    driver.Instant
	token  uint64
	firing bool
	index  int
}

func (l *lease) state() driver.State {
	if l.firing {
		return driver.StateFiring
	}
	return driver.StateLeased
}

func (l *lease) Before(o *lease) bool { return l.end < o.end || l.end == o.end && l.id < o.id }
func (l *lease) Place() *int          { return &l.index }

// freeKey is a scheduled message before the front.
type freeKey struct {
	key
	index int
}

func (f *freeKey) Before(o *freeKey) bool { return f.key.before(o.key) }
func (f *freeKey) Place() *int            { return &f.index }

// former is a lease that has ended: by which transition of its holder, 0 if by none.
type former struct {
	token uint64
	op    driver.Op
}

func (q *queue) loadPartition(tx *bolt.Tx, i int) (*partition, error) {
	b, err := q.buckets(tx, i)
	if err != nil {
		return nil, err
	}
	s, err := decodeState(b.root.Get(keyState))
	if err != nil {
		return nil, fmt.Errorf("partition %d: %w", i, err)
	}
	p := &partition{q: q, index: i, token: s.tokens}
	s.tokens += tokenRange
	p.state = s
	p.leases, p.freed, p.former = make(map[string]*lease), make(map[string]*freeKey), make(map[string]former)
	p.busy, p.notes = make(map[string]struct{}), make(map[string]struct{})
	p.strays, p.unreadable = make(map[key]struct{}), make(map[key]struct{})
	p.oldestDead = firstTime(b.dead)
	p.findHead(b)
	return p, b.root.Put(keyState, s.encode())
}

// tokenRange is the number of tokens that may be given out before a commit allows more. Each opening of the queue begins a new range behind the
// last one, so tokens rise whatever the clock does, and opening it a billion times does not use them up.
const tokenRange = 1 << 32

// firstTime is that of the first key of a bucket, 0 where it is empty.
func firstTime(b *bolt.Bucket) driver.Instant {
	first, _ := b.Cursor().First()
	k, _ := parseKey(first)
	return k.at
}

// isPaused reports whether messages may not begin. mu is held.
func (p *partition) isPaused() bool { return p.state.paused != 0 }

// holds is the lease that a change is made by, nil if it has ended.
func (p *partition) holds(c *driver.Change) *lease {
	if l := p.leases[c.ID]; l != nil && c.Token != 0 && l.token == c.Token {
		return l
	}
	return nil
}

// addLease claims a scheduled message.
func (p *partition) addLease(l *lease) {
	p.dropFree(l.id)
	delete(p.former, l.id)
	p.leases[l.id] = l
	p.ends.Add(l)
}

// dropLease forgets a lease and what is said of it.
func (p *partition) dropLease(id string) {
	delete(p.notes, id)
	delete(p.former, id)
	if l := p.leases[id]; l != nil {
		p.ends.Remove(l)
		delete(p.leases, id)
	}
}

func (p *partition) dropFree(id string) {
	if f := p.freed[id]; f != nil {
		p.free.Remove(f)
		delete(p.freed, id)
	}
}

// endLease makes a leased message scheduled again, in memory only.
func (p *partition) endLease(l *lease, op driver.Op) {
	p.dropLease(l.id)
	if len(p.former) >= maxFormer {
		clear(p.former) // a Release that is repeated after that finds its lease lost
	}
	p.former[l.id] = former{l.token, op}
	p.schedule(key{l.due, l.id})
}

// schedule notices that a message in the index may be claimed.
func (p *partition) schedule(k key) {
	if p.headKnown && (p.head == 0 || k.at < p.head) {
		p.head = k.at
	}
	if !k.before(p.front) {
		return
	}
	f := &freeKey{key: k}
	p.freed[k.id] = f
	p.free.Add(f)
	if p.free.Len() > p.q.store.options.maxFree {
		p.front = p.free.First().key
		p.free.Clear()
		clear(p.freed)
	}
}

// unschedule notices that the key of a message that is not leased has left the index.
func (p *partition) unschedule(k key) {
	if f := p.freed[k.id]; f != nil && f.key == k {
		p.dropFree(k.id)
	}
	if k.at <= p.head {
		p.headKnown = false
	}
}

// effect is what a commit means for the memory: a key that has left the index, and one that has come; 0 for none.
type effect struct {
	id       string
	was, is  driver.Instant
	released former // of a release

	keepsLease bool // the key was a wrong one
	lost       bool // the key had no record
}

// applyEffect makes memory what the file is.
func (p *partition) applyEffect(e effect) {
	leased := p.leases[e.id] != nil // so it is neither the head nor free
	if !e.keepsLease {
		p.dropLease(e.id)
	}
	if e.was != 0 {
		if _, known := p.strays[key{e.was, e.id}]; e.lost && !known {
			p.lost++
		}
		delete(p.strays, key{e.was, e.id})
		delete(p.unreadable, key{e.was, e.id})
		p.due.remove(e.was)
		if !leased {
			p.unschedule(key{e.was, e.id})
		}
	}
	if e.is != 0 {
		p.due.add(e.is)
		p.schedule(key{e.is, e.id})
	}
	if e.released.token != 0 {
		p.former[e.id] = e.released
	}
}

// hint tells the watchers if what is the earliest now is earlier than it was before.
func (p *partition) hint(before driver.Instant) {
	if p.head != 0 && (before == 0 || p.head < before) {
		p.q.hints.Send(driver.Hint{Partition: p.index, Due: p.head})
	}
}

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

// dueCount counts the keys of the index up to a time. It is brought up to date by those who ask, and kept by commits, so that each key is
// walked over once.
type dueCount struct {
	until driver.Instant
	n     int64
}

func (t *dueCount) add(at driver.Instant) {
	if at <= t.until {
		t.n++
	}
}

func (t *dueCount) remove(at driver.Instant) {
	if at <= t.until {
		t.n--
	}
}

// advance counts the keys up to an instant, at most limit of them, and reports whether it has reached that. Where the clock was set back it
// begins anew.
func (t *dueCount) advance(index *bolt.Bucket, to driver.Instant, limit int) bool {
	if to < t.until {
		*t = dueCount{}
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

// leaseChanges begins, extends or releases. It changes nothing and is false where a release needs a commit.
func (p *partition) leaseChanges(now time.Time, b *driver.Batch) ([]driver.Outcome, bool) {
	if b.Op == driver.OpRelease && p.needsCommit(b.Changes) {
		return nil, false
	}
	outcomes := make([]driver.Outcome, len(b.Changes))
	for i := range b.Changes {
		c, o := &b.Changes[i], &outcomes[i]
		o.Now, o.Status = now, driver.StatusDone
		l := p.holds(c)
		switch {
		case l == nil && b.Op == driver.OpRelease && c.Token != 0 && p.former[c.ID] == former{c.Token, b.Op}:
		case l == nil:
			o.Status = driver.StatusLeaseLost
		case b.Op == driver.OpBegin:
			p.begin(now, b, l, o)
		case b.Op == driver.OpExtend:
			l.end = local.LeaseEnd(now, l.due, local.Extension(c, l.state()))
			p.ends.Fix(l)
			o.Lease = l.end
		default:
			p.endLease(l, b.Op)
		}
	}
	return outcomes, true
}

// needsCommit reports whether one of the messages has begun, so that the file may have a note of it.
func (p *partition) needsCommit(changes []driver.Change) bool {
	for i := range changes {
		if l := p.holds(&changes[i]); l != nil && l.firing {
			return true
		}
	}
	return false
}

func (p *partition) begin(now time.Time, b *driver.Batch, l *lease, o *driver.Outcome) {
	o.Due = l.due
	if !l.firing {
		switch {
		case p.isPaused():
			o.Status = driver.StatusPaused
			return
		case l.due > local.Floor(now).Add(b.Lead):
			o.Status = driver.StatusEarly
			return
		}
		l.firing = true
		p.notes[l.id] = struct{}{}
	}
	if b.Visibility > 0 {
		l.end = local.After(now, b.Visibility)
		p.ends.Fix(l)
		o.Lease = l.end
	}
}

// endLeases ends leases that are over, at most a batch. Those of what has not begun are ended; the others are returned, as
// that needs a commit. What the committer is at work on is left alone.
func (p *partition) endLeases(now time.Time) (firing []string) {
	var kept []*lease
	for range driver.MaxBatch {
		if p.ends.Len() == 0 || p.ends.First().end > local.Floor(now) {
			break
		}
		l := p.ends.First()
		_, busy := p.busy[l.id]
		switch {
		case !busy && !l.firing:
			p.endLease(l, 0)
			continue
		case !busy:
			firing = append(firing, l.id)
		}
		p.ends.Remove(l)
		kept = append(kept, l)
	}
	for _, l := range kept {
		p.ends.Add(l)
	}
	return firing
}
