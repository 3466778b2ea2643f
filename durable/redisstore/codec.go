package redisstore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Lengths of the fixed parts of a record and of a state: see partition.lua.
const (
	recordHeader = 19
	stateHeader  = 32
	rareHeader   = 11
	width        = 7 // of times and tokens
)

const recordVersion = 1 // of the records that this package reads and writes

// millis returns a duration in milliseconds, rounded up, from 0 to [driver.Never].
func millis(d time.Duration) int64 { return int64(driver.Instant(0).Add(d)) }

// timeArg returns a time for scripts: a positive number is absolute, any other a negated delay.
func timeArg(at driver.Instant, delay time.Duration) string {
	if at > 0 {
		return strconv.FormatInt(int64(min(at, driver.Never)), 10)
	}
	return strconv.FormatInt(-millis(delay), 10)
}

// packToken encodes a token as in a state. One that is too large becomes one that no message has.
func packToken(token uint64) []byte {
	if token >= 1<<(8*width) {
		token = math.MaxUint64
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], token)
	return b[1:]
}

// packIncarnation encodes an instant as in records and states. 0 becomes nil.
func packIncarnation(i driver.Instant) []byte {
	if i == 0 {
		return nil
	}
	return packToken(uint64(i)) //nolint:gosec // not negative
}

// unpack decodes the number in the first 7 bytes.
func unpack(s string) uint64 {
	var b [8]byte
	copy(b[1:], s[:width])
	return binary.BigEndian.Uint64(b[:])
}

// unpackInstant decodes a time, at most [driver.Never]. A larger number is damage, which must not
// keep other messages from being claimed.
func unpackInstant(s string) driver.Instant {
	return driver.Instant(min(unpack(s), uint64(driver.Never))) //nolint:gosec // bounded
}

// unpack4 decodes a count, at most 2^31-1.
func unpack4(s string) int {
	return int(min(binary.BigEndian.Uint32([]byte(s[:4])), math.MaxInt32)) //nolint:gosec // bounded
}

// packItem encodes an item without the times.
func packItem(item *driver.PutItem) []byte {
	b := make([]byte, 4, 4+len(item.Body))
	binary.BigEndian.PutUint32(b, uint32(min(max(0, item.MaxAttempts), math.MaxInt32))) //nolint:gosec // bounded
	return append(b, item.Body...)
}

// decodeRecord decodes a message. An empty state means that the message has none and is scheduled.
func decodeRecord(id, record, state string) (driver.Record, error) {
	r := driver.Record{ID: id, State: driver.StateScheduled}
	if len(record) < recordHeader || record[0] != recordVersion {
		return r, fmt.Errorf("%w: the record of message %q has %d bytes that begin with %.1q; its version must be %d",
			driver.ErrVersion, id, len(record), record, recordVersion)
	}
	r.Enqueued = unpackInstant(record[1:])
	r.Due = unpackInstant(record[8:])
	r.MaxAttempts = unpack4(record[15:])
	r.Body = []byte(record[recordHeader:])
	if state == "" {
		return r, nil
	}
	header := stateHeader
	if len(state) >= header {
		header += int(binary.BigEndian.Uint16([]byte(state[stateHeader-2:])))
	}
	if len(state) < header {
		return r, fmt.Errorf("%w: the state of message %q has %d bytes; there must be at least %d",
			driver.ErrVersion, id, len(state), header)
	}
	if rare := state[stateHeader:header]; len(rare) >= rareHeader {
		r.Planned, r.Postponed, r.Repeat = unpackInstant(rare), unpack4(rare[width:]), rare[rareHeader:]
	}
	switch state[0] {
	case 'L':
		r.State = driver.StateLeased
	case 'F':
		r.State = driver.StateFiring
		state = state[:max(header, len(state)-int(min(unpack(state[23:]), math.MaxInt32)))] // without the process
	case 'X', 'D':
		r.State = driver.StateDead
		r.Died = unpackInstant(state[23:])
	}
	r.Token = unpack(state[1:])
	r.Due = unpackInstant(state[8:])
	r.Attempts = unpack4(state[15:])
	r.Crashes = unpack4(state[19:])
	r.Reason = state[header:]
	return r, nil
}

// reply reads the values of the list that a script has returned, in order. After a value of an
// unexpected kind, err is set and nothing more is read.
type reply struct {
	values []any
	err    error
}

func newReply(v any) *reply {
	values, ok := v.([]any)
	if !ok {
		return &reply{err: fmt.Errorf("%w: %T instead of a list", errReply, v)}
	}
	return &reply{values: values}
}

// more reports whether there is another value.
func (r *reply) more() bool { return r.err == nil && len(r.values) > 0 }

func (r *reply) text() string {
	if r.err != nil {
		return ""
	}
	if len(r.values) == 0 {
		r.err = fmt.Errorf("%w: the list is too short", errReply)
		return ""
	}
	v := r.values[0]
	r.values = r.values[1:]
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	r.err = fmt.Errorf("%w: %T instead of a string", errReply, v)
	return ""
}

// number reads a decimal number.
func (r *reply) number() int64 {
	text := r.text()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %.20q instead of a number", errReply, text)
	}
	return n
}

func (r *reply) instant() driver.Instant { return driver.Instant(r.number()) }

// late reports whether the reply begins as for a call that has arrived too late: see call.lua.
func (r *reply) late() bool { return len(r.values) > 0 && r.values[0] == "late" }

// time reads the two values of TIME. If the call was late, err is a [driver.LateError].
func (r *reply) time() time.Time {
	if r.late() {
		r.text()
		late := &driver.LateError{Now: r.instant(), Unknown: r.text() == "1"}
		r.err = cmp.Or[error](r.err, late)
		return time.Time{}
	}
	sec, usec := r.number(), r.number()
	return time.Unix(sec, usec*int64(time.Microsecond))
}

// column reads a string of n times of 7 bytes, or an empty one.
func (r *reply) column(n int) string {
	text := r.text()
	if r.err == nil && text != "" && len(text) != n*width {
		r.err = fmt.Errorf("%w: %d bytes instead of %d", errReply, len(text), n*width)
	}
	return text
}

// statuses reads n statuses, which are digits.
func (r *reply) statuses(n int) []driver.Status {
	text := r.text()
	if r.err == nil && len(text) != n {
		r.err = fmt.Errorf("%w: %d statuses instead of %d", errReply, len(text), n)
	}
	all := make([]driver.Status, len(text))
	for i := range all {
		all[i] = driver.Status(text[i] - '0')
	}
	return all
}
