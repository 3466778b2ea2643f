package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The buckets of a file. The bucket "queues" has a bucket for each queue, which has a bucket for
// each partition, named by its number in two bytes, big-endian. The bucket of a partition holds:
//
//	records    id                  → record, see encode
//	index      due ‖ id            → nothing. Scheduled messages, leased ones included
//	dead       time of death ‖ id  → nothing
//	begun      id                  → nothing. Messages that have begun, see partition.unsavedBegun
//	state                          → counters, see state
//
// The file also has the buckets "timingwheel durable queues", with the version, and "reserve", see
// reserveBytes.
//
// Times are milliseconds in eight bytes, big-endian, so keys are ordered by times and then by ids.
var (
	bucketMeta    = []byte("timingwheel durable queues")
	bucketQueues  = []byte("queues")
	bucketReserve = []byte("reserve")
	bucketRecords = []byte("records")
	bucketIndex   = []byte("index")
	bucketDead    = []byte("dead")
	bucketBegun   = []byte("begun")

	keyVersion    = []byte("version")
	keyPartitions = []byte("partitions")
	keyCreated    = []byte("created")
	keyState      = []byte("state")
)

// empty is the value of keys without one. Within its transaction, a nil value looks like a missing
// key.
var empty = []byte{}

// formatVersion is the version of the layout, which rises if an older program would misread a file.
const formatVersion = 2

// key is a position in the order by time and then by id.
type key struct {
	at driver.Instant
	id string
}

func (k key) before(o key) bool { return k.at < o.at || k.at == o.at && k.id < o.id }

// next returns the first key after k.
func (k key) next() key { return key{k.at, k.id + "\x00"} }

func (k key) bytes() []byte {
	b := make([]byte, 8, 8+len(k.id))
	binary.BigEndian.PutUint64(b, uint64(k.at))
	return append(b, k.id...)
}

// parseKey decodes a key. It returns false if b is not a key.
func parseKey(b []byte) (key, bool) {
	if len(b) <= 8 {
		return key{}, false
	}
	at := binary.BigEndian.Uint64(b)
	if at > uint64(driver.Never) {
		return key{}, false
	}
	return key{driver.Instant(at), string(b[8:])}, true
}

// state holds the counters of a partition, and its limit of tokens.
type state struct {
	tokens  uint64 // no token from this one on is given out before a higher limit is synced
	records int64
	dead    int64

	enqueued, acked, retried, buried, cancelled, crashed uint64

	deadBytes int64 // size of the bodies of dead letters
	trimmed   uint64
	expired   uint64
	paused    uint64 // 0 if the partition is not paused
}

// stateSize is the length of an encoded state: a list of 64-bit numbers, big-endian.
const stateSize = 13 * 8

