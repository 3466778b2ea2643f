package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// ErrCorrupt means that the data of a store is damaged.
var ErrCorrupt = errors.New("the data is damaged")

// The keys of a store. All numbers are big-endian, and times are milliseconds in 8 bytes, so that
// keys are ordered by time and then by id. queue is the number of a queue (4 bytes), and partition
// an index (2).
//
//	0 ‖ "version"                                → FormatVersion (8)
//	0 ‖ "next"                                   → number of the next queue (4)
//	0 ‖ "queue" ‖ name                           → number (4) ‖ partitions (2) ‖ 5 limits (8 each)
//	1 ‖ queue ‖ 'b' ‖ partition ‖ id             → the process that has begun the message
//	1 ‖ queue ‖ 'c' ‖ partition                  → counters: see state
//	1 ‖ queue ‖ 'd' ‖ partition ‖ died ‖ id      → a dead letter: see record
//	1 ‖ queue ‖ 'i' ‖ id ‖ partition             → 's' or 'd' ‖ time. Where the message is
//	1 ‖ queue ‖ 's' ‖ partition ‖ due ‖ id       → a scheduled message, leased ones included
//	1 ‖ queue ‖ 't' ‖ partition ‖ span           → number of scheduled messages of a span, see [DB].Add
//
// Ids that rise, like those that a queue generates, make searches and compactions of 'i' cheap.
//
// The cost of each transition of a message, in keys read and keys written ('c' is written once
// per commit, and 't' once per commit and span):
//
//	Put                   1 read ('i')           3 writes ('i', 's', 't')
//	Claim                 1 of a scan of 's'     none, or 1 if it begins ('b')
//	Begin                 none                   1 ('b')
//	Ack, Expire           none                   4 ('b', 'i', 's', 't')
//	Retry, Bury           1 ('s')                4 to 5 ('b', 'i', 's' or 'd' twice, 't')
//	Release               none                   1 if it had begun ('b')
//	Cancel                1 ('i')                3 ('i', 's', 't')
//	Reschedule, Repeat    2 ('i', 's')           4 ('i', 's' twice, 't')
//	Replay, Purge         2 ('i', 'd')           4 ('d', 'i', 's', 't'), 2 ('d', 'i')
//
// A change of a firing message (see [driver.Backend]) reads and writes 's'.
//
// Every few seconds, a claim deletes the range of 's' before the first message.
const (
	kindBegun     = 'b'
	kindCounters  = 'c'
	kindDead      = 'd'
	kindIndex     = 'i'
	kindScheduled = 's'
	kindSpan      = 't'
)

// recordSize is about the size of a message without its body.
const recordSize = 100

// FormatVersion is the version of the keys and values.
const FormatVersion = 3

var (
	keyVersion = []byte("\x00version")
	keyNext    = []byte("\x00next")
	process    = []byte(contract.Process())
)

func queueKey(name string) []byte { return []byte("\x00queue" + name) }

// spanBits determines the size of the spans of kindSpan: 2^24 ms, about 4.7 hours. A smaller span
// makes almost every message of a commit write a counter of its own.
const spanBits = 24

// key is a position in the order by time and then by id.
type key struct {
	at driver.Instant
	id string
}

func (k key) before(o key) bool { return k.at < o.at || k.at == o.at && k.id < o.id }

// next returns the first key after k.
func (k key) next() key { return key{k.at, k.id + "\x00"} }

// place is where a message is: among the scheduled ones or the dead letters of a partition.
type place struct {
	kind byte
	key
}

// state holds the counters of a partition.
type state struct {
	numbers
	maxID string // no greater id was ever in the partition
}

// numbers are the parts of a state with a fixed size. The fields are exported for encoding/binary.
// A change of driver.Counters needs a new FormatVersion.
type numbers struct {
	Tokens    uint64 // tokens below this one may have been given out
	Records   int64
	Dead      int64
	DeadBytes int64 // size of the bodies of dead letters
	Paused    bool
	driver.Counters
}

func (s *state) encode() []byte {
	b, err := binary.Append(nil, binary.BigEndian, &s.numbers)
	if err != nil {
		panic(err) // the size of numbers is fixed
	}
	return append(b, s.maxID...)
}

