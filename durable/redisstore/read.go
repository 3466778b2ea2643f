package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Get implements [driver.Backend].
func (b *backend) Get(ctx context.Context, part int, id string) (driver.Record, error) {
	r, err := ask(ctx, b, part, getScript, id)
	if err != nil {
		return driver.Record{}, err
	}
	body, state, score := r.text(), r.text(), r.text()
	if r.err == nil && body == "" {
		return driver.Record{}, fmt.Errorf("redisstore: get %q: %w", id, driver.ErrNotFound)
	}
	if r.err != nil {
		return driver.Record{}, b.failure(ctx, part, getScript, r.err)
	}
	record, err := readRecord(id, body, state, score)
	return record, b.failure(ctx, part, getScript, err)
}

// readRecord decodes a message. score is its score in the set of its state, empty if it has none.
func readRecord(id, body, state, score string) (driver.Record, error) {
	r, err := decodeRecord(id, body, state)
	if err != nil || score == "" || r.State == driver.StateDead {
		return r, err
	}
	n, err := strconv.ParseInt(score, 10, 64)
	if err != nil {
		return r, fmt.Errorf("%w: %.20q instead of a time", errReply, score)
	}
	at := driver.Instant(n)
	if r.State == driver.StateScheduled {
		r.Due = at
	} else {
		r.LeaseEnd = at
	}
	return r, nil
}

// List implements [driver.Backend]. It returns [driver.ErrInvalid] for a cursor that List has not
// returned.
//
// List takes O(log² n) to find the start of a page after the first one, in a partition of n.
func (b *backend) List(ctx context.Context, part int, state driver.State, cursor string, limit int) (
	[]driver.Record, string, error,
) {
	set := map[driver.State]int{
		driver.StateScheduled: keyScheduled, driver.StateLeased: keyLeased, driver.StateDead: keyDead,
	}[state]
	at, id, err := driver.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("redisstore: list: %w", err)
	}
	score := "" // for the first page
	if id != "" {
		score = strconv.FormatInt(int64(at), 10)
	}
	r, err := ask(ctx, b, part, listScript, set, score, id, limit, driver.PageBytes)
	if err != nil {
		return nil, "", err
	}
	records, next, err := readPage(r)
	return records, next, b.failure(ctx, part, listScript, err)
}

func readPage(r *reply) (records []driver.Record, next string, err error) {
	if more, at, id := r.text(), r.instant(), r.text(); more == "1" {
		next = driver.FormatCursor(at, id)
	}
	for r.more() {
		id, body, state, score := r.text(), r.text(), r.text(), r.text()
		if r.err != nil {
			break
		}
		record, err := readRecord(id, body, state, score)
		if err != nil {
			return nil, "", err
		}
		records = append(records, record)
	}
	return records, next, r.err
}

// Count implements [driver.Backend]. It takes O(log n) in a partition of n.
func (b *backend) Count(ctx context.Context, part int) (driver.Counts, error) {
	c, _, _, err := count(ctx, b, part)
	return c, err
}

// Lost implements [driver.Auditor]. It takes O(log n) in a partition of n.
func (b *backend) Lost(ctx context.Context, part int) (lost uint64, damage, err error) {
	_, lost, text, err := count(ctx, b, part)
	at, names, damaged := strings.Cut(text, " ")
	if err != nil || !damaged {
		return lost, nil, err
	}
	ms, _ := strconv.ParseInt(at, 10, 64)
	damage = fmt.Errorf("the server has evicted keys, or another client has deleted them: %s were missing at %s; remove the cause, and run an audit with repair",
		names, time.UnixMilli(ms).UTC().Format(time.RFC3339Nano))
	if !b.store.options.AllowEviction {
		damage = fmt.Errorf("%w: %w", driver.ErrUnsafe, damage)
	}
	return lost, damage, nil
}

func count(ctx context.Context, b *backend, part int) (c driver.Counts, lost uint64, damaged string, err error) {
	r, err := ask(ctx, b, part, countScript)
	if err != nil {
		return c, 0, "", err
	}
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
	if r.err != nil {
		return driver.Counts{}, 0, "", b.failure(ctx, part, countScript, r.err)
	}
	return c, lost, damaged, nil
}

// CountDue implements [driver.Backend]. It takes O(log n) for each duration in a partition of n.
func (b *backend) CountDue(ctx context.Context, part int, within []time.Duration) ([]int64, error) {
	args := make([]any, len(within))
	for i, d := range within {
		args[i] = millis(d)
	}
	r, err := ask(ctx, b, part, countDueScript, args...)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(within))
	for i := range counts {
		counts[i] = r.number()
	}
	return counts, b.failure(ctx, part, countDueScript, r.err)
}
