package pebblestore

import (
	"errors"
	"hash/maphash"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// batchDB is a [local.DB] on Pebble. It collects changes in a batch. A Scan reads the batch as
// well, and so does a Get if the key has changed. The batch gets an index then.
type batchDB struct {
	pebble   *pebble.DB
	batch    *pebble.Batch       // nil if there are no changes
	changed  map[uint64]struct{} // hashes of the keys that changed after iter was made
	seed     maphash.Seed
	iter     *pebble.Iterator // nil before the first Get; changed is empty then
	n        int              // number of changes
	visible  bool             // changes since the last take are visible, and not synced
	readOnly bool             // changes stay in batch
	err      error            // the last error of Get or Scan
}

func newBatchDB(db *pebble.DB) *batchDB {
	return &batchDB{pebble: db, changed: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
}

// Get implements local.DB. An iterator serves a whole group, because DB.Get would open all files
// again for each key.
func (d *batchDB) Get(key []byte) (value []byte, err error) {
	defer func() { d.note(err) }()
	if _, ok := d.changed[maphash.Bytes(d.seed, key)]; ok {
		d.closeIter()
	}
	if d.iter == nil {
		if d.iter, err = d.newIter(nil); err != nil {
			return nil, err
		}
	}
	if !d.iter.SeekPrefixGE(key) {
		return nil, d.iter.Error()
	}
	value, err = d.iter.ValueAndErr()
	if value == nil && err == nil {
		value = []byte{}
	}
	return value, err
}

func (d *batchDB) Scan(from, to []byte, visit func(key, value []byte) bool) (err error) {
	defer func() { d.note(err) }()
	iter, err := d.newIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	for ok := iter.First(); ok; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil || !visit(iter.Key(), value) {
			return errors.Join(err, iter.Close())
		}
	}
	return iter.Close()
}

// newIter returns an iterator over all keys with the changes up to now.
func (d *batchDB) newIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	if d.batch == nil {
		return d.pebble.NewIter(o)
	}
	if !d.batch.Indexed() {
		indexed := d.pebble.NewIndexedBatch()
		if err := indexed.Apply(d.batch, nil); err != nil {
			return nil, err
		}
		_ = d.batch.Close()
		d.batch = indexed
	}
	return d.batch.NewIter(o)
}

// closeIter closes the iterator of Get. Get has returned its errors.
func (d *batchDB) closeIter() {
	if d.iter != nil {
		_ = d.iter.Close()
		d.iter = nil
		clear(d.changed)
	}
}

// note remembers an error, so that it can be told from an error of a call.
func (d *batchDB) note(err error) {
	if err != nil {
		d.err = err
		d.closeIter() // its error stays
	}
}

// Set cannot fail, like the other changes of a batch.
func (d *batchDB) Set(key, value []byte) { _ = d.change(key).Set(key, value, nil) }
func (d *batchDB) Delete(key []byte)     { _ = d.change(key).Delete(key, nil) }
func (d *batchDB) DeleteRange(from, to []byte) {
	_ = d.change(from).DeleteRange(from, to, nil)
	d.closeIter() // changed does not have the keys of the range
}
func (d *batchDB) Add(key []byte, delta int64) {
	_ = d.change(key).Merge(key, local.AppendNumber(nil, delta), nil)
}

// change returns the batch for a change of a key.
func (d *batchDB) change(key []byte) *pebble.Batch {
	d.n++
	if d.iter != nil {
		d.changed[maphash.Bytes(d.seed, key)] = struct{}{}
	}
	if d.batch == nil {
		d.batch = d.pebble.NewBatch()
	}
	return d.batch
}

// take returns a batch that makes all changes since the last take durable when it is synced, or nil
// if there are none.
func (d *batchDB) take() (*pebble.Batch, error) {
	if d.visible {
		d.visible = false
		if err := d.change(nil).LogData([]byte{0}, nil); err != nil { // a batch without changes is not synced
			return nil, err
		}
	}
	return d.next(), nil
}

// next returns the batch, or nil, and begins another one. It closes the iterator, which reads the
// batch or does not see the changes.
func (d *batchDB) next() *pebble.Batch {
	d.closeIter()
	if d.readOnly { // reads see the changes, and nothing is written
		return nil
	}
	batch := d.batch
	d.batch = nil
	return batch
}

// flush makes the changes visible. A later take returns a batch that makes them durable.
func (d *batchDB) flush() error {
	batch := d.next()
	if batch == nil {
		return nil
	}
	d.visible = true
	return errors.Join(d.pebble.Apply(batch, pebble.NoSync), batch.Close())
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

func (n *number) MergeNewer(value []byte) error {
	*n += number(local.Number(value))
	return nil
}

func (n *number) MergeOlder(value []byte) error { return n.MergeNewer(value) }

func (n *number) Finish(bool) ([]byte, io.Closer, error) {
	return local.AppendNumber(nil, int64(*n)), nil, nil
}