func (s *state) encode() []byte {
	b := make([]byte, 0, stateSize)
	for _, v := range []uint64{
		s.tokens, uint64(s.records), uint64(s.dead),
		s.enqueued, s.acked, s.retried, s.buried, s.cancelled, s.crashed,
		uint64(s.deadBytes), s.trimmed, s.expired, s.paused,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func decodeState(b []byte) (s state, err error) {
	if len(b) != stateSize {
		return s, fmt.Errorf("%w: the counters have %d bytes; there must be %d",
			ErrCorrupt, len(b), stateSize)
	}
	u := func() uint64 {
		v := binary.BigEndian.Uint64(b)
		b = b[8:]
		return v
	}
	s.tokens, s.records, s.dead = u(), int64(u()), int64(u())
	s.enqueued, s.acked, s.retried, s.buried, s.cancelled, s.crashed = u(), u(), u(), u(), u(), u()
	s.deadBytes, s.trimmed, s.expired, s.paused = int64(u()), u(), u(), u()
	return s, nil
}

// buckets are the buckets of a partition in one transaction.
type buckets struct {
	root, records, index, dead, begun *bolt.Bucket
}

var errNoBucket = errors.New("a bucket is missing")

func (q *queue) buckets(tx *bolt.Tx, partition int) (b buckets, err error) {
	if b.root = queueBucket(tx, q.name); b.root != nil {
		b.root = b.root.Bucket(partitionName(partition))
	}
	if b.root == nil {
		return b, fmt.Errorf("%w: queue %q, partition %d: %w",
			ErrCorrupt, q.name, partition, errNoBucket)
	}
	for _, p := range b.all() {
		if *p.bucket = b.root.Bucket(p.name); *p.bucket == nil {
			return b, fmt.Errorf("%w: queue %q, partition %d, %s: %w",
				ErrCorrupt, q.name, partition, p.name, errNoBucket)
		}
	}
	// Ids and times mostly rise, so later inserts rarely fill the free part of a page.
	b.records.FillPercent, b.index.FillPercent, b.dead.FillPercent = 0.8, 0.8, 0.8
	return b, nil
}

type namedBucket struct {
	name   []byte
	bucket **bolt.Bucket
}

func (b *buckets) all() []namedBucket {
	return []namedBucket{
		{bucketRecords, &b.records}, {bucketIndex, &b.index}, {bucketDead, &b.dead}, {bucketBegun, &b.begun},
	}
}

func queueBucket(tx *bolt.Tx, name string) *bolt.Bucket {
	queues := tx.Bucket(bucketQueues)
	if queues == nil {
		return nil
	}
	return queues.Bucket([]byte(name))
}

func partitionName(i int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(i)) }

// record is a message as the file holds it: scheduled or dead. Token is the token of the last
// transition that had one.
type record struct {
	driver.Record
	last    driver.Op // the transition that wrote it, if a repetition of it is recognized; otherwise 0
	suspect bool      // the message had begun when the process crashed, so the next claim checks its crashes
}

// recordVersion is the first byte of a record.
const recordVersion = 1

const flagSuspect = 1

// encode returns the version, state, last transition and flags of a record in one byte each, then
// as varints its times, numbers and the length of the reason, then the reason and the body. The id
// is the key.
func (r *record) encode() []byte {
	b := make([]byte, 0, 64+len(r.Reason)+len(r.Body))
	flags := byte(0)
	if r.suspect {
		flags |= flagSuspect
	}
	b = append(b, recordVersion, byte(r.State), byte(r.last), flags)
	for _, v := range []uint64{
		uint64(r.Enqueued), uint64(r.Due), uint64(r.MaxAttempts), uint64(r.Attempts), uint64(r.Crashes),
		r.Token, uint64(r.Died), uint64(len(r.Reason)),
	} {
		b = binary.AppendUvarint(b, v)
	}
	b = append(b, r.Reason...)
	return append(b, r.Body...)
}

// decode decodes a record. Its body is a part of b, which belongs to the transaction.
func decode(id string, b []byte) (r record, err error) {
	damaged := func(what string) (record, error) {
		return record{}, fmt.Errorf("%w: the record of message %q: %s", ErrCorrupt, id, what)
	}
	if len(b) < 4 {
		return damaged("it is too short")
	}
	if b[0] != recordVersion {
		return damaged(fmt.Sprintf("its version is %d; it must be %d", b[0], recordVersion))
	}
	r.ID, r.State, r.last = id, driver.State(b[1]), driver.Op(b[2])
	r.suspect = b[3]&flagSuspect != 0
	if r.State != driver.StateScheduled && r.State != driver.StateDead {
		return damaged(fmt.Sprintf("its state is %d", r.State))
	}
	b = b[4:]
	var v [8]uint64
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(b); n <= 0 {
			return damaged("it is too short")
		}
		b = b[n:]
	}
	if max(v[0], v[1], v[6]) > uint64(driver.Never) || max(v[2], v[3], v[4]) > math.MaxInt32 || v[7] > uint64(len(b)) {
		return damaged("a number is out of range")
	}
	r.Enqueued, r.Due, r.Died = driver.Instant(v[0]), driver.Instant(v[1]), driver.Instant(v[6])
	r.MaxAttempts, r.Attempts, r.Crashes, r.Token = int(v[2]), int(v[3]), int(v[4]), v[5]
	r.Reason, r.Body = string(b[:v[7]]), b[v[7]:]
	return r, nil
}

// export returns a record whose body is a copy, so that the caller can keep it after the
// transaction.
func (r *record) export() driver.Record {
	out := r.Record
	out.Body = append(make([]byte, 0, len(r.Body)), r.Body...)
	return out
}

// increment returns n+1, or the largest number that a record can hold.
func increment(n int) int { return min(n+1, math.MaxInt32) }
