package boltstore

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// record is a message as the file holds it: scheduled or dead. Token is that of the last transition with one.
type record struct {
	driver.Record
	last    driver.Op // the transition that has written it, so that it may be repeated; 0: a put or another one
	suspect bool      // it had begun when the process crashed, so that the next claim looks at its crashes
}

// recordVersion is the first byte of a record.
const recordVersion = 1

const flagSuspect = 1

// encode makes of a record: its version, state, last transition and flags, then as varints its times, numbers and the length of the
// reason; then the reason and the body. The id is the key.
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

// decode reads a record. Its body is that of b, which belongs to the transaction.
func decode(id string, b []byte) (r record, err error) {
	damaged := func(what string) (record, error) {
		return record{}, fmt.Errorf("%w: the record of message %q: %s", ErrCorrupt, id, what)
	}
	if len(b) < 4 {
		return damaged("it is too short")
	}
	if b[0] != recordVersion {
		return damaged(fmt.Sprintf("its version is %d, %d is expected", b[0], recordVersion))
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

// export is the record for a caller, who keeps it longer than the transaction.
func (r *record) export() driver.Record {
	out := r.Record
	out.Body = append(make([]byte, 0, len(r.Body)), r.Body...)
	return out
}

// counted is n+1 as far as a record can hold it.
func counted(n int) int { return min(n+1, math.MaxInt32) }
