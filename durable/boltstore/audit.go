package boltstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
)

// Audit walks over records and sets in steps of a thousand keys, and other calls run between the
// steps. Each step sees a consistent snapshot. Audit is O(n log n). The transaction that repairs a
// fault first checks for it again. Audit keeps a record that cannot be read: a newer version may
// have written the record, or it may be the only trace of a lost message.
func (b *backend) Audit(ctx context.Context, partition int, repair bool) (report driver.AuditReport, err error) {
	a := audit{b: b, partition: partition, repair: repair}
	for _, s := range []sweep{
		{a.restore, recordsOf, recordID, orphan, &report.Orphans, &report},
		{a.dropIndex, indexOf, keyID, strayIndex, &report.Strays, nil},
		{a.dropDead, deadOf, keyID, strayDead, &report.Strays, nil},
		{a.dropNote, begunOf, recordID, strayNote, &report.Strays, nil},
	} {
		if err := a.walk(ctx, s, &report.Repaired); err != nil {
			return driver.AuditReport{}, err
		}
	}
	if err := a.sumDead(ctx, &report); err != nil {
		return driver.AuditReport{}, err
	}
	return report, a.walkLeases(ctx, &report)
}

// auditStep is the number of keys visited in one transaction.
const auditStep = 1024

type audit struct {
	b         *backend
	partition int
	repair    bool
}

// sweep is a walk over one bucket.
type sweep struct {
	fix    func(w *partitionWriter, k []byte) error
	bucket func(buckets) *bolt.Bucket
	id     func(k []byte) string // returns the id of the message of a key
	wrong  func(parts buckets, k, v []byte) bool
	found  *int64
	report *driver.AuditReport // counts the records; nil for a walk over another bucket
}

func countRecord(report *driver.AuditReport, id, value []byte) {
	report.Records++
	if _, err := decode(string(id), value); err != nil {
		report.Unreadable++
	}
}

func recordsOf(b buckets) *bolt.Bucket { return b.records }
func indexOf(b buckets) *bolt.Bucket   { return b.index }
func deadOf(b buckets) *bolt.Bucket    { return b.dead }
func begunOf(b buckets) *bolt.Bucket   { return b.begun }

func recordID(k []byte) string { return string(k) }

func keyID(b []byte) string {
	k, _ := parseKey(b)
	return k.id
}

