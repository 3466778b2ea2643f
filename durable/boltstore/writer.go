package boltstore

import (
	"context"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// writer is a transaction of the committer.
type writer struct {
	store *Store
	tx    *bolt.Tx
	now   time.Time
	parts map[*partition]*partitionWriter
}

// partitionWriter is the part of a transaction for one partition.
type partitionWriter struct {
	*writer
	p *partition
	buckets
	state      state
	effects    []effect
	savedBegun []string
	dirty      bool
	dead       bool // the set of dead letters has changed
}

func newWriter(s *Store, tx *bolt.Tx) *writer {
	return &writer{store: s, tx: tx, now: s.options.Now(), parts: make(map[*partition]*partitionWriter)}
}

func (w *writer) partition(p *partition) (*partitionWriter, error) {
	if pw := w.parts[p]; pw != nil {
		return pw, nil
	}
	b, err := p.q.buckets(w.tx, p.index)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	pw := &partitionWriter{writer: w, p: p, buckets: b, state: p.state}
	p.mu.Unlock()
	w.parts[p] = pw
	return pw, nil
}

// run makes the changes of a group, and writes the begun messages of partitions.
func (w *writer) run(group []*request, begun []*partition) error {
	for _, r := range group {
		pw, err := w.partition(r.p)
		if err != nil {
			return err
		}
		if r.grows {
			if err := w.keepReserve(); err != nil {
				return err
			}
		}
		if err := r.run(pw); err != nil {
			return err
		}
	}
	for _, p := range begun {
		pw, err := w.partition(p)
		if err != nil {
			return err
		}
		if err := pw.writeBegun(); err != nil {
			return err
		}
	}
	for _, pw := range w.parts {
		if err := pw.finish(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) wrote() bool {
	for _, pw := range w.parts {
		if pw.dirty {
			return true
		}
	}
	return false
}

// commit syncs the transaction and then updates the memory. Readers are excluded meanwhile:
// otherwise they could see changes before the sync, or a file that the memory does not match.
func (w *writer) commit() error {
	if err := w.store.view.lock(context.Background()); err != nil {
		return err
	}
	defer w.store.view.unlock()
	if err := w.tx.Commit(); err != nil {
		return err
	}
	for _, pw := range w.parts {
		if err := pw.updateMemory(); err != nil {
			w.store.fail(err) // the file has changed, and the memory has not
			return err
		}
	}
	return nil
}

// writeBegun writes unsavedBegun to the bucket "begun". It leaves out the messages of the group,
// which the group may delete; they wait for the next group.
func (w *partitionWriter) writeBegun() error {
	w.p.mu.Lock()
	for id := range w.p.unsavedBegun {
		if _, busy := w.p.busy[id]; !busy {
			w.savedBegun = append(w.savedBegun, id)
		}
	}
	w.p.mu.Unlock()
	for _, id := range w.savedBegun {
		w.dirty = true
		if err := w.begun.Put([]byte(id), empty); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the counters of the partition and raises its limit of tokens.
func (w *partitionWriter) finish() error {
	if !w.dirty {
		return nil
	}
	w.p.mu.Lock()
	w.state.tokens = max(w.state.tokens, w.p.token+tokenRange)
	w.p.mu.Unlock()
	return w.root.Put(keyState, w.state.encode())
}

// updateMemory applies the committed changes to the memory of the partition. The caller holds
// Store.view.
func (w *partitionWriter) updateMemory() error {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	head := p.head
	if p.state.paused != w.state.paused {
		p.q.hints.Send(driver.Hint{Partition: p.index})
	}
	p.state = w.state
	for _, id := range w.savedBegun {
		delete(p.unsavedBegun, id)
	}
	for _, e := range w.effects {
		p.applyEffect(e)
	}
	if len(p.unsavedBegun) > 0 {
		w.store.commits.saveBegun(p) // their messages were busy
	}
	if p.headKnown && !w.dead {
		p.hint(head)
		return nil
	}
	return w.store.file.view(func(tx *bolt.Tx) error {
		b, err := p.q.buckets(tx, p.index)
		if err != nil {
			return err
		}
		p.oldestDead = firstTime(b.dead)
		p.findHead(b)
		p.hint(head)
		return nil
	})
}

// get reads a record, or returns nil if there is none. A damaged record has no state. The record
// belongs to the transaction.
func (w *partitionWriter) get(id string) *record {
	b := w.records.Get([]byte(id))
	if b == nil {
		return nil
	}
	r, err := decode(id, b)
	if err != nil {
		return &record{Record: driver.Record{ID: id}}
	}
	return &r
}

// replace replaces a record by another one with the same id, and updates the indexes and counters.
// If old is nil, there was no record. If updated is nil, the record is deleted.
func (w *partitionWriter) replace(old, updated *record, e effect) error {
	w.dirty = true
	if old != nil {
		e.id = old.ID
		if err := w.removeKey(old, &e); err != nil {
			return err
		}
	}
	if updated == nil {
		w.effects = append(w.effects, e)
		return w.records.Delete([]byte(e.id))
	}
	e.id = updated.ID
	if err := w.addKey(updated, &e); err != nil {
		return err
	}
	w.effects = append(w.effects, e)
	return w.records.Put([]byte(updated.ID), updated.encode())
}

// removeKey removes a record from its index and from the counters.
func (w *partitionWriter) removeKey(r *record, e *effect) error {
	w.state.records--
	switch r.State {
	case driver.StateScheduled:
		e.removed = r.Due
		return w.index.Delete(key{r.Due, r.ID}.bytes())
	case driver.StateDead:
		w.state.dead--
		w.state.deadBytes -= int64(len(r.Body))
		w.dead = true
		return w.buckets.dead.Delete(key{r.Died, r.ID}.bytes())
	}
	return nil // the record is damaged
}

func (w *partitionWriter) addKey(r *record, e *effect) error {
	w.state.records++
	if r.State == driver.StateScheduled {
		e.added = r.Due
		return w.index.Put(key{r.Due, r.ID}.bytes(), empty)
	}
	w.state.dead++
	w.state.deadBytes += int64(len(r.Body))
	w.dead = true
	return w.buckets.dead.Put(key{r.Died, r.ID}.bytes(), empty)
}

// put stores messages.
func (w *partitionWriter) put(put *driver.Put) ([]driver.Status, error) {
	statuses := make([]driver.Status, len(put.Items))
	for i := range put.Items {
		var err error
		if statuses[i], err = w.putOne(&put.Items[i], put.Replace); err != nil {
			return nil, err
		}
	}
	return statuses, nil
}

func (w *partitionWriter) putOne(item *driver.PutItem, replace bool) (driver.Status, error) {
	old := w.get(item.ID)
	if old != nil {
		switch {
		case !replace:
			return driver.StatusDuplicate, nil
		case w.isFiring(item.ID):
			return driver.StatusFiring, nil
		}
	}
	r := &record{Record: driver.Record{
		ID:          item.ID,
		Body:        item.Body,
		Enqueued:    local.Floor(w.now),
		Due:         local.DueAt(w.now, item.At, item.Delay),
		MaxAttempts: item.MaxAttempts,
		State:       driver.StateScheduled,
	}}
	w.state.enqueued++
	return driver.StatusDone, w.replace(old, r, effect{})
}

// apply makes a transition of each message of a batch.
func (w *partitionWriter) apply(b *driver.Batch, limits local.DeadLimits) ([]driver.Outcome, error) {
	outcomes := make([]driver.Outcome, len(b.Changes))
	for i := range b.Changes {
		c := &b.Changes[i]
		step := w.replayOrPurge
		switch b.Op {
		case driver.OpAck, driver.OpExpire, driver.OpRetry, driver.OpBury, driver.OpRelease:
			step = w.endDelivery
		case driver.OpCancel, driver.OpReschedule:
			step = w.cancelOrReschedule
		}
		status, err := step(b.Op, c, w.get(c.ID))
		if err != nil {
			return nil, err
		}
		outcomes[i] = driver.Outcome{Status: status, Now: w.now}
	}
	return outcomes, w.trimDead(limits)
}

// pause pauses or resumes the partition.
func (w *partitionWriter) pause(paused bool) {
	value := uint64(0)
	if paused {
		value = 1
	}
	w.dirty = w.dirty || w.state.paused != value
	w.state.paused = value
}

// leaseOf returns a copy of the lease of a message, if it has one. The message belongs to the
// committer's group, so only a claim of a scheduled message can change its lease.
func (w *partitionWriter) leaseOf(id string) (lease, bool) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if l := w.p.leases[id]; l != nil {
		return *l, true
	}
	return lease{}, false
}

func (w *partitionWriter) isFiring(id string) bool {
	l, ok := w.leaseOf(id)
	return ok && l.firing
}

// endDelivery makes a transition that ends the delivery of a leased message.
func (w *partitionWriter) endDelivery(op driver.Op, c *driver.Change, r *record) (driver.Status, error) {
	switch {
	case (op == driver.OpAck || op == driver.OpExpire) && (r == nil || r.State != driver.StateScheduled):
		return driver.StatusNotFound, nil
	case w.isRepeated(op, c, r):
		return driver.StatusDone, nil
	}
	l, ok := w.leaseOf(c.ID)
	if !ok || r == nil || r.State != driver.StateScheduled || c.Token == 0 || l.token != c.Token ||
		!l.firing && op != driver.OpRelease {
		return driver.StatusLeaseLost, nil
	}
	if err := w.begun.Delete([]byte(c.ID)); err != nil {
		return 0, err
	}
	updated := *r
	updated.Token, updated.last, updated.suspect = c.Token, op, false
	switch op {
	case driver.OpAck:
		w.state.acked++
		return driver.StatusDone, w.replace(r, nil, effect{})
	case driver.OpExpire:
		w.state.expired++
		return driver.StatusDone, w.replace(r, nil, effect{})
	case driver.OpRetry:
		w.state.retried++
		if !c.Uncounted {
			updated.Attempts = increment(updated.Attempts)
		}
		updated.Reason, updated.Due = driver.CutReason(c.Reason), local.After(w.now, c.Delay)
	case driver.OpBury:
		updated.Attempts, updated.Reason = increment(updated.Attempts), driver.CutReason(c.Reason)
		w.bury(&updated)
	case driver.OpRelease:
		w.dirty = true
		w.effects = append(w.effects, effect{id: c.ID, removed: r.Due, added: r.Due, released: endedLease{c.Token, op}})
		return driver.StatusDone, nil
	}
	return driver.StatusDone, w.replace(r, &updated, effect{})
}

// isRepeated reports whether a transition has already taken place and is the last one of its
// message.
func (w *partitionWriter) isRepeated(op driver.Op, c *driver.Change, r *record) bool {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if r == nil || c.Token == 0 || w.p.leases[c.ID] != nil && w.p.leases[c.ID].due == r.Due {
		return false
	}
	if f, ok := w.p.ended[c.ID]; ok {
		return f == endedLease{c.Token, op}
	}
	return r.Token == c.Token && r.last == op
}

// bury turns a record into a dead letter.
func (w *partitionWriter) bury(r *record) {
	r.State, r.Died, r.suspect = driver.StateDead, local.Floor(w.now), false
	w.state.buried++
}

// cancelOrReschedule cancels or reschedules a message that has not begun. A consumer that has
// claimed it loses its lease.
func (w *partitionWriter) cancelOrReschedule(op driver.Op, c *driver.Change, r *record) (driver.Status, error) {
	switch {
	case r == nil || r.State != driver.StateScheduled || op == driver.OpCancel && c.Incarnation != 0 && c.Incarnation != r.Enqueued:
		return driver.StatusNotFound, nil
	case w.isFiring(c.ID):
		return driver.StatusFiring, nil
	case op == driver.OpCancel:
		w.state.cancelled++
		return driver.StatusDone, w.replace(r, nil, effect{})
	}
	updated := *r
	updated.last, updated.Due = 0, local.DueAt(w.now, c.At, c.Delay)
	if l, ok := w.leaseOf(c.ID); ok {
		updated.Token = l.token
	}
	return driver.StatusDone, w.replace(r, &updated, effect{})
}

// replayOrPurge replays or purges a dead letter.
func (w *partitionWriter) replayOrPurge(op driver.Op, c *driver.Change, r *record) (driver.Status, error) {
	switch {
	case r == nil || r.State != driver.StateDead || c.Incarnation != 0 && c.Incarnation != r.Died:
		return driver.StatusNotFound, nil
	case op == driver.OpPurge:
		return driver.StatusDone, w.replace(r, nil, effect{})
	}
	updated := *r
	updated.State, updated.Due, updated.Died = driver.StateScheduled, local.After(w.now, c.Delay), 0
	updated.Attempts, updated.Crashes, updated.last = 0, 0, 0
	return driver.StatusDone, w.replace(r, &updated, effect{})
}

// applyInMemory makes transitions that need no commit. done is false if one of them needs a commit:
// a release of a message that has begun.
func (b *backend) applyInMemory(ctx context.Context, p *partition, batch *driver.Batch) (
	outcomes []driver.Outcome, done bool, err error,
) {
	for {
		p.mu.Lock()
		wait := p.busyWith(batch.Changes)
		if wait == nil {
			break
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		if err := b.store.usable(ctx); err != nil {
			return nil, false, err
		}
	}
	head := p.head
	outcomes, done = p.leaseChanges(b.store.options.Now(), batch)
	p.hint(head)
	begun := len(p.unsavedBegun) > 0
	p.mu.Unlock()
	if begun && batch.Op == driver.OpBegin {
		b.store.commits.saveBegun(p)
	}
	return outcomes, done, nil
}

// busyWith returns nil if none of the messages is busy, and otherwise a channel that is closed when
// the commit ends.
func (p *partition) busyWith(changes []driver.Change) <-chan struct{} {
	for i := range changes {
		if _, busy := p.busy[changes[i].ID]; busy {
			if p.groupDone == nil {
				p.groupDone = make(chan struct{})
			}
			return p.groupDone
		}
	}
	return nil
}

// tooManyDead reports whether dead letters exceed the limits.
func (p *partition) tooManyDead(now time.Time, limits local.DeadLimits) bool {
	return limits.Exceeded(p.state.dead, p.state.deadBytes, p.oldestDead, local.Floor(now))
}

// countCrashes counts a crash of each message that was firing when its lease ended, and buries the
// messages with too many crashes.
func (w *partitionWriter) countCrashes(ids []string, maxCrashes int, limits local.DeadLimits) error {
	w.dirty = true
	for _, id := range ids {
		r := w.get(id)
		l, ok := w.leaseOf(id)
		if !ok || l.end > local.Floor(w.now) || r == nil || r.State != driver.StateScheduled {
			continue // the lease was extended, or the message is gone
		}
		updated := *r
		if l.firing {
			updated.Crashes, updated.last, updated.Token, updated.suspect = increment(updated.Crashes), 0, l.token, false
			w.state.crashed++
		} else if !r.suspect {
			continue
		}
		if err := w.begun.Delete([]byte(id)); err != nil {
			return err
		}
		if maxCrashes > 0 && updated.Crashes >= maxCrashes {
			w.bury(&updated)
		}
		if err := w.replace(r, &updated, effect{}); err != nil {
			return err
		}
	}
	return w.trimDead(limits)
}

// trimDead drops dead letters while they exceed a limit, the oldest first and at most two batches.
// A request adds at most one batch, so each request shrinks a backlog.
func (w *partitionWriter) trimDead(limits local.DeadLimits) error {
	now := local.Floor(w.now)
	if !w.dead && !limits.Exceeded(w.state.dead, w.state.deadBytes, w.p.oldestDead, now) {
		return nil
	}
	for range 2 * driver.MaxBatch {
		b, _ := w.buckets.dead.Cursor().First()
		k, ok := parseKey(b)
		if !ok || !limits.Exceeded(w.state.dead, w.state.deadBytes, k.at, now) {
			return nil
		}
		if err := w.dropDead(k); err != nil {
			return err
		}
	}
	return nil
}

// dropDead drops a dead letter, or a key without one.
func (w *partitionWriter) dropDead(k key) error {
	if r := w.get(k.id); r != nil && r.State == driver.StateDead && r.Died == k.at {
		w.state.trimmed++
		return w.replace(r, nil, effect{})
	}
	w.dirty, w.dead = true, true
	w.state.dead--
	return w.buckets.dead.Delete(k.bytes())
}
