package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// backend is one opener's view of a queue.
type backend struct {
	runner Runner
	shared *Shared
	config driver.Config // as opened
	number uint32        // of the queue
}

func (b *backend) Config() driver.Config { return b.config }

func (b *backend) find(s *State) (*queue, error) {
	if q := s.queues[b.config.Queue]; q != nil && len(q.partitions) == b.config.Partitions {
		return q, nil
	}
	return s.open(&driver.Config{Queue: b.config.Queue, Partitions: b.config.Partitions, Existing: true}) // with any limits
}

// grouper is a [contract.Grouper].
type grouper struct{ *backend }

func (grouper) GroupsCalls() {}

// run runs a call in a partition and returns the result of do. If Runner.Run returns an error, do
// may still run and write result, so run returns a zero value.
func run[T any](ctx context.Context, b *backend, index int, call *Call, do func(t tx) (T, error)) (T, error) {
	var result, none T
	call.Do = func(s *State) error {
		q, err := b.find(s)
		if err == nil && (index < 0 || index >= len(q.partitions)) { // another process has asked for it
			err = fmt.Errorf("%w number; it must be from 0 to %d", driver.ErrInvalid, len(q.partitions)-1)
		}
		if err == nil {
			p := q.partitions[index]
			head := p.frontier.head
			if result, err = do(tx{p, b.shared.Now(), &q.config, call}); err == nil {
				p.endCall(head)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: queue %q, partition %d: %w", b.shared.Name, b.config.Queue, index, err)
		}
		return nil
	}
	if err := b.runner.Run(ctx, call); err != nil {
		return none, err
	}
	return result, nil
}

// check returns an error if the store is closed or fails, the queue is gone, or ctx has ended.
func (b *backend) check(ctx context.Context) error {
	return b.runner.Run(ctx, &Call{Do: func(s *State) error {
		_, err := b.find(s)
		return err
	}})
}

// Put is O(log n) per message.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	call := Call{Waits: true, Changes: true}
	for i := range put.Items {
		call.Bytes += recordSize + len(put.Items[i].Body)
	}
	return run(ctx, b, put.Partition, &call, func(t tx) ([]driver.Status, error) { return t.put(&put) })
}

// Claim is O(log n) per lease that it ends, at most [driver.MaxBatch], and per message that it
// claims. If more leases have expired, Claimed.Lease is not later than Claimed.Now, and the
// next call ends them.
func (b *backend) Claim(ctx context.Context, request driver.Claim) (driver.Claimed, error) {
	call := Call{Changes: true}
	var leased []driver.Record
	claimed, err := run(ctx, b, request.Partition, &call, func(t tx) (driver.Claimed, error) {
		c := claim{tx: t, request: &request}
		claimed, err := c.run()
		leased = claimed.Records
		return claimed, err
	})
	if underWay := (*contract.UnderWayError)(nil); errors.As(err, &underWay) { // the caller is gone; if Apply fails, the leases expire
		go func() {
			<-underWay.Done
			var release []driver.Change
			for _, r := range leased {
				release = append(release, driver.Change{ID: r.ID, Token: r.Token})
			}
			_, _ = b.Apply(context.WithoutCancel(ctx), driver.Batch{Partition: request.Partition, Op: driver.OpRelease, Changes: release})
		}()
	}
	return claimed, err
}

// Apply is O(log n) per change.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := contract.CheckOp(batch.Op); err != nil {
		return nil, fmt.Errorf("%s: %w", b.shared.Name, err)
	}
	waits := batch.Op != driver.OpBegin && batch.Op != driver.OpExtend && batch.Op != driver.OpRelease
	call := Call{Waits: waits, Changes: true}
	if batch.Op == driver.OpCancel || batch.Op == driver.OpReschedule || batch.Op == driver.OpRepeat {
		call.Warm = func(get Getter) { b.warm(&batch, get) }
	}
	return run(ctx, b, batch.Partition, &call, func(t tx) ([]driver.Outcome, error) { return t.apply(&batch) })
}