func (a *audit) walk(ctx context.Context, s sweep, repaired *int64) error {
	var from []byte
	for more := true; more; {
		var faults [][]byte
		err := a.b.view(ctx, a.partition, func(_ *partition, parts buckets) error {
			c := s.bucket(parts).Cursor()
			k, v := c.Seek(from)
			for n := 0; k != nil && n < auditStep && len(faults) < driver.MaxBatch; n++ {
				if s.report != nil {
					countRecord(s.report, k, v)
				}
				if s.wrong(parts, k, v) {
					faults = append(faults, slices.Clone(k))
				}
				k, v = c.Next()
			}
			if k != nil && bytes.Compare(k, from) <= 0 {
				return fmt.Errorf("boltstore: %w: the keys of partition %d are out of order",
					ErrCorrupt, a.partition)
			}
			from, more = slices.Clone(k), k != nil
			return nil
		})
		*s.found += int64(len(faults))
		if err == nil && a.repair && len(faults) > 0 {
			err = a.repairAll(ctx, s, faults, repaired)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repairAll repairs the faults that still exist, in one transaction.
func (a *audit) repairAll(ctx context.Context, s sweep, faults [][]byte, repaired *int64) error {
	r := &request{p: a.b.queue.partitions[a.partition]}
	for _, k := range faults {
		r.ids = append(r.ids, s.id(k))
	}
	n := int64(0)
	r.run = func(w *partitionWriter) error {
		n = 0
		for _, k := range faults {
			v := s.bucket(w.buckets).Get(k)
			if v == nil || !s.wrong(w.buckets, k, v) || w.damaged(s, k, v) {
				continue
			}
			w.dirty, w.dead = true, true
			if err := s.fix(w, k); err != nil {
				return err
			}
			n++
		}
		return nil
	}
	err := a.b.store.commits.do(ctx, r)
	if err == nil {
		*repaired += n
	}
	return err
}

// damaged reports whether a value is a record that cannot be read.
func (w *partitionWriter) damaged(s sweep, k, v []byte) bool {
	if s.bucket(w.buckets) != w.records {
		return false
	}
	_, err := decode(string(k), v)
	return err != nil
}

// setKey returns the set and the key in which a record belongs.
func setKey(parts buckets, r *record) (set *bolt.Bucket, k key) {
	if r.State == driver.StateDead {
		return parts.dead, key{r.Died, r.ID}
	}
	return parts.index, key{r.Due, r.ID}
}

func orphan(parts buckets, id, value []byte) bool {
	r, err := decode(string(id), value)
	if err != nil {
		return false // its set is not known
	}
	set, k := setKey(parts, &r)
	return set.Get(k.bytes()) == nil
}

func strayIndex(parts buckets, k, _ []byte) bool { return stray(parts, k, driver.StateScheduled) }
func strayDead(parts buckets, k, _ []byte) bool  { return stray(parts, k, driver.StateDead) }

func stray(parts buckets, b []byte, state driver.State) bool {
	k, ok := parseKey(b)
	if !ok {
		return true
	}
	value := parts.records.Get([]byte(k.id))
	if value == nil {
		return true
	}
	r, err := decode(k.id, value)
	if err != nil {
		return false // counted as unreadable
	}
	_, right := setKey(parts, &r)
	return r.State != state || right != k
}

func strayNote(parts buckets, id, _ []byte) bool { return parts.records.Get(id) == nil }

// restore adds a record to its set.
func (a *audit) restore(w *partitionWriter, id []byte) error {
	r := w.get(string(id))
	set, k := setKey(w.buckets, r)
	if r.State == driver.StateScheduled {
		w.effects = append(w.effects, effect{id: r.ID, added: r.Due})
	}
	return set.Put(k.bytes(), empty)
}

func (a *audit) dropIndex(w *partitionWriter, b []byte) error {
	if k, ok := parseKey(b); ok {
		kept := w.get(k.id) != nil
		if !kept {
			w.state.records-- // it was counted
		}
		w.effects = append(w.effects, effect{id: k.id, removed: k.at, keepsLease: kept, lost: !kept})
	}
	return w.index.Delete(b)
}

func (a *audit) dropDead(w *partitionWriter, b []byte) error {
	if k, ok := parseKey(b); ok && w.get(k.id) == nil {
		w.state.records--
		w.state.dead--
	}
	return w.buckets.dead.Delete(b)
}

func (a *audit) dropNote(w *partitionWriter, id []byte) error { return w.begun.Delete(id) }

// sumDead compares Counts.DeadBytes with the dead letters, also in steps. If dead letters were
// added or removed between two steps, sumDead begins again, and gives up after three attempts.
func (a *audit) sumDead(ctx context.Context, report *driver.AuditReport) error {
	for range 3 {
		at, sum, ok, err := a.walkDead(ctx)
		if err != nil || ok && sum == at.bytes {
			return err
		}
		if ok && !a.repair {
			report.Wrong++
			return nil
		}
		if !ok {
			continue
		}
		r := &request{p: a.b.queue.partitions[a.partition]}
		r.run = func(w *partitionWriter) error {
			if ok = w.state.deadAt() == at; ok {
				w.dirty, w.state.deadBytes = true, sum
			}
			return nil
		}
		if err := a.b.store.commits.do(ctx, r); err != nil {
			return err
		}
		if ok {
			report.Wrong++
			report.Repaired++
			return nil
		}
	}
	return nil
}

// deadAt identifies a version of the set of dead letters. Two values are equal if no dead letter
// was added or removed between them, or if the changes cancel out.
type deadAt struct {
	n, bytes        int64
	buried, trimmed uint64
}

func (s *state) deadAt() deadAt { return deadAt{s.dead, s.deadBytes, s.buried, s.trimmed} }

// walkDead adds up the sizes of the bodies of dead letters. ok is false if the set of dead letters
// has changed meanwhile.
func (a *audit) walkDead(ctx context.Context) (at deadAt, sum int64, ok bool, err error) {
	var from []byte
	for first := true; first || ok && from != nil && err == nil; first = false {
		err = a.b.view(ctx, a.partition, func(p *partition, parts buckets) error {
			if first {
				at = p.state.deadAt()
			}
			ok = p.state.deadAt() == at
			c := parts.dead.Cursor()
			k, _ := c.Seek(from)
			for n := 0; k != nil && n < auditStep; n++ {
				if r, err := decode(keyID(k), parts.records.Get([]byte(keyID(k)))); err == nil && r.State == driver.StateDead {
					sum += int64(len(r.Body))
				}
				k, _ = c.Next()
			}
			from = slices.Clone(k)
			return nil
		})
	}
	return at, sum, ok, err
}

// walkLeases finds leases of messages that are gone.
func (a *audit) walkLeases(ctx context.Context, report *driver.AuditReport) error {
	return a.b.view(ctx, a.partition, func(p *partition, parts buckets) error {
		for id := range p.leases {
			if parts.records.Get([]byte(id)) != nil {
				continue
			}
			report.Strays++
			if _, busy := p.busy[id]; a.repair && !busy {
				p.dropLease(id)
				report.Repaired++
			}
		}
		return nil
	})
}

// Lost implements driver.Auditor. It does not count.
func (b *backend) Lost(context.Context, int) (uint64, error) { return 0, nil }
