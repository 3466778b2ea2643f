package boltstore

import (
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// partition is the memory of a partition: its leases, and how far claims have advanced in the index
// of the file. All other data is read from the file on demand, so the memory grows with the
// messages in flight, not with the messages stored.
//
// The index holds leased messages, too. A claim does not walk over them, because each key before
// front is either leased or in free:
//
//	index:  [ leased, leased, free, leased | front → scheduled, scheduled, … ]
//
// A scheduled message before front is in free. Either its lease has ended, or it was stored later
// with an earlier time.
type partition struct {
	q     *queue
	index int

	mu     sync.Mutex
	state  state  // as of the last commit
	token  uint64 // the last token given out; below state.tokens
	grants local.Grants
	leases map[string]*lease
	ends   local.Heap[*lease] // all leases, by their ends
	front  key
	free   local.Heap[*freeKey]
	freed  map[string]*freeKey   // of free, by id
	ended  map[string]endedLease // leases that have ended in memory only

	busy         map[string]struct{} // messages of the committer's group
	groupDone    chan struct{}       // closed when busy was emptied; nil if no call waits
	unsavedBegun map[string]struct{} // messages that have begun since the last commit

	head       driver.Instant // earliest due time of a scheduled message; 0 if there is none
	headKnown  bool           // false only within a critical section
	oldestDead driver.Instant // when the oldest dead letter died; 0 if there is none
	due        dueCount

	// Keys of the index that claims have skipped. The keys are in memory only, so claims find them
	// again after each opening.
	strays     map[key]struct{} // keys without a record
	unreadable map[key]struct{} // keys of records that cannot be read
	lost       uint64           // number of strays found since the opening
}

// maxFree limits the length of free if many messages are put and not claimed. A longer free is
// cleared, and front goes back to its first key. Tests use a smaller value.
const maxFree = 1 << 16

// maxEnded is the largest number of leases that ended without a commit and whose tokens are kept.
const maxEnded = 1 << 16

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

// endedLease is a lease that has ended, with the transition by which its holder ended it, or 0.
type endedLease struct {
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
	p.leases, p.freed, p.ended = make(map[string]*lease), make(map[string]*freeKey), make(map[string]endedLease)
	p.busy, p.unsavedBegun = make(map[string]struct{}), make(map[string]struct{})
	p.strays, p.unreadable = make(map[key]struct{}), make(map[key]struct{})
	p.oldestDead = firstTime(b.dead)
	p.findHead(b)
	return p, b.root.Put(keyState, s.encode())
}

// tokenRange is the number of tokens that may be given out before a commit raises the limit. Each
// opening of the queue starts a new range after the last one. Tokens therefore rise even if the
// clock is set back, and they suffice for a billion openings.
const tokenRange = 1 << 32

// firstTime returns the time of the first key of a bucket, or 0 if it is empty.
func firstTime(b *bolt.Bucket) driver.Instant {
	first, _ := b.Cursor().First()
	k, _ := parseKey(first)
	return k.at
}

// isPaused reports whether the partition is paused, so that messages may not begin. The caller
// holds mu.
func (p *partition) isPaused() bool { return p.state.paused != 0 }

// holds returns the lease that a change names, or nil if it has ended.
func (p *partition) holds(c *driver.Change) *lease {
	if l := p.leases[c.ID]; l != nil && c.Token != 0 && l.token == c.Token {
		return l
	}
	return nil
}

// addLease adds the lease of a scheduled message.
func (p *partition) addLease(l *lease) {
	p.dropFree(l.id)
	delete(p.ended, l.id)
	p.leases[l.id] = l
	p.ends.Add(l)
}

// dropLease removes a lease, its entry in unsavedBegun, and the lease that ended before it.
func (p *partition) dropLease(id string) {
	delete(p.unsavedBegun, id)
	delete(p.ended, id)
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
	if len(p.ended) >= maxEnded {
		clear(p.ended) // a repeated Release then returns StatusLeaseLost
	}
	p.ended[l.id] = endedLease{l.token, op}
	p.schedule(key{l.due, l.id})
}

// schedule records that a message in the index may be claimed.
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

// unschedule records that the key of a message that is not leased has left the index.
func (p *partition) unschedule(k key) {
	if f := p.freed[k.id]; f != nil && f.key == k {
		p.dropFree(k.id)
	}
	if k.at <= p.head {
		p.headKnown = false
	}
}

// effect is the change that a commit makes in memory: the time of the key removed from the index,
// and of the key added to it. 0 means no key.
type effect struct {
	id             string
	removed, added driver.Instant
	released       endedLease // of a release

	keepsLease bool // the removed key was wrong, and the message stays
	lost       bool // the removed key had no record
}

// applyEffect applies a committed change to the memory of the partition.
func (p *partition) applyEffect(e effect) {
	leased := p.leases[e.id] != nil // then it is neither the head nor in free
	if !e.keepsLease {
		p.dropLease(e.id)
	}
	if e.removed != 0 {
		if _, known := p.strays[key{e.removed, e.id}]; e.lost && !known {
			p.lost++
		}
		delete(p.strays, key{e.removed, e.id})
		delete(p.unreadable, key{e.removed, e.id})
		p.due.remove(e.removed)
		if !leased {
			p.unschedule(key{e.removed, e.id})
		}
	}
	if e.added != 0 {
		p.due.add(e.added)
		p.schedule(key{e.added, e.id})
	}
	if e.released.token != 0 {
		p.ended[e.id] = e.released
	}
}

// hint sends a hint to the watchers if the head is earlier than before.
func (p *partition) hint(before driver.Instant) {
	if p.head != 0 && (before == 0 || p.head < before) {
		p.q.hints.Send(driver.Hint{Partition: p.index, Due: p.head})
	}
}

// scan visits scheduled messages in the order of due times, within one transaction and under
// partition.mu. The caller must lease each message that it passes, or must not need it again.
type scan struct {
	p      *partition
	cursor *bolt.Cursor // of the index, at front; nil before the first use
	index  *bolt.Bucket
	key    []byte // the key at the cursor
}

// first returns the key of the earliest message, or false if there is none. Messages in free come
// first, as they are all before front.
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

// pass moves the scan past its first message.
func (s *scan) pass(k key) {
	if s.p.freed[k.id] != nil && s.p.freed[k.id].key == k {
		s.p.dropFree(k.id)
		return
	}
	s.p.front = k.next()
	s.key, _ = s.cursor.Next()
}

// findHead reads the earliest due time of a scheduled message.
func (p *partition) findHead(b buckets) {
	s := scan{p: p, index: b.index}
	k, _ := s.first()
	p.head, p.headKnown = k.at, true
}

// dueCount is the number of keys of the index up to a time. Readers advance the time, and commits
// keep the number up to date, so each key is visited once.
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

// advance counts the keys up to an instant, at most limit of them, and reports whether it has
// reached the instant. If the clock was set back, it begins again.
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
		if n >= limit && at.at != last { // stop between two times, so that until is exact
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

// leaseChanges begins, extends or releases messages. If a release needs a commit, leaseChanges
// changes nothing and returns false.
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
		case l == nil && b.Op == driver.OpRelease && c.Token != 0 && p.ended[c.ID] == endedLease{c.Token, b.Op}:
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

// needsCommit reports whether one of the messages has begun, so that the bucket "begun" may hold
// its id.
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
		p.unsavedBegun[l.id] = struct{}{}
	}
	if b.Visibility > 0 {
		l.end = local.After(now, b.Visibility)
		p.ends.Fix(l)
		o.Lease = l.end
	}
}

// endLeases handles at most [driver.MaxBatch] expired leases. It ends the leases of messages that
// have not begun, and returns the ids of the other messages, because these need a commit. It skips
// messages that are busy.
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
