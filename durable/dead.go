package durable

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Dead iterates over the dead letters. It is [Queue.List] of [StateDead].
func (q *Queue) Dead(ctx context.Context) iter.Seq2[Record, error] {
	return q.List(ctx, StateDead)
}

// Replay schedules a dead letter again as if it had never been delivered. The message is due delay
// after the store's clock; a delay of 0 or less is due at once. [ErrNotFound] means that no dead
// letter has this id. Other errors are those of [Queue.Cancel].
func (q *Queue) Replay(ctx context.Context, id string, delay time.Duration) error {
	return q.changeDead(ctx, driver.OpReplay, driver.Change{ID: id, Delay: max(0, delay)})
}

// Purge removes a dead letter. [ErrNotFound] means that no dead letter has this id. Other errors
// are those of [Queue.Cancel].
func (q *Queue) Purge(ctx context.Context, id string) error {
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

// DeadFilter selects dead letters. The zero value selects all.
type DeadFilter struct {
	// Reason selects the letters whose reason contains it, with the same case. [Record].Reason has
	// the first 512 bytes of the last error.
	Reason string

	// Since and Until select the letters that died at Since or later and before Until, on the
	// store's clock, which has milliseconds. A zero time is no bound. An Until that is not after
	// Since is [ErrInvalid].
	Since, Until time.Time
}

// ReplayOptions says how [Queue.ReplayAll] replays. The zero value makes all messages due at once.
type ReplayOptions struct {
	// Delay is how long after its replay a message is due, rounded up to milliseconds. 0 or less is
	// due at once.
	Delay time.Duration

	// Rate is the number of messages to replay in a second, so that a system that has just
	// recovered is not overloaded. Replays are spread evenly over time; those of 10 ms may go
	// together. There is no burst after a delay of the store. 0 means no limit. A negative or
	// infinite rate and NaN are [ErrInvalid].
	Rate float64
}

// ReplayAll replays the dead letters that filter selects, and returns how many were replayed. It
// goes through the partitions one after the other, in each the oldest first. It takes the letters
// that died before the call, so a message that dies again is not replayed again. If the store's
// clock was set back, letters that died later than it shows now are left.
//
// An invalid argument is [ErrInvalid]; other errors are those of [Queue.Cancel] and name a dead
// letter. If the call fails or ctx ends, ReplayAll asks for no more replays. Those under way then
// may take place and are not counted. To go on, call ReplayAll again: replayed messages are no dead
// letters any more.
//
// ReplayAll reads all dead letters up to filter.Until, a page of at most 256 at a time. A letter
// that another caller replays or purges between the reading and its turn is left and not counted,
// even if it has died again.
func (q *Queue) ReplayAll(ctx context.Context, filter DeadFilter, options ReplayOptions) (int, error) {
	if options.Rate < 0 || math.IsInf(options.Rate, 0) || math.IsNaN(options.Rate) {
		return 0, fmt.Errorf("durable: replay: %w Rate %v: 0 and more messages a second are accepted",
			ErrInvalid, options.Rate)
	}
	return q.changeAllDead(ctx, driver.OpReplay, filter, max(0, options.Delay), pacer{rate: options.Rate})
}

// PurgeAll removes the dead letters that filter selects for good, and returns how many were
// removed. Its scan, its errors and its cost are those of [Queue.ReplayAll].
func (q *Queue) PurgeAll(ctx context.Context, filter DeadFilter) (int, error) {
	return q.changeAllDead(ctx, driver.OpPurge, filter, 0, pacer{})
}

// changeAllDead changes the dead letters that a filter selects, partition by partition.
func (q *Queue) changeAllDead(
	ctx context.Context, op driver.Op, filter DeadFilter, delay time.Duration, pace pacer,
) (n int, err error) {
	if err := q.usable(ctx); err != nil {
		return 0, err
	}
	if !filter.Since.IsZero() && !filter.Until.IsZero() && !filter.Until.After(filter.Since) {
		return 0, fmt.Errorf("durable: dead letters: %w Until %v: a time after Since (%v) is accepted",
			ErrInvalid, filter.Until, filter.Since)
	}
	ends := make([]driver.Instant, len(q.parts)) // of each partition, as each may have a clock of its own
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
		err := p.changeDeadUntil(ctx, op, filter, ends[i], delay, &pace, &n)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// changeDeadUntil changes the dead letters of a partition that died before end. It adds how many to
// n.
func (p *part) changeDeadUntil(ctx context.Context, op driver.Op, filter DeadFilter, end driver.Instant,
	delay time.Duration, pace *pacer, n *int,
) error {
	var since driver.Instant
	if !filter.Since.IsZero() {
		since = driver.InstantOf(filter.Since)
	}
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
		if err != nil || last {
			return err
		}
	}
	return nil
}
