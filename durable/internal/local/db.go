package local

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
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

// Map is a [DB] in memory. It is a skip list: see Pugh, "Skip Lists: A Probabilistic Alternative to
// Balanced Trees", 1990. Each operation is O(log n) on average.
//
// Invariant: the nodes of each level are those of the level below with at least one more link, in
// the order of their keys.
type Map struct {
	head node
}

const maxLinks = 24

type node struct {
	key   string
	value []byte
	next  []*node // one per level, the lowest first
}

// NewMap returns an empty Map.
func NewMap() *Map { return &Map{head: node{next: make([]*node, maxLinks)}} }

// seek returns the first node whose key is not before a key, and the last node before it of each
// level.
func (l *Map) seek(key string) (first *node, before [maxLinks]*node) {
	at := &l.head
	for level := maxLinks - 1; level >= 0; level-- {
		for n := at.next[level]; n != nil && n.key < key; n = at.next[level] {
			at = n
		}
		before[level] = at
	}
	return at.next[0], before
}

func (l *Map) Get(key []byte) ([]byte, error) {
	if n, _ := l.seek(string(key)); n != nil && n.key == string(key) {
		return n.value, nil
	}
	return nil, nil //nolint:nilnil // there is no such key
}

func (l *Map) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	n, _ := l.seek(string(from))
	for n != nil && n.key < string(to) && visit([]byte(n.key), n.value) {
		n = n.next[0] // valid if visit has deleted n
	}
	return nil
}

func (l *Map) Set(key, value []byte) {
	value = append([]byte{}, value...) // not nil
	n, before := l.seek(string(key))
	if n != nil && n.key == string(key) {
		n.value = value
		return
	}
	// A node has another link with a probability of 1/2.
	links := 1 + bits.TrailingZeros32(rand.Uint32()|1<<(maxLinks-1)) //nolint:gosec // not a secret
	n = &node{key: string(key), value: value, next: make([]*node, links)}
	for level := range n.next {
		n.next[level] = before[level].next[level]
		before[level].next[level] = n
	}
}

func (l *Map) Delete(key []byte) { l.DeleteRange(key, append(bytes.Clone(key), 0)) }

func (l *Map) DeleteRange(from, to []byte) {
	_, before := l.seek(string(from))
	_, last := l.seek(max(string(from), string(to)))
	for level := range before {
		before[level].next[level] = last[level].next[level]
	}
}

func (l *Map) Add(key []byte, delta int64) {
	value, _ := l.Get(key)
	if sum := Number(value) + delta; sum != 0 {
		l.Set(key, AppendNumber(nil, sum))
	} else {
		l.Delete(key)
	}
}
