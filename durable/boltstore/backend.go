package boltstore

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// backend is a queue as one of those sees it who have opened it.
type backend struct {
	store  *Store
	queue  *queue
	limits local.DeadLimits
}

var _ driver.Backend = (*backend)(nil)

// GroupsCalls says that calls share commits, see committer.
func (b *backend) GroupsCalls() {}

func (b *backend) Partitions() int { return len(b.queue.partitions) }

// enter is what each call begins with.
func (b *backend) enter(ctx context.Context, index int) (*partition, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.partitions[index], nil
}

// Put waits for a commit, which all that is put, acknowledged and so on at the same time shares. It is O(log n) for each message. Where the file
// cannot grow it is [driver.ErrFull].
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	p, err := b.enter(ctx, put.Partition)
	if err != nil || len(put.Items) == 0 {
		return nil, err
	}
	r := &request{p: p, ids: make([]string, len(put.Items)), grows: true}
	for i := range put.Items {
		r.ids[i] = put.Items[i].ID
		r.bytes += len(put.Items[i].Body)
	}
	var statuses []driver.Status
	r.run = func(w *partitionWriter) (err error) {
		statuses, err = w.put(&put)
		return err
	}
	if err := b.store.commits.do(ctx, r); err != nil {
		return nil, err
	}
	return statuses, nil
}

// Apply waits for a commit as [backend.Put] does, but for Begin, Extend, and Release of what has not begun: these wait only where a
// commit of the same message is under way.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := batch.Op.Check(); err != nil {
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	p, err := b.enter(ctx, batch.Partition)
	if err != nil || len(batch.Changes) == 0 {
		return nil, err
	}
	switch batch.Op {
	case driver.OpBegin, driver.OpExtend, driver.OpRelease:
		outcomes, done, err := b.applyInMemory(ctx, p, &batch)
		if done || err != nil {
			return outcomes, err
		}
	}
	r := &request{p: p, ids: make([]string, len(batch.Changes)), grows: batch.Op == driver.OpReplay}
	for i := range batch.Changes {
		r.ids[i] = batch.Changes[i].ID
	}
	var outcomes []driver.Outcome
	r.run = func(w *partitionWriter) (err error) {
		outcomes, err = w.apply(&batch, b.limits)
		return err
	}
	if err := b.store.commits.do(ctx, r); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// Heartbeat is O(m log m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member string, ttl time.Duration) ([]string, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.members.Beat(b.store.options.Now(), member, ttl), nil
}

// Watch keeps 256 hints that nobody has received; others are lost.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.hints.Watch(ctx), nil
}
