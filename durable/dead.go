package durable

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Replay reschedules a dead letter as if it had never been delivered. The message is due after
// delay on the store's clock, or immediately if delay <= 0. Replay also resumes a recurring message
// that crashes have stopped. [ErrNotFound] means that there is no such message. Otherwise Replay
// returns the same errors as [Queue.Cancel].
func (q *Queue) Replay(ctx context.Context, id string, delay time.Duration) error {
	return q.changeDead(ctx, driver.OpReplay, driver.Change{ID: id, Delay: max(0, delay)})
}

// DeleteDead removes a dead letter. It returns the same errors as [Queue.Replay].
func (q *Queue) DeleteDead(ctx context.Context, id string) error {
	return q.changeDead(ctx, driver.OpPurge, driver.Change{ID: id})
}

// changeDead changes one dead letter.
func (q *Queue) changeDead(ctx context.Context, op driver.Op, c driver.Change) error {
	o, err := q.change(ctx, op, c)
	if err == nil && o.Status != driver.StatusDone {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("durable: dead letter %q: %w", c.ID, err)
	}
	return nil
}

// DeadFilter selects dead letters. The zero value is invalid, so that a forgotten condition does
// not select all of them.
type DeadFilter struct {
	// All selects all dead letters. The other fields must be zero.
	All bool

	// Reason selects the dead letters whose reason contains this string, which must not be blank.
	// The comparison is case-sensitive. [Record].Reason has the first 512 bytes of the last error.
	Reason string

	// Since and Until select the dead letters that died at or after Since and before Until, on the
	// store's clock, which has a resolution of one millisecond. A zero time means no bound. If both
	// are set, Until must be after Since.
	Since, Until time.Time
}

// ReplayOptions configures [Queue.ReplayAll]. The zero value makes all messages due immediately.
type ReplayOptions struct {
	// Delay is the time from the replay of a message until it is due, rounded up to milliseconds.
	// If Delay <= 0, the message is due immediately.
	Delay time.Duration

	// Rate is the number of messages to replay per second. A limit avoids overloading a system that
	// has just recovered. Replays are spread evenly over time, grouped into 10 ms intervals. After
	// a delay in the store, ReplayAll does not catch up in a burst. 0 means no limit. The rate must
	// not be negative, infinite or NaN.
	Rate float64
}

// ReplayAll replays the dead letters that filter selects and returns the number of replayed
// messages. It processes one partition after another, and the oldest dead letters in each partition
// first. It selects messages that died before the call, so a message that dies again is not
// replayed again. If the store's clock was set back, dead letters that died after the time that the
// clock now shows are skipped.
//
// ReplayAll returns [ErrInvalid] for an invalid argument, and otherwise the same errors as
// [Queue.Cancel], which name a dead letter. If the call fails or ctx ends, ReplayAll starts no more
// replays. Replays in progress may still take effect and are not counted. To continue, call
// ReplayAll again: replayed messages are no longer dead letters.
//
// ReplayAll reads all dead letters up to filter.Until, in pages of at most 256. If another caller
// replays or purges a dead letter after it was read, the dead letter is skipped and not counted,
// even if the message has died again.
func (q *Queue) ReplayAll(ctx context.Context, filter DeadFilter, options ReplayOptions) (int, error) {
	if options.Rate < 0 || math.IsInf(options.Rate, 0) || math.IsNaN(options.Rate) {
		return 0, fmt.Errorf("durable: replay: %w Rate %v; it must be 0 or more messages per second",
			ErrInvalid, options.Rate)
	}
	return changeAllDead(ctx, q, driver.OpReplay, filter, max(0, options.Delay), pacer{rate: options.Rate})
}

// DeleteAllDead permanently removes the dead letters that filter selects and returns the number of
// removed messages. It scans the queue as [Queue.ReplayAll] does, with the same errors and cost.
func (q *Queue) DeleteAllDead(ctx context.Context, filter DeadFilter) (int, error) {
	return changeAllDead(ctx, q, driver.OpPurge, filter, 0, pacer{})
}

// changeAllDead changes the dead letters that a filter selects, one partition after another.
func changeAllDead(
	ctx context.Context, q *Queue, op driver.Op, filter DeadFilter, delay time.Duration, pace pacer,
) (n int, err error) {
	if err := q.checkOpen(ctx); err != nil {
		return 0, err
	}
	if !filter.Since.IsZero() && !filter.Until.IsZero() && !filter.Until.After(filter.Since) {
		return 0, fmt.Errorf("durable: dead letters: %w Until %v; it must be after Since (%v)",
			ErrInvalid, filter.Until, filter.Since)
	}
	if filter.All == (filter != DeadFilter{All: filter.All}) || filter.Reason != "" && strings.TrimSpace(filter.Reason) == "" {
		return 0, fmt.Errorf("durable: dead letters: %w filter %+v; it must have a Reason that is not blank, Since or Until, or only All",
			ErrInvalid, filter)
	}
	ends := make([]driver.Instant, len(q.parts)) // each partition may have its own clock
	for i := range q.parts {
		counts, err := q.backend.Count(ctx, i)
		if err != nil {
			return 0, fmt.Errorf("durable: dead letters of partition %d: %w", i, err)
		}
		ends[i] = counts.Now.Add(time.Millisecond)
		if !filter.Until.IsZero() {
			ends[i] = min(ends[i], driver.InstantOf(filter.Until))
		}
	}
	for i, p := range q.parts {
		if err := p.changeDeadUntil(ctx, op, filter, ends[i], delay, &pace, &n); err != nil {
			return n, err
		}
	}
	return n, nil
}

// changeDeadUntil changes the selected dead letters of a partition that died before end. It adds
// their number to n.
func (p *part) changeDeadUntil(ctx context.Context, op driver.Op, filter DeadFilter, end driver.Instant,
	delay time.Duration, pace *pacer, n *int,
) error {
	before := *n
	since := driver.InstantOf(filter.Since) // 0 for the zero time
	for records, err := range p.pages(ctx, StateDead) {
		if err != nil {
			return err
		}
		var changes []driver.Change
		last := false
		for _, r := range records {
			if last = r.Died >= end; last {
				break
			}
			if r.Died >= since && strings.Contains(r.Reason, filter.Reason) {
				changes = append(changes, driver.Change{ID: r.ID, Incarnation: r.Died, Delay: delay})
			}
		}
		err := p.changeMany(ctx, op, changes, pace, func(_ string, status driver.Status) {
			if status == driver.StatusDone {
				*n++
			}
		})
		if err != nil {
			return err
		} else if last {
			break
		}
	}
	if *n > before {
		return nil
	}
	return p.confirm(ctx, op)
}
