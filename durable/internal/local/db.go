package local

import "encoding/binary"

// DB is an ordered map that holds the queues of a store. Its methods are called one at a time. A
// method must not keep or change the slices that it is passed. The slice that Get returns is valid
// until the next Get. The slices that Scan passes to visit are valid until visit returns.
type DB interface {
	// Get returns the value of a key, or nil. It sees all earlier changes.
	Get(key []byte) (value []byte, err error)

	// Scan visits the keys from from (inclusive) to to (exclusive) in ascending order until visit
	// returns false. It sees all earlier changes. visit may call Get, and may delete the key that
	// it visits. It must not change other keys of the range.
	Scan(from, to []byte, visit func(key, value []byte) (more bool)) error

	Set(key, value []byte)
	Delete(key []byte)

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
