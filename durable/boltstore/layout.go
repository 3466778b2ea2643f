package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
)

// The buckets of a file. A queue has a bucket below "queues", which has one for each partition, named by its number as two
// bytes, big-endian. What is below that:
//
//	records    id                  → record, see encode
//	index      due ‖ id            → nothing. Scheduled ones, those that are leased in memory included
//	dead       time of death ‖ id  → nothing
//	begun      id                  → nothing. See committer.note
//	state                          → counters, see state
//
// Beside "queues" there is "reserve", see reserveBytes.
//
// Times are eight bytes of milliseconds, big-endian, so that the order of keys is that of times and then ids.
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

// empty is the value of keys that have none. A nil one could not be told from a missing key within its transaction.
var empty = []byte{}

// formatVersion is the version of the layout. It rises where an older program would misunderstand a file.
const formatVersion = 2

// key is a place in an order by time and then by id.
type key struct {
	at driver.Instant
	id string
}

func (k key) before(o key) bool { return k.at < o.at || k.at == o.at && k.id < o.id }

// next is the first key behind k.
func (k key) next() key { return key{k.at, k.id + "\x00"} }

func (k key) bytes() []byte {
	b := make([]byte, 8, 8+len(k.id))
	binary.BigEndian.PutUint64(b, uint64(k.at))
	return append(b, k.id...)
}

// parseKey is false for what is no key.
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

// state is what a partition counts, and its tokens.
type state struct {
	tokens  uint64 // tokens from here on were never given out, nor will be before a higher limit is safe
	records int64
	dead    int64

	enqueued, acked, retried, buried, cancelled, crashed uint64

	deadBytes int64 // of the bodies of dead letters
	trimmed   uint64
	expired   uint64
}

// A state is a list of numbers of 64 bits, big-endian. A new number is added at the end, and a state
// that ends before it was written when the number was not known yet: the number is 0. An audit finds
// that deadBytes is wrong then.
const (
	stateSize    = 12 * 8
	oldStateSize = 9 * 8
)

func (s *state) encode() []byte {
	b := make([]byte, 0, stateSize)
	for _, v := range []uint64{
		s.tokens, uint64(s.records), uint64(s.dead),
		s.enqueued, s.acked, s.retried, s.buried, s.cancelled, s.crashed,
		uint64(s.deadBytes), s.trimmed, s.expired,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func decodeState(b []byte) (s state, err error) {
	if len(b) < oldStateSize || len(b) > stateSize || len(b)%8 != 0 {
		return s, fmt.Errorf("%w: the counters have %d bytes, %d are expected", ErrCorrupt, len(b), stateSize)
	}
	u := func() uint64 {
		if len(b) == 0 {
			return 0
		}
		v := binary.BigEndian.Uint64(b)
		b = b[8:]
		return v
	}
	s.tokens, s.records, s.dead = u(), int64(u()), int64(u())
	s.enqueued, s.acked, s.retried, s.buried, s.cancelled, s.crashed = u(), u(), u(), u(), u(), u()
	s.deadBytes, s.trimmed, s.expired = int64(u()), u(), u()
	return s, nil
}

// buckets are those of a partition in one transaction.
type buckets struct {
	root, records, index, dead, begun *bolt.Bucket
}

var errNoBucket = errors.New("a bucket is missing")

func (q *queue) buckets(tx *bolt.Tx, partition int) (b buckets, err error) {
	if b.root = queueBucket(tx, q.name); b.root != nil {
		b.root = b.root.Bucket(partitionName(partition))
	}
	if b.root == nil {
		return b, fmt.Errorf("%w: queue %q, partition %d: %w", ErrCorrupt, q.name, partition, errNoBucket)
	}
	for _, p := range b.all() {
		if *p.bucket = b.root.Bucket(p.name); *p.bucket == nil {
			return b, fmt.Errorf("%w: queue %q, partition %d, %s: %w", ErrCorrupt, q.name, partition, p.name, errNoBucket)
		}
	}
	// Ids and times mostly rise, so pages are rarely filled up later.
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
