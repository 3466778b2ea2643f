package local

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// table reads and writes the keys of a partition. It knows nothing of leases.
type table struct {
	db        DB
	queue     uint32
	partition uint16
	key       []byte // the last key
	value     []byte // the last record
}

// begin begins a key of a kind. The key is valid until the next one.
func (t *table) begin(kind byte) []byte {
	t.key = binary.BigEndian.AppendUint32(append(t.key[:0], 1), t.queue)
	t.key = append(t.key, kind)
	return t.key
}

// kindKey begins a key of a kind and this partition.
func (t *table) kindKey(kind byte) []byte {
	t.key = binary.BigEndian.AppendUint16(t.begin(kind), t.partition)
	return t.key
}

// prefixSize is the length of a key of kindKey.
const prefixSize = 8

// indexKey returns the key of the index.
func (t *table) indexKey(id string) []byte {
	t.key = append(t.begin(kindIndex), id...)
	t.key = binary.BigEndian.AppendUint16(t.key, t.partition)
	return t.key
}

// begunKey returns the key of a note that a message has begun.
func (t *table) begunKey(id string) []byte {
	t.key = append(t.kindKey(kindBegun), id...)
	return t.key
}

// timeKey returns the key of a kind that has a time. It is valid until the next key.
func (t *table) timeKey(kind byte, k key) []byte {
	t.key = binary.BigEndian.AppendUint64(t.kindKey(kind), uint64(k.at)) //nolint:gosec // not negative
	t.key = append(t.key, k.id...)
	return t.key
}

// spanKey returns the key of a counter of due times. It is valid until the next key.
func (t *table) spanKey(span uint64) []byte {
	t.key = binary.BigEndian.AppendUint64(t.kindKey(kindSpan), span)
	return t.key
}

// scan visits the keys of a kind from from on.
func (t *table) scan(kind byte, from []byte, visit func(key, value []byte) (more bool)) error {
	from = bytes.Clone(from) // visit may use t.key
	to := bytes.Clone(t.kindKey(kind))
	binary.BigEndian.PutUint16(to[prefixSize-2:], t.partition+1)
	return t.db.Scan(from, to, visit)
}

// walk visits the messages of kindScheduled or kindDead from a key on, in order of key.
func (t *table) walk(kind byte, from key, visit func(k key, value []byte) (more bool)) error {
	var bad error
	err := t.scan(kind, t.timeKey(kind, from), func(b, value []byte) bool {
		k, ok := t.parse(b)
		if !ok {
			bad = fmt.Errorf("%w: partition %d has a key %x", ErrCorrupt, t.partition, b)
			return false
		}
		return visit(k, value)
	})
	return cmp.Or(bad, err)
}

// parse decodes a key that has a time.
func (t *table) parse(b []byte) (key, bool) {
	b = b[prefixSize:]
	if len(b) <= 8 || binary.BigEndian.Uint64(b) > uint64(driver.Never) {
		return key{}, false
	}
	return key{driver.Instant(binary.BigEndian.Uint64(b)), string(b[8:])}, true //nolint:gosec // at most Never
}

// load returns a message, or nil if there is none. Its body is valid until the next Get or Scan.
func (t *table) load(id string) (*record, error) {
	at, err := t.find(id)
	if at.kind == 0 || err != nil {
		return nil, err
	}
	return t.read(at)
}

// find returns the place of a message, or a zero place if there is no such message.
func (t *table) find(id string) (place, error) {
	b, err := t.db.Get(t.indexKey(id))
	if b == nil || err != nil {
		return place{}, err
	}
	return t.parsePlace(id, b)
}

// parsePlace decodes a value of the index.
func (t *table) parsePlace(id string, b []byte) (place, error) {
	if len(b) != 9 || b[0] != kindDead && b[0] != kindScheduled {
		return place{}, fmt.Errorf("%w: partition %d: the place of message %q is %x", ErrCorrupt, t.partition, id, b)
	}
	return place{b[0], key{driver.Instant(binary.BigEndian.Uint64(b[1:])), id}}, nil //nolint:gosec // as written
}

// read returns the record at a place.
func (t *table) read(at place) (*record, error) {
	b, err := t.db.Get(t.timeKey(at.kind, at.key))
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, fmt.Errorf("%w: partition %d: message %q is not at its place", ErrCorrupt, t.partition, at.id)
	}
	r := decode(at, b)
	return &r, nil
}

// set writes a record at its place, and not to the index.
func (t *table) set(r *record) {
	at := r.place()
	t.value = r.encode(t.value)
	t.db.Set(t.timeKey(at.kind, at.key), t.value)
}

// setIndex writes the place of a message to the index.
func (t *table) setIndex(at place) {
	t.value = binary.BigEndian.AppendUint64(append(t.value[:0], at.kind), uint64(at.at)) //nolint:gosec // not negative
	t.db.Set(t.indexKey(at.id), t.value)
}

func (t *table) deleteIndex(id string) { t.db.Delete(t.indexKey(id)) }
func (t *table) deletePlace(at place)  { t.db.Delete(t.timeKey(at.kind, at.key)) }
func (t *table) setBegun(id string)    { t.db.Set(t.begunKey(id), process) }
func (t *table) deleteBegun(id string) { t.db.Delete(t.begunKey(id)) }
