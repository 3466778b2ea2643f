package redisstore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

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
