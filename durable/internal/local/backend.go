package local

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// backend is one opener's view of a queue.
type backend struct {
	runner     Runner
	name       string // package of the store
	now        func() time.Time
	config     driver.Config
	limits     DeadLimits
	number     uint32 // of the queue
	partitions int
	presence   *presence
}

var _ driver.Backend = (*backend)(nil)

// Partitions implements driver.Backend.
func (b *backend) Partitions() int { return b.partitions }

// run runs a call in a partition. do may set call.Waits.
func (b *backend) run(ctx context.Context, index int, call *Call, do func(t transition) error) error {
	call.Do = func(s *State) error {
		q, err := s.open(&b.config)
		if err == nil {
			err = do(transition{q.partitions[index], s.now(), b.limits})
		}
		if err != nil {
			return fmt.Errorf("%s: queue %q, partition %d: %w", b.name, b.config.Queue, index, err)
		}
		return nil
	}
	return b.runner.Run(ctx, call)
}

// Put is O(log n) for each message.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	var statuses []driver.Status
	call := Call{Waits: true}
	for i := range put.Items {
		call.Bytes += recordSize + len(put.Items[i].Body)
	}
	err := b.run(ctx, put.Partition, &call, func(t transition) (err error) {
		statuses, err = t.put(&put)
		return err
	})
	if err != nil {
		return nil, err // the call may still run
	}
	return statuses, nil
}

// Claim is O(log n) for each lease that it ends, at most 256, and for each message that it claims.
// If more leases have expired, Claimed.Lease is not later than Claimed.Now, and the next call ends
// them.
func (b *backend) Claim(ctx context.Context, request driver.Claim) (driver.Claimed, error) {
	var claimed driver.Claimed
	var call Call
	err := b.run(ctx, request.Partition, &call, func(t transition) (err error) {
		c := claim{transition: t, request: &request}
		claimed, err = c.run()
		call.Waits = c.waits
		return err
	})
	if err != nil {
		return driver.Claimed{}, err // the call may still run
	}
	return claimed, nil
}

// Apply is O(log n) for each change.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := batch.Op.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	call := Call{Waits: batch.Op != driver.OpBegin && batch.Op != driver.OpExtend && batch.Op != driver.OpRelease}
	if batch.Op == driver.OpCancel || batch.Op == driver.OpReschedule {
		call.Warm = func(get Getter) { b.warm(&batch, get) }
	}
	var outcomes []driver.Outcome
	err := b.run(ctx, batch.Partition, &call, func(t transition) (err error) {
		outcomes, err = t.apply(&batch)
		return err
	})
	if err != nil {
		return nil, err // the call may still run
	}
	return outcomes, nil
}

// warm reads the messages of a batch. Unlike claimed messages, these may be anywhere, and a call
// that waits for the disk delays the calls behind it.
func (b *backend) warm(batch *driver.Batch, get Getter) {
	t := table{queue: b.number, index: uint16(batch.Partition)} //nolint:gosec // at most MaxPartitions
	for i := range batch.Changes {
		value, err := get(t.indexKey(batch.Changes[i].ID))
		if value == nil || err != nil {
			continue // Do returns the error
		}
		if at, err := t.parsePlace(batch.Changes[i].ID, value); err == nil {
			_, _ = get(t.timeKey(at.kind, at.key))
		}
	}
}

// Pause is O(1).
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	return b.run(ctx, pause.Partition, &Call{Waits: true}, func(t transition) error {
		if t.p.counters.Paused != pause.Paused {
			t.p.counters.Paused = pause.Paused
			t.p.change()
		}
		t.p.hints.Send(driver.Hint{Partition: pause.Partition})
		return nil
	})
}

// Get is O(log n).
func (b *backend) Get(ctx context.Context, index int, id string) (driver.Record, error) {
	var r driver.Record
	err := b.run(ctx, index, new(Call), func(t transition) error {
		stored, err := t.p.table.load(id)
		switch {
		case err != nil:
			return err
		case stored == nil:
			return fmt.Errorf("%w with id %q", driver.ErrNotFound, id)
		case stored.State == 0:
			return fmt.Errorf("%w: the record of message %q cannot be read", ErrCorrupt, id)
		}
		r = t.p.export(stored)
		return nil
	})
	if err != nil {
		return driver.Record{}, err // the call may still run
	}
	return r, nil
}

// Count visits the messages in flight and the messages that have become due since the last Count.
// If these are more than a million, Counts.Due is an estimate. Otherwise Count is O(1).
func (b *backend) Count(ctx context.Context, index int) (driver.Counts, error) {
	return count(ctx, b, index, func(t transition) (driver.Counts, bool, error) {
		return reader{t.p}.counts(Floor(t.now))
	})
}

// CountDue visits the same messages as Count and the next thousands. It estimates the rest from
// counters of spans of 4.7 hours, as if the messages of a span were spread evenly.
func (b *backend) CountDue(ctx context.Context, index int, within []time.Duration) ([]int64, error) {
	counts, err := count(ctx, b, index, func(t transition) ([]int64, bool, error) {
		bounds := append(DueBounds{Floor(t.now)}, Bounds(Floor(t.now), within)...)
		return reader{t.p}.countDue(bounds)
	})
	if err != nil {
		return nil, err
	}
	return counts[1:], nil
}

// count runs steps until all messages that are due are counted.
func count[T any](ctx context.Context, b *backend, index int, step func(transition) (result T, counted bool, err error)) (
	T, error,
) {
	var none T
	for n := 0; ; n++ {
		var result T
		counted := false
		err := b.run(ctx, index, new(Call), func(t transition) (err error) {
			result, counted, err = step(t)
			return err
		})
		if err != nil {
			return none, err // the call may still run
		}
		if counted || n == countSteps {
			return result, nil
		}
	}
}

// List is O(log n + m) for a page of m messages and the leased ones among them. A page of leased
// messages is O(m log m) for m messages in flight.
func (b *backend) List(ctx context.Context, index int, state driver.State, cursor string, limit int) (
	[]driver.Record, string, error,
) {
	at, id, err := driver.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%s: list: %w", b.name, err)
	}
	var records []driver.Record
	var next string
	err = b.run(ctx, index, new(Call), func(t transition) (err error) {
		records, next, err = reader{t.p}.list(state, key{at, id}, limit)
		return err
	})
	if err != nil {
		return nil, "", err // the call may still run
	}
	return records, next, nil
}

// Audit finds faults, and repairs none: only damage or a bug can cause one.
func (b *backend) Audit(ctx context.Context, index int, _ bool) (driver.AuditReport, error) {
	var r driver.AuditReport
	err := b.run(ctx, index, new(Call), func(t transition) (err error) {
		r, err = t.p.verify()
		return err
	})
	if err != nil {
		return driver.AuditReport{}, err // the call may still run
	}
	return r, nil
}

// Heartbeat is O(m log m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]string, error) {
	if err := b.runner.Check(ctx); err != nil {
		return nil, err
	}
	return b.presence.Beat(b.now(), member, ttl), nil
}

// Members is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	if err := b.runner.Check(ctx); err != nil {
		return nil, err
	}
	return b.presence.List(b.now()), nil
}

// Watch buffers 256 hints. Further hints are lost.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.runner.Check(ctx); err != nil {
		return nil, err
	}
	return b.presence.Watch(ctx), nil
}
