package pebblestore

import (
	"errors"
	"hash/maphash"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// table is a [local.DB] on Pebble. It collects changes in a batch. A Scan reads the batch as
// well, and so does a Get if the key has changed. The batch gets an index then.
type table struct {
	db      *pebble.DB
	batch   *pebble.Batch       // nil if there are no changes
	changed map[uint64]struct{} // hashes of the keys that changed after iter was made
	seed    maphash.Seed
	iter    *pebble.Iterator // nil before the first Get; changed is empty then
	n       int              // number of changes
	visible bool             // changes since the last take are visible, and not synced
	reading bool             // changes are dropped
	err     error            // the last error of Get or Scan
}

var _ local.DB = (*table)(nil)

func newTable(db *pebble.DB) *table {
	return &table{db: db, changed: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
}

// Get implements local.DB. An iterator serves a whole group, because DB.Get would open all files
// again for each key.
func (t *table) Get(key []byte) (value []byte, err error) {
	defer func() { t.note(err) }()
	if _, ok := t.changed[maphash.Bytes(t.seed, key)]; ok {
		t.closeIter()
	}
	if t.iter == nil {
		if t.iter, err = t.newIter(nil); err != nil {
			return nil, err
		}
	}
	if !t.iter.SeekPrefixGE(key) {
		return nil, t.iter.Error()
	}
	value, err = t.iter.ValueAndErr()
	if value == nil && err == nil {
		value = []byte{}
	}
	return value, err
}

// Scan implements local.DB.
func (t *table) Scan(from, to []byte, visit func(key, value []byte) bool) (err error) {
	defer func() { t.note(err) }()
	iter, err := t.newIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	for ok := iter.First(); ok; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return errors.Join(err, iter.Close())
		}
		if !visit(iter.Key(), value) {
			break
		}
	}
	return iter.Close()
}

// newIter returns an iterator over all keys with the changes up to now.
func (t *table) newIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	if t.batch == nil {
		return t.db.NewIter(o)
	}
	if !t.batch.Indexed() {
		indexed := t.db.NewIndexedBatch()
		if err := indexed.Apply(t.batch, nil); err != nil {
			return nil, err
		}
		_ = t.batch.Close()
		t.batch = indexed
	}
	return t.batch.NewIter(o)
}

// closeIter closes the iterator of Get. Its errors were those of Get.
func (t *table) closeIter() {
	if t.iter != nil {
		_ = t.iter.Close()
		t.iter = nil
		clear(t.changed)
	}
}

// note remembers an error, so that it can be told from an error of a call.
func (t *table) note(err error) {
	if err != nil {
		t.err = err
		t.closeIter() // its error stays
	}
}

// Set implements local.DB.
func (t *table) Set(key, value []byte) {
	_ = t.change(key).Set(key, value, nil) // it cannot fail
}

// Delete implements local.DB.
func (t *table) Delete(key []byte) {
	_ = t.change(key).Delete(key, nil) // it cannot fail
}

// Add implements local.DB.
func (t *table) Add(key []byte, delta int64) {
	_ = t.change(key).Merge(key, local.AppendNumber(nil, delta), nil) // it cannot fail
}

// change returns the batch for a change of a key.
func (t *table) change(key []byte) *pebble.Batch {
	t.n++
	if t.iter != nil {
		t.changed[maphash.Bytes(t.seed, key)] = struct{}{}
	}
	if t.batch == nil {
		t.batch = t.db.NewBatch()
	}
	return t.batch
}

// take returns a batch that makes all changes since the last take durable when it is synced, or nil
// if there are none.
func (t *table) take() (*pebble.Batch, error) {
	if t.visible {
		t.visible = false
		if err := t.change(nil).LogData([]byte{0}, nil); err != nil { // a batch without changes is not synced
			return nil, err
		}
	}
	return t.next(), nil
}

// next returns the batch, or nil, and begins another one. It closes the iterator, which reads the
// batch or does not see the changes.
func (t *table) next() *pebble.Batch {
	batch := t.batch
	t.batch = nil
	t.closeIter()
	if t.reading && batch != nil {
		_ = batch.Close()
		return nil
	}
	return batch
}

// flush makes the changes visible. A later take returns a batch that makes them durable.
func (t *table) flush() error {
	batch := t.next()
	if batch == nil {
		return nil
	}
	t.visible = true
	return errors.Join(t.db.Apply(batch, pebble.NoSync), batch.Close())
}

// numbers adds up the values of Add. A number of zero keeps its key. A pebble.DeletableValueMerger
// would remove the key, but in Pebble 2.1.7 a compaction that removes one returns to the value
// below it, or panics at a deleted key after it.
var numbers = &pebble.Merger{
	Name: "timingwheel.numbers",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		n := number(local.Number(value))
		return &n, nil
	},
}

type number int64

// MergeNewer implements pebble.ValueMerger.
func (n *number) MergeNewer(value []byte) error {
	*n += number(local.Number(value))
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (n *number) MergeOlder(value []byte) error { return n.MergeNewer(value) }

// Finish implements pebble.ValueMerger.
func (n *number) Finish(bool) ([]byte, io.Closer, error) {
	return local.AppendNumber(nil, int64(*n)), nil, nil
}
