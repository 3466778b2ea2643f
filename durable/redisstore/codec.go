package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Lengths of the fixed parts of a record and of a state; partition.lua tells what they are made of.
const (
	recordHeader = 19
	stateHeader  = 30
	width        = 7 // of times and tokens
)

// recordVersion is that of records that this package reads and writes.
const recordVersion = 1

// millis is a duration in milliseconds, rounded up; at most the one that leads to [driver.Never] from any instant. A negative one is 0.
func millis(d time.Duration) int64 { return int64(driver.Instant(0).Add(d)) }

// when is a time as the scripts take it: positive it is absolute, and else a delay with its sign turned.
func when(at driver.Instant, delay time.Duration) string {
	if at > 0 {
		return strconv.FormatInt(int64(min(at, driver.Never)), 10)
	}
	return strconv.FormatInt(-millis(delay), 10)
}

// packToken is a token as it stands in a state. One that is too large for a state is none of any message.
func packToken(token uint64) []byte {
	if token >= 1<<(8*width) {
		token = math.MaxUint64
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], token)
	return b[1:]
}

// packIncarnation returns an instant as records and states have it, and "" for 0.
func packIncarnation(i driver.Instant) []byte {
	if i == 0 {
		return nil
	}
	return packToken(uint64(i)) //nolint:gosec // not negative
}

// unpack is the number in the first 7 bytes.
func unpack(s string) uint64 {
	var b [8]byte
	copy(b[1:], s[:width])
	return binary.BigEndian.Uint64(b[:])
}

// unpackInstant reads a time. One that no script has written is taken for the last there is: a record that somebody
// else has changed must not keep others from being claimed.
func unpackInstant(s string) driver.Instant {
	return driver.Instant(min(unpack(s), uint64(driver.Never))) //nolint:gosec // bounded
}

// unpack4 reads a count, at most 2^31-1.
func unpack4(s string) int {
	return int(min(binary.BigEndian.Uint32([]byte(s[:4])), math.MaxInt32)) //nolint:gosec // bounded
}

// packItem is what is stored of an item, apart from the times.
func packItem(item *driver.PutItem) []byte {
	b := make([]byte, 4, 4+len(item.Body))
	binary.BigEndian.PutUint32(b, uint32(min(max(0, item.MaxAttempts), math.MaxInt32))) //nolint:gosec // bounded
	return append(b, item.Body...)
}

// decodeRecord reads a message. The state is empty where there is none; then the message is scheduled.
func decodeRecord(id, record, state string) (driver.Record, error) {
	r := driver.Record{ID: id, State: driver.StateScheduled}
	if len(record) < recordHeader || record[0] != recordVersion {
		return r, fmt.Errorf("%w: the record of message %q has %d bytes that begin with %.1q; version %d is accepted",
			driver.ErrVersion, id, len(record), record, recordVersion)
	}
	r.Enqueued = unpackInstant(record[1:])
	r.Due = unpackInstant(record[8:])
	r.MaxAttempts = unpack4(record[15:])
	r.Body = []byte(record[recordHeader:])
	if state == "" {
		return r, nil
	}
	if len(state) < stateHeader {
		return r, fmt.Errorf("%w: the state of message %q has %d bytes; %d or more are accepted", driver.ErrVersion, id, len(state), stateHeader)
	}
	switch state[0] {
	case 'L':
		r.State = driver.StateLeased
	case 'F':
		r.State = driver.StateFiring
	case 'X', 'D':
		r.State = driver.StateDead
		r.Died = unpackInstant(state[23:])
	}
	r.Token = unpack(state[1:])
	r.Due = unpackInstant(state[8:])
	r.Attempts = unpack4(state[15:])
	r.Crashes = unpack4(state[19:])
	r.Reason = state[stateHeader:]
	return r, nil
}

// flag is a condition as the scripts take it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// floor is a duration in units, rounded down also where it is negative.
func floor(d, unit time.Duration) time.Duration {
	n := d / unit
	if d%unit < 0 {
		n--
	}
	return n
}

// reply reads the list that a script has returned, from the first value on. The first value that is not what was asked for
// is kept as the error, and nothing is read from then on.
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

// more says whether there is anything left.
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
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.err = fmt.Errorf("%w: %.20q instead of a number", errReply, text)
	}
	return n
}

func (r *reply) instant() driver.Instant { return driver.Instant(r.number()) }

// time reads the two values of TIME.
func (r *reply) time() time.Time {
	sec, usec := r.number(), r.number()
	return time.Unix(sec, usec*int64(time.Microsecond))
}

// column reads a string of n parts with the given width each, or an empty one.
func (r *reply) column(n, width int) string {
	text := r.text()
	if r.err == nil && text != "" && len(text) != n*width {
		r.err = fmt.Errorf("%w: %d bytes instead of %d", errReply, len(text), n*width)
	}
	return text
}

// statuses are those that a script has returned as digits.
func statuses(text string) []driver.Status {
	all := make([]driver.Status, len(text))
	for i := range all {
		all[i] = driver.Status(text[i] - '0')
	}
	return all
}
