package durable

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Message is a message to be enqueued. It is due Delay after the store's clock, or at At.
type Message struct {
	// ID is the caller's name of the message: 1 to 255 bytes of UTF-8 without ASCII control
	// characters. If it is empty, the message gets a ULID. While a message with this id is queued,
	// or is a dead letter, another one is [ErrDuplicate].
	ID string

	// Body has up to Options.MaxBody bytes, which are copied. It may be empty.
	Body []byte

	// Headers are texts about the message that come back with its deliveries, such as the context
	// of a trace: up to [MaxHeaders], with up to [MaxHeaderBytes] bytes in all keys and values.
	// Keys and values are UTF-8, and keys are not empty. The map is copied. Headers do not count
	// for Options.MaxBody.
	Headers map[string]string

	// Delay is rounded up to milliseconds. 0 or less is due at once. A due time after the year
	// 140,000 never comes.
	Delay time.Duration

	// At is the due time on the store's clock, rounded up to milliseconds, unless it is the zero
	// time. A time in the past is due at once. A message with both At and Delay is [ErrInvalid].
	At time.Time

	// ExpireAt is the time on the store's clock, rounded down to milliseconds, after which the
	// message is not delivered any more, neither for the first time nor after a failure. The
	// consumer compares the time when it is about to deliver the message. It then removes the
	// message instead, which [Counts].Expired counts. A handler that runs at that time is not
	// interrupted, and a dead letter stays until it is replayed. The zero time: the message does
	// not expire.
	//
	// An ExpireAt that is not after At is [ErrInvalid]. A Delay is not compared, because only the
	// store's clock says when it ends: a message that is due too late expires, as does one that was
	// rescheduled beyond its ExpireAt.
	ExpireAt time.Time

	// MaxAttempts is the number of deliveries that may end in an error before the message is a dead
	// letter. 0: Options.MaxAttempts. A negative number is [ErrInvalid].
	MaxAttempts int

	// Replace replaces a message with the same id that has not begun, or is a dead letter. If that
	// message has begun, the error is [ErrFiring].
	Replace bool
}

// MaxID is the largest length of an id in bytes.
const MaxID = 255

// checkID returns [ErrInvalid] for an id that a message may not have.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w id: it is empty; 1 to %d bytes are accepted", ErrInvalid, MaxID)
	case len(id) > MaxID:
		return fmt.Errorf("%w id %.40q…: it has %d bytes; 1 to %d are accepted",
			ErrInvalid, id, len(id), MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w id %.40q: it is not UTF-8", ErrInvalid, id)
	}
	for _, r := range id {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("%w id %.40q: it has a control character", ErrInvalid, id)
		}
	}
	return nil
}

// item checks a message and converts it to the form that stores take.
func (q *Queue) item(m *Message) (driver.PutItem, error) {
	if err := checkID(m.ID); err != nil {
		return driver.PutItem{}, err
	}
	item := driver.PutItem{ID: m.ID, Delay: max(0, m.Delay), MaxAttempts: m.MaxAttempts}
	switch {
	case m.MaxAttempts < 0 || m.MaxAttempts > math.MaxInt32:
		return item, fmt.Errorf("%w MaxAttempts %d of message %q: 1 to %d are accepted, and 0 for that of the queue",
			ErrInvalid, m.MaxAttempts, m.ID, math.MaxInt32)
	case !m.At.IsZero() && m.Delay != 0:
		return item, fmt.Errorf("%w message %q: it has both a Delay (%v) and a time At (%v)",
			ErrInvalid, m.ID, m.Delay, m.At)
	}
	if m.MaxAttempts == 0 {
		item.MaxAttempts = q.options.MaxAttempts
	}
	if !m.At.IsZero() {
		item.At, item.Delay = max(1, driver.InstantOf(m.At)), 0
	}
	c, err := q.content(m, item.At)
	if err != nil {
		return item, err
	}
	item.Body = c.encode()
	return item, nil
}
