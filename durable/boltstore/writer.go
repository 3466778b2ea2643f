package boltstore

import (
	"context"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
)

// writer is a transaction of the committer.
type writer struct {
	store *Store
	tx    *bolt.Tx
	now   time.Time
	parts map[*partition]*partitionWriter
}

// partitionWriter is the part of a transaction that concerns a partition.
type partitionWriter struct {
	*writer
	p *partition
	buckets
	state   state
	effects []effect
	noted   []string
	dirty   bool
	dead    bool // the set of dead letters has changed
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

// run makes the changes of a group, and writes the notes of partitions.
func (w *writer) run(group []*request, notes []*partition) error {
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
	for _, p := range notes {
		pw, err := w.partition(p)
		if err != nil {
			return err
		}
		if err := pw.writeNotes(); err != nil {
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

// commit makes the transaction safe, and then the memory what it says. Nobody reads meanwhile: what was written
// could be seen before it is safe otherwise, and the memory would not fit it.
func (w *writer) commit() error {
	if err := w.store.view.lock(context.Background()); err != nil {
		return err
	}
	defer w.store.view.unlock()
	if err := w.tx.Commit(); err != nil {
		return err
	}
	for _, pw := range w.parts {
		if err := pw.settle(); err != nil {
			w.store.fail(err) // the file is right, but the memory does not know it
			return err
		}
	}
	return nil
}

// writeNotes notes what has begun. What the group touches waits for the next one, as it may be gone.
func (w *partitionWriter) writeNotes() error {
	w.p.mu.Lock()
	for id := range w.p.notes {
		if _, busy := w.p.busy[id]; !busy {
			w.noted = append(w.noted, id)
		}
	}
	w.p.mu.Unlock()
	for _, id := range w.noted {
		w.dirty = true
		if err := w.begun.Put([]byte(id), empty); err != nil {
			return err
		}
	}
	return nil
}

// finish writes what the partition counts, and a limit of tokens that is far ahead.
func (w *partitionWriter) finish() error {
	if !w.dirty {
		return nil
	}
	w.p.mu.Lock()
	w.state.tokens = max(w.state.tokens, w.p.token+tokenRange)
	w.p.mu.Unlock()
	return w.root.Put(keyState, w.state.encode())
}

// settle makes the memory of a partition what was committed. The caller holds Store.view.
func (w *partitionWriter) settle() error {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	head := p.head
	p.state = w.state
	for _, id := range w.noted {
		delete(p.notes, id)
	}
	for _, e := range w.effects {
		p.apply(e)
	}
	if len(p.notes) > 0 {
		w.store.commits.note(p) // they were busy
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

// get reads a record, nil where there is none. A damaged one has no state. It belongs to the transaction.
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

// move puts a record in the place of another one with the same id; nil stands for none. Indexes and counters follow.
func (w *partitionWriter) move(was, is *record, e effect) error {
	w.dirty = true
	if was != nil {
		e.id = was.ID
		if err := w.leave(was, &e); err != nil {
			return err
		}
	}
	if is == nil {
		w.effects = append(w.effects, e)
		return w.records.Delete([]byte(e.id))
	}
	e.id = is.ID
	if err := w.enter(is, &e); err != nil {
		return err
	}
	w.effects = append(w.effects, e)
	return w.records.Put([]byte(is.ID), is.encode())
}

// leave takes a record out of its index.
func (w *partitionWriter) leave(r *record, e *effect) error {
	w.state.records--
	switch r.State {
	case driver.StateScheduled:
		e.was = r.Due
		return w.index.Delete(key{r.Due, r.ID}.bytes())
	case driver.StateDead:
		w.state.dead--
		w.state.deadBytes -= int64(len(r.Body))
		w.dead = true
		return w.buckets.dead.Delete(key{r.Died, r.ID}.bytes())
	}
	return nil // damaged
}

func (w *partitionWriter) enter(r *record, e *effect) error {
	w.state.records++
	if r.State == driver.StateScheduled {
		e.is = r.Due
		return w.index.Put(key{r.Due, r.ID}.bytes(), empty)
	}
	w.state.dead++
	w.state.deadBytes += int64(len(r.Body))
	w.dead = true
	return w.buckets.dead.Put(key{r.Died, r.ID}.bytes(), empty)
}
