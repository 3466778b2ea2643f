package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Get implements [driver.Backend].
func (b *backend) Get(ctx context.Context, part int, id string) (m driver.Record, err error) {
	err = b.ask(ctx, part, getScript, func(r *reply) { m = readRecord(r, id) }, id)
	return m, err
}

// readRecord reads a record, a state, and the score in the set of that state, negative if in none.
func readRecord(r *reply, id string) driver.Record {
	body, state, at := r.text(), r.text(), r.instant()
	if r.err == nil && body == "" {
		r.err = fmt.Errorf("%w: %q", driver.ErrNotFound, id)
	}
	if r.err != nil {
		return driver.Record{}
	}
	var m driver.Record
	m, r.err = decodeRecord(id, body, state)
	switch {
	case r.err != nil || at < 0 || m.State == driver.StateDead:
	case m.State == driver.StateScheduled:
		m.Due = at
	default:
		m.LeaseEnd = at
	}
	return m
}

// List implements [driver.Backend]. It returns [driver.ErrInvalid] for a cursor that List has not
// returned.
//
// List takes O(log² n) to find the start of a later page in a partition with n messages.
func (b *backend) List(ctx context.Context, part int, state driver.State, cursor string, limit int) (
	records []driver.Record, next string, err error,
) {
	set := map[driver.State]int{
		driver.StateScheduled: keyScheduled, driver.StateLeased: keyLeased, driver.StateDead: keyDead,
	}[state]
	at, id, err := contract.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("redisstore: list: %w", err)
	}
	score := "" // for the first page
	if id != "" {
		score = strconv.FormatInt(int64(at), 10)
	}
	err = b.ask(ctx, part, listScript, func(r *reply) {
		if more, at, id := r.text(), r.instant(), r.text(); more == "1" {
			next = contract.FormatCursor(at, id)
		}
		for r.more() {
			records = append(records, readRecord(r, r.text()))
		}
	}, set, score, id, limit, contract.PageBytes)
	if err != nil {
		return nil, "", err
	}
	return records, next, nil
}

// Count implements [driver.Backend]. It takes O(log n) for n messages in the partition.
func (b *backend) Count(ctx context.Context, part int) (driver.Counts, error) {
	c, _, _, err := b.count(ctx, part)
	return c, err
}

// Lost implements [driver.Auditor]. It takes O(log n) for n messages in the partition.
func (b *backend) Lost(ctx context.Context, part int) (lost uint64, damage, err error) {
	_, lost, text, err := b.count(ctx, part)
	at, names, damaged := strings.Cut(text, " ")
	if err != nil || !damaged {
		return lost, nil, err
	}
	ms, _ := strconv.ParseInt(at, 10, 64)
	damage = fmt.Errorf("the server has evicted keys, or another client has deleted them: %s, last at %s; remove the cause, and run an audit with repair",
		names, time.UnixMilli(ms).UTC().Format(time.RFC3339Nano))
	if !b.store.options.AllowEviction {
		damage = fmt.Errorf("%w: %w", driver.ErrUnsafe, damage)
	}
	return lost, damage, nil
}

func (b *backend) count(ctx context.Context, part int) (c driver.Counts, lost uint64, damaged string, err error) {
	err = b.ask(ctx, part, countScript, func(r *reply) {
		c = driver.Counts{
			Now: r.instant(), Scheduled: r.number(), Due: r.number(), InFlight: r.number(), Dead: r.number(),
			Unreadable: r.number(), NextDue: r.instant(),
		}
		for _, counter := range []*uint64{
			&c.Enqueued, &c.Acked, &c.Retried, &c.Buried, &c.Cancelled, &c.Crashed, &c.Trimmed, &lost, &c.Expired,
		} {
			*counter = uint64(r.number()) //nolint:gosec // counters only rise
		}
		c.DeadBytes = max(0, r.number()) // negative if the counter was lost; an audit corrects it
		c.Paused, damaged = r.text() == "1", r.text()
	})
	return c, lost, damaged, err
}

// CountDue implements [driver.Backend]. It takes O(log n) per duration for n messages.
func (b *backend) CountDue(ctx context.Context, part int, within []time.Duration) ([]int64, error) {
	args, counts := make([]any, len(within)), make([]int64, len(within))
	for i, d := range within {
		args[i] = millis(d)
	}
	err := b.ask(ctx, part, countDueScript, func(r *reply) {
		for i := range counts {
			counts[i] = r.number()
		}
	}, args...)
	return counts, err
}
