package durable

import (
	"context"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Message is a message to enqueue. It is due after Delay on the store's clock, or at the time At.
type Message struct {
	// ID identifies the message. It has 1 to 255 bytes of UTF-8 without ASCII control characters,
	// and is not "timingwheel.probe", which is reserved. If ID is empty, the message gets a ULID.
	// Enqueue returns [ErrDuplicate] while a message with this id is queued, and [ErrDead] while it
	// is a dead letter.
	ID string

	// Body is copied. It may be empty, and has at most Options.MaxBody bytes.
	Body []byte

	// Headers are metadata that each delivery carries, such as a trace context. There are at most
	// 64 headers, with a total of at most 8 KiB in keys and values. Keys and values are UTF-8, and
	// keys are not empty. The map is copied. Headers do not count toward Options.MaxBody.
	Headers map[string]string

	// Delay is the time until the message is due, rounded up to milliseconds. If Delay <= 0, the
	// message is due immediately. A due time after the year 140,000 is never reached.
	Delay time.Duration

	// At is the due time on the store's clock, rounded up to milliseconds. If the time has passed,
	// the message is due immediately. The zero time means that Delay applies. Enqueue returns
	// [ErrInvalid] if both At and Delay are set.
	At time.Time

	// ExpireAt is the time on the store's clock, rounded down to milliseconds, after which the
	// message is no longer delivered, neither for the first time nor as a retry. The consumer
	// checks ExpireAt immediately before the delivery. It removes an expired message, and
	// [Counts].Expired counts it. A running handler is not interrupted. A dead letter is kept until
	// it is replayed. The zero time means that the message does not expire.
	//
	// Enqueue returns [ErrInvalid] if ExpireAt is not after At. ExpireAt is not compared with
	// Delay, because only the store's clock determines when the delay ends. A message that is due
	// after its ExpireAt, or is rescheduled to such a time, expires without a delivery.
	ExpireAt time.Time

	// Repeat makes the message recurring: see the package documentation. It is an interval of at
	// least 1 ms, such as "@every 10m" or "@every 24h", a descriptor, such as "@daily", or a cron
	// expression with five fields, such as "0 8 * * *". "CRON_TZ=Europe/Berlin " before the fields
	// sets the zone, which is otherwise UTC. The first run is at At or after Delay. If both are
	// zero, it is at the first time in the series, or one interval from now if Repeat is an
	// interval. Enqueue returns [ErrInvalid] for an expression that has no times or exceeds 255
	// bytes. To find the first time in a cron expression's series, Enqueue reads the store's clock
	// unless a recent reading is known.
	Repeat string

	// MaxAttempts is the number of failed deliveries after which the message becomes a dead letter,
	// or a run of a recurring message ends. 0 means Options.MaxAttempts. Enqueue returns
	// [ErrInvalid] for a negative number.
	MaxAttempts int

	// Replace makes Enqueue replace an existing message with the same id if that message has not
	// begun or is dead. If it has begun, Enqueue returns [ErrFiring], unless both messages are
	// recurring. In that case the running delivery continues, and the new message is due at the
	// time of its first run.
	Replace bool
}

// checkID returns [ErrInvalid] if no message can have this id.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w id: empty; it must have 1 to %d bytes", ErrInvalid, contract.MaxID)
	case len(id) > contract.MaxID:
		return fmt.Errorf("%w id %.40q…: %d bytes; it must have 1 to %d", ErrInvalid, id, len(id), contract.MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w id %.40q; it must be UTF-8", ErrInvalid, id)
	case id == probeID:
		return fmt.Errorf("%w id %q; it is reserved for health probes", ErrInvalid, id)
	}
	for _, r := range id {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("%w id %.40q; it must not contain a control character", ErrInvalid, id)
		}
	}
	return nil
}

// newItem validates a message and converts it to the form that stores take.
func newItem(ctx context.Context, q *Queue, m *Message) (driver.PutItem, error) {
	if err := checkID(m.ID); err != nil {
		return driver.PutItem{}, err
	}
	item := driver.PutItem{ID: m.ID, Delay: max(0, m.Delay), MaxAttempts: m.MaxAttempts, Repeat: m.Repeat}
	switch {
	case m.MaxAttempts < 0 || m.MaxAttempts > math.MaxInt32:
		return item, fmt.Errorf("%w MaxAttempts %d of message %q; it must be from 1 to %d, or 0 for the queue's default",
			ErrInvalid, m.MaxAttempts, m.ID, math.MaxInt32)
	case !m.At.IsZero() && m.Delay != 0:
		return item, fmt.Errorf("%w message %q: both Delay (%v) and At (%v) are set", ErrInvalid, m.ID, m.Delay, m.At)
	}
	if m.MaxAttempts == 0 {
		item.MaxAttempts = q.options.MaxAttempts
	}
	if !m.At.IsZero() {
		item.At, item.Delay = max(1, driver.InstantOf(m.At)), 0
	}
	if m.Repeat != "" {
		s, err := parseSeries(m.Repeat)
		if err != nil {
			return item, fmt.Errorf("message %q: %w", m.ID, err)
		}
		if m.At.IsZero() && m.Delay == 0 {
			if item.At, item.Delay, err = q.part(m.ID).firstRun(ctx, s); err != nil {
				return item, fmt.Errorf("message %q: %w", m.ID, err)
			}
		}
		item.At = min(item.At, driver.Never-1) // a record that is planned at Never is marked
	}
	c, err := newContent(m, item.At, q.options.MaxBody)
	if err != nil {
		return item, err
	}
	item.Body = c.encode()
	return item, nil
}