func decodeState(b []byte) (s state, err error) {
	if b == nil {
		return s, nil // a new partition
	}
	n, err := binary.Decode(b, binary.BigEndian, &s.numbers)
	if err != nil {
		return s, fmt.Errorf("%w: the counters have %d bytes", ErrCorrupt, len(b))
	}
	s.maxID = string(b[n:])
	return s, nil
}

// record is a stored message. It is scheduled or dead. A record that this version cannot read has
// no state.
type record struct {
	msg  driver.Record
	last driver.Op // the transition that wrote it, if a repetition of it is recognized; otherwise 0 or opCrash
}

const opCrash = 1 << 7 // the claim that takes the message checks its crashes

// encode appends to b[:0]: version (1) ‖ last (1) ‖ 2n (1) ‖ n uvarints ‖ reason ‖ repeat ‖
// body. The n uvarints are the numbers without trailing zeros. The key in the DB has the id, the
// state and its time.
func (r *record) encode(b []byte) []byte {
	numbers := r.numbers()
	n := len(numbers)
	for n > 0 && numbers[n-1] == 0 {
		n--
	}
	b = append(b[:0], FormatVersion, byte(r.last), byte(2*n))
	for _, v := range numbers[:n] {
		b = binary.AppendUvarint(b, v)
	}
	return append(append(append(b, r.msg.Reason...), r.msg.Repeat...), r.msg.Body...)
}

//nolint:gosec // none is negative
func (r *record) numbers() [10]uint64 {
	due := uint64(0) // the key has the due time of a scheduled message
	if r.msg.State == driver.StateDead {
		due = uint64(r.msg.Due)
	}
	return [...]uint64{
		uint64(r.msg.Enqueued), due, uint64(r.msg.MaxAttempts), uint64(r.msg.Attempts), uint64(r.msg.Crashes),
		r.msg.Token, uint64(len(r.msg.Reason)), uint64(r.msg.Planned), uint64(r.msg.Postponed), uint64(len(r.msg.Repeat)),
	}
}

// decode decodes the record at a place. Its body is a part of b.
func decode(at place, b []byte) (r record) {
	unreadable := record{msg: driver.Record{ID: at.id}}
	var v [10]uint64 // as from numbers
	if len(b) < 3 || b[0] != FormatVersion || int(b[2]/2) > len(v) {
		return unreadable
	}
	r.msg.ID, r.last = at.id, driver.Op(b[1])
	stored := v[:b[2]/2]
	b = b[3:]
	for i := range stored {
		n := 0
		if v[i], n = binary.Uvarint(b); n <= 0 {
			return unreadable
		}
		b = b[n:]
	}
	if max(v[0], v[1], v[7]) > uint64(driver.Never) || max(v[2], v[3], v[4], v[8]) > math.MaxInt32 ||
		v[6] > uint64(len(b)) || v[9] > uint64(len(b))-v[6] {
		return unreadable
	}
	//nolint:gosec // checked above
	r.msg.Enqueued, r.msg.Due, r.msg.MaxAttempts, r.msg.Attempts, r.msg.Crashes =
		driver.Instant(v[0]), driver.Instant(v[1]), int(v[2]), int(v[3]), int(v[4])
	r.msg.Token, r.msg.Planned, r.msg.Postponed = v[5], driver.Instant(v[7]), int(v[8])
	r.msg.Reason, r.msg.Repeat, r.msg.Body = string(b[:v[6]]), string(b[v[6]:v[6]+v[9]]), b[v[6]+v[9]:]
	if at.kind == kindDead {
		r.msg.State, r.msg.Died = driver.StateDead, at.at
	} else {
		r.msg.State, r.msg.Due = driver.StateScheduled, at.at
	}
	return r
}

// place returns where a readable record belongs.
func (r *record) place() place {
	if r.msg.State == driver.StateDead {
		return place{kindDead, key{r.msg.Died, r.msg.ID}}
	}
	return place{kindScheduled, key{r.msg.Due, r.msg.ID}}
}