// warm reads the messages of a batch. Unlike claimed messages, these may be anywhere, and a call
// that waits for the disk delays the calls behind it.
func (b *backend) warm(batch *driver.Batch, get Getter) {
	t := table{queue: b.number, partition: uint16(batch.Partition)} //nolint:gosec // at most MaxPartitions
	for i := range batch.Changes {
		value, _ := get(t.indexKey(batch.Changes[i].ID)) // Do returns the error
		if at, err := t.parsePlace(batch.Changes[i].ID, value); err == nil && readsRecord(batch.Op, &batch.Changes[i]) {
			_, _ = get(t.timeKey(at.kind, at.key))
		}
	}
}

// Pause is O(1).
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	_, err := run(ctx, b, pause.Partition, &Call{Waits: true, Changes: true}, func(t tx) (struct{}, error) {
		t.p.counters.Paused = pause.Paused
		t.p.change()
		t.p.hints.send(driver.Hint{Partition: pause.Partition})
		return struct{}{}, nil
	})
	return err
}

// Get is O(log n).
func (b *backend) Get(ctx context.Context, index int, id string) (driver.Record, error) {
	return run(ctx, b, index, new(Call), func(t tx) (driver.Record, error) {
		stored, err := t.p.table.load(id)
		switch {
		case err != nil:
			return driver.Record{}, err
		case stored == nil:
			return driver.Record{}, fmt.Errorf("%w with id %q", driver.ErrNotFound, id)
		case stored.msg.State == 0:
			return driver.Record{}, fmt.Errorf("%w: the record of message %q cannot be read", ErrCorrupt, id)
		}
		return t.p.export(stored), nil
	})
}

// Count visits the messages in flight and the messages that have become due since the last Count.
// If these are more than a million, Counts.Due is an estimate. Otherwise Count is O(1).
func (b *backend) Count(ctx context.Context, index int) (driver.Counts, error) {
	return count(ctx, b, index, func(t tx) (driver.Counts, error) { return t.p.counts(transition.Floor(t.now)) })
}

// CountDue visits the same messages as Count and the next thousands. It estimates the rest from
// counters of spans of 4.7 hours, as if the messages of a span were spread evenly.
func (b *backend) CountDue(ctx context.Context, index int, within []time.Duration) ([]int64, error) {
	counts, err := count(ctx, b, index, func(t tx) ([]int64, error) {
		bounds := []driver.Instant{transition.Floor(t.now)}
		for _, d := range within {
			bounds = append(bounds, transition.Floor(t.now).Add(d))
		}
		return t.p.countDue(bounds)
	})
	if err != nil {
		return nil, err
	}
	return counts[1:], nil
}

// count runs steps until all messages that are due are counted.
func count[T any](ctx context.Context, b *backend, index int, step func(tx) (T, error)) (T, error) {
	for n := 1; ; n++ {
		counted := false
		result, err := run(ctx, b, index, new(Call), func(t tx) (T, error) {
			result, err := step(t)
			counted = t.p.due.until == transition.Floor(t.now)
			return result, err
		})
		if err != nil || counted || n == countSteps {
			return result, err
		}
	}
}

// List is O(log n + m) for a page of m messages and the leased ones among them. A page of leased
// messages is O(m log m) for m messages in flight.
func (b *backend) List(ctx context.Context, index int, state driver.State, cursor string, limit int) ([]driver.Record, string, error) {
	at, id, err := contract.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%s: list: %w", b.shared.Name, err)
	}
	g, err := run(ctx, b, index, new(Call), func(t tx) (page, error) {
		return listPage(t.p, state, key{at, id}, limit)
	})
	return g.records, g.next, err
}

// Audit finds faults, and repairs none: only damage or a bug can cause one. It is O(n log n) for
// the n messages of the queue, and other calls wait for it.
func (b *backend) Audit(ctx context.Context, index int, _ bool) (driver.AuditReport, error) {
	return run(ctx, b, index, new(Call), func(t tx) (driver.AuditReport, error) { return t.p.verify() })
}

// Lost returns 0: only this package removes records.
func (b *backend) Lost(c context.Context, _ int) (uint64, error, error) { return 0, nil, b.check(c) }

// Heartbeat is O(m log m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]driver.Member, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return b.shared.of(b.config.Queue).beat(b.shared.Now(), member, ttl), nil
}

// Members is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	return b.Heartbeat(ctx, driver.Member{}, 0) // no member has an empty name
}

// Watch buffers [hintBuffer] hints. Further hints are lost.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return b.shared.of(b.config.Queue).watch(ctx), nil
}
