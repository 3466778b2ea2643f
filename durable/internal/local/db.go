package local

import (
	"encoding/binary"

	"github.com/tidwall/btree"
)

// DB is an ordered map that holds the queues of a store. Its methods are called one at a time. A
// method must not keep or change the slices that it is passed. The slice that Get returns is valid
// until the next Get. The slices that Scan passes to visit are valid until visit returns.
type DB interface {
	// Get returns the value of a key, or nil. It sees all earlier changes.
	Get(key []byte) (value []byte, err error)

	// Scan visits the keys from from (inclusive) to to (exclusive) in ascending order until visit
	// returns false. It sees all earlier changes. visit may call Get, may delete the key that it
	// visits, and may set later keys, which Scan may visit. It must not make other changes.
	Scan(from, to []byte, visit func(key, value []byte) (more bool)) error

	Set(key, value []byte)
	Delete(key []byte)

	// DeleteRange deletes the keys from from (inclusive) to to (exclusive).
	DeleteRange(from, to []byte)

	// Add adds to the number that is the value of a key, in the format of [Number]. A missing key
	// has the number 0.
	Add(key []byte, delta int64)
}

// Number decodes a value to which [DB].Add has added.
func Number(value []byte) int64 {
	n, _ := binary.Varint(value)
	return n
}

// AppendNumber encodes a value for [DB].Add.
func AppendNumber(value []byte, n int64) []byte { return binary.AppendVarint(value, n) }

// Map is a [DB] in memory. The zero value is empty.
type Map struct {
	tree    btree.Map[string, []byte]
	changes int // a change of the tree invalidates its iterators
}

func (m *Map) Get(key []byte) ([]byte, error) {
	value, _ := m.tree.Get(string(key))
	return value, nil
}

func (m *Map) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	it, changes := m.tree.Iter(), m.changes
	for found := it.Seek(string(from)); found; {
		key := it.Key()
		if key >= string(to) || !visit([]byte(key), it.Value()) {
			break
		}
		if m.changes == changes {
			found = it.Next()
			continue
		}
		it, changes = m.tree.Iter(), m.changes
		found = it.Seek(key + "\x00")
	}
	return nil
}

func (m *Map) Set(key, value []byte) {
	m.changes++
	m.tree.Set(string(key), append([]byte{}, value...)) // not nil
}

func (m *Map) Delete(key []byte) {
	m.changes++
	m.tree.Delete(string(key))
}

func (m *Map) DeleteRange(from, to []byte) {
	_ = m.Scan(from, to, func(key, _ []byte) bool { // which never fails
		m.Delete(key)
		return true
	})
}

func (m *Map) Add(key []byte, delta int64) {
	value, _ := m.Get(key)
	if sum := Number(value) + delta; sum != 0 {
		m.Set(key, AppendNumber(nil, sum))
	} else {
		m.Delete(key)
	}
}
