package local

import (
	"bytes"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// partition is a partition of a queue: its messages in the DB, and its leases in memory.
type partition struct {
	s          *State
	table      table
	counters   counters
	due        dueCount
	leases     leases
	dirty      bool // the counters are to be written
	frontier   frontier
	hints      *hints
	reservedIn uint64         // State.group of the last reservation of tokens
	reserved   uint64         // the reservation of tokens below this one is durable
	oldestDead driver.Instant // no dead letter died before it; 0: there is none
}

// tokenBlock is the number of tokens, microseconds of the clock, that are reserved at a time.
// Tokens rise by up to a block above the clock, so a large one makes them repeat after a restore.
const tokenBlock = uint64(10 * time.Second / time.Microsecond)

// loadPartition loads a partition without its leases.
func (s *State) loadPartition(hints *hints, number uint32, index int) (*partition, error) {
	p := &partition{
		s: s, table: table{db: s.db, queue: number, partition: uint16(index)}, hints: hints,
		frontier: frontier{freed: make(map[string]*freeKey), unreadable: make(map[key]struct{})},
		counters: counters{spans: make(map[uint64]int64)},
	}
	b, err := s.db.Get(p.table.kindKey(kindCounters))
	if err != nil {
		return nil, err
	}
	if p.counters.state, err = decodeState(b); err != nil {
		return nil, fmt.Errorf("partition %d: %w", index, err)
	}
	p.leases = leases{byID: make(map[string]*lease), ended: make(map[string]endedLease), token: p.counters.Tokens}
	p.oldestDead = 1 // if there is one; no dead letter died before it
	return p, nil
}

// countCrashes counts a crash of each message that had begun when the last State ended, and whose
// lease has neither ended then nor been kept.
func (p *partition) countCrashes() {
	begun := make(map[string]string)
	_ = p.table.scan(kindBegun, p.table.kindKey(kindBegun), func(k, process []byte) bool { // what is damaged counts no crash
		begun[string(k[prefixSize:])] = string(process)
		return true
	})
	for id, process := range begun {
		l := p.leases.byID[id]
		if l != nil && l.firing {
			continue
		}
		r, err := p.table.load(id)
		if _, ended := p.leases.ended[id]; l == nil && !ended && err == nil && r != nil && r.msg.State == driver.StateScheduled {
			p.counters.Crashed++
			at := r.place()
			if r.msg.Planned == driver.Never { // marked
				p.counters.Cancelled++
				p.drop(at, 0)
			} else {
				r.last = opCrash
				transition.Crash(&r.msg, process, p.s.shared.Now())
				p.move(at, r)
			}
		}
		p.table.deleteBegun(id)
	}
}

// change notes that the counters are to be written.
func (p *partition) change() {
	if !p.dirty {
		p.dirty = true
		p.s.dirty = append(p.s.dirty, p)
	}
}

// add stores a record that is in no place.
func (p *partition) add(r *record) {
	p.change()
	at := r.place()
	p.table.set(r)
	p.table.setIndex(at)
	if at.kind == kindScheduled {
		p.counters.scheduled(at.at, 1)
		p.due.add(at.at, 1)
		p.frontier.add(at.key)
		return
	}
	p.counters.died(len(r.msg.Body), 1)
	if p.oldestDead == 0 || at.at < p.oldestDead {
		p.oldestDead = at.at
	}
}

// remove removes a record from its place, and not from the index. size is the size of the body of a
// dead letter.
func (p *partition) remove(at place, size int) {
	p.change()
	p.table.deletePlace(at)
	if at.kind == kindDead {
		p.counters.died(size, -1)
		return
	}
	p.counters.scheduled(at.at, -1)
	p.due.add(at.at, -1)
	if l := p.leases.byID[at.id]; l != nil {
		p.dropLease(l)
		p.leases.settle(l, p.s.group, p.s.synced.Load())
	} else {
		p.frontier.remove(at.key)
	}
	delete(p.leases.ended, at.id)
}

// move replaces the record at a place by another one of the same message. The records share a body,
// which may belong to the DB.
func (p *partition) move(from place, r *record) {
	p.remove(from, len(r.msg.Body))
	p.add(r)
}

// drop removes a message.
func (p *partition) drop(at place, size int) {
	p.remove(at, size)
	p.table.deleteIndex(at.id)
}

// lease adds the lease of a scheduled message.
func (p *partition) lease(l *lease) {
	p.frontier.dropFree(l.id)
	p.leases.add(l)
	if l.firing {
		p.table.setBegun(l.id)
	}
}

func (p *partition) dropLease(l *lease) {
	p.leases.drop(l)
	if l.firing {
		p.table.deleteBegun(l.id)
	}
}

// endLease makes a leased message scheduled again, unchanged.
func (p *partition) endLease(l *lease, op driver.Op) {
	p.dropLease(l)
	p.leases.keep(l, op)
	p.frontier.add(l.key)
}

// scan visits the messages from the front on that are not leased, in order of due time. visit
// reports whether the scan passes the message, which visit has leased, removed or noted as
// unreadable then. The scan ends at a message that it does not pass.
func (p *partition) scan(visit func(k key, value []byte) (passed bool)) error {
	return p.table.walk(kindScheduled, p.frontier.front, func(k key, value []byte) bool {
		if l := p.leases.byID[k.id]; (l == nil || l.at != k.at) && !visit(k, value) {
			return false
		}
		p.frontier.front = k.next()
		return true
	})
}

// findHead finds the earliest due time of a scheduled message. If no message is before the front,
// the scan passes the messages that take has taken, if it is not nil.
func (p *partition) findHead(take func(k key, r *record) (taken bool)) error {
	if free, ok := p.frontier.free.Min(); ok { // the earliest message before the front
		p.frontier.head, p.frontier.known = free.at, true
		return nil
	}
	p.frontier.known = false
	head := driver.Instant(0)
	err := p.scan(func(k key, value []byte) (passed bool) {
		if r, ok := p.frontier.read(k, value); ok && (take == nil || !take(k, &r)) {
			head = k.at
		}
		return head == 0
	})
	if err == nil {
		p.frontier.head, p.frontier.known = head, true
	}
	return err
}

// endCall ends a call. It sends a hint if the head is earlier than before. The call may have made
// changes, so if the head cannot be read, the next claim fails instead.
func (p *partition) endCall(before driver.Instant) {
	if !p.frontier.known && p.findHead(nil) != nil {
		return
	}
	if head := p.frontier.head; head != 0 && (before == 0 || head < before) {
		p.hints.send(driver.Hint{Partition: int(p.table.partition), Due: head})
	}
}

// trimDead drops dead letters while they exceed a limit, the oldest first and at most two batches.
// A call adds at most one batch, so each call shrinks a backlog. The limit of bytes never drops the
// last dead letter.
func (p *partition) trimDead(now time.Time, limits *driver.Config) error {
	exceeded := func() bool {
		return p.counters.Dead > int64(limits.DeadLimit) || p.counters.Dead > 1 && p.counters.DeadBytes > limits.DeadBytes ||
			p.oldestDead != 0 && p.oldestDead.Add(limits.DeadAge) <= transition.Floor(now)
	}
	if !exceeded() {
		return nil
	}
	n, before := 0, p.oldestDead
	p.oldestDead = 0
	err := p.table.walk(kindDead, key{at: before}, func(k key, value []byte) bool {
		p.oldestDead = k.at
		if n == 2*driver.MaxBatch || !exceeded() {
			return false
		}
		n++
		at := place{kindDead, k}
		p.counters.Trimmed++
		p.drop(at, len(decode(at, value).msg.Body))
		p.oldestDead = 0
		return true
	})
	if err != nil {
		p.oldestDead = before
	}
	return err
}

// nextToken returns a token above all others, and whether its reservation is durable. It makes the
// next reservation when half of the last one is used, so that claims rarely wait for it.
func (p *partition) nextToken(now time.Time) (token uint64, reserved bool) {
	token = max(p.leases.token+1, uint64(max(0, now.UnixMicro()))) //nolint:gosec // not negative
	p.leases.token = token
	if p.s.synced.Load() >= p.reservedIn {
		p.reserved = p.counters.Tokens
	}
	if token+tokenBlock/2 >= p.counters.Tokens {
		p.counters.Tokens = token + tokenBlock
		p.reservedIn = p.s.group
		p.change()
	}
	return token, token < p.reserved
}

// export returns a record with the state of the memory, and with a body of its own.
func (p *partition) export(r *record) driver.Record {
	out := r.msg
	out.Body = bytes.Clone(r.msg.Body)
	if e, ok := p.leases.ended[r.msg.ID]; ok {
		out.Token = e.token
	}
	if l := p.leases.byID[r.msg.ID]; l != nil {
		out.State, out.Token, out.LeaseEnd = driver.StateLeased, l.token, l.end
		if l.firing {
			out.State = driver.StateFiring
		}
	}
	return out
}
