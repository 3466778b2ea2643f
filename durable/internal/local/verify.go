package local

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// verify compares the keys of a partition with each other, with the counters and with the memory.
func (p *partition) verify() (r driver.AuditReport, err error) {
	v := verifier{p: p, spans: make(map[uint64]int64)}
	p.counters.flush(&p.table)
	if err := v.walkIndex(); err != nil {
		return r, err
	}
	for kind, visit := range map[byte]func(k, value []byte){
		kindScheduled: v.message, kindDead: v.message, kindBegun: v.begun,
		kindSpan: func(k, value []byte) { v.spans[binary.BigEndian.Uint64(k[prefixSize:])] -= Number(value) },
	} {
		err := p.table.scan(kind, p.table.kindKey(kind), func(k, value []byte) bool {
			visit(k, value)
			return true
		})
		if err != nil {
			return r, err
		}
	}
	for _, n := range v.spans {
		v.wrong(n != 0)
	}
	s := &p.counters
	v.wrong(v.report.Records != s.Records, v.dead != s.Dead, v.deadBytes != s.DeadBytes, v.due != p.due.n,
		v.leased != len(p.leases.byID), v.notes != v.firing, v.head != p.frontier.head)
	return v.report, nil
}

type verifier struct {
	p         *partition
	report    driver.AuditReport
	dead      int64
	deadBytes int64
	due       int64
	leased    int // scheduled messages of the DB that are leased
	firing    int
	notes     int            // keys of kindBegun
	head      driver.Instant // of the messages that are not leased
	spans     map[uint64]int64
}

func (v *verifier) wrong(faults ...bool) {
	for _, is := range faults {
		if is {
			v.report.Wrong++
		}
	}
}

// walkIndex checks that each message of the index is at its place.
func (v *verifier) walkIndex() error {
	t := &v.p.table
	var failed error
	err := t.db.Scan(bytes.Clone(t.begin(kindIndex)), bytes.Clone(t.begin(kindIndex+1)), func(k, _ []byte) bool {
		end := len(k) - 2
		if binary.BigEndian.Uint16(k[end:]) != t.partition {
			return true
		}
		id := string(k[prefixSize-2 : end])
		v.report.Records++
		v.wrong(id > v.p.counters.maxID)
		switch r, err := t.load(id); {
		case errors.Is(err, ErrCorrupt):
			v.report.Orphans++
		case err != nil:
			failed = err
		case r.msg.State == 0:
			v.report.Unreadable++
		}
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// message checks that the index has the place of a message.
func (v *verifier) message(b, value []byte) {
	p := v.p
	kind := b[prefixSize-3]
	k, ok := p.table.parse(b)
	if v.wrong(!ok); !ok {
		return
	}
	at := place{kind, k}
	found, err := p.table.find(k.id)
	v.wrong(err != nil)
	if found != at {
		v.report.Strays++
	}
	r := decode(at, value)
	v.wrong(r.msg.State != 0 && (r.place() != at || r.msg.Repeat != "" && r.msg.Planned == 0))
	if kind == kindDead {
		v.dead++
		v.deadBytes += int64(len(r.msg.Body))
		v.wrong(p.oldestDead == 0 || k.at < p.oldestDead)
		return
	}
	v.spans[spanOf(k.at)]++
	if k.at <= p.due.until {
		v.due++
	}
	l, free := p.leases.byID[k.id], p.frontier.freed[k.id]
	_, unreadable := p.frontier.unreadable[k]
	if l != nil {
		v.leased++
		v.wrong(l.key != k || l.planned != r.msg.Planned)
		if l.firing {
			v.firing++
		}
	} else if v.head == 0 && !unreadable {
		v.head = k.at
	}
	v.wrong(k.before(p.frontier.front) && l == nil && !unreadable && (free == nil || free.key != k))
}

// begun checks that a message that is noted as begun is firing.
func (v *verifier) begun(k, _ []byte) {
	v.notes++
	l := v.p.leases.byID[string(k[prefixSize:])]
	v.wrong(l == nil || !l.firing)
}
