package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// backend is one opener's view of a queue.
type backend struct {
	store  *Store
	queue  *queue
	limits local.DeadLimits
}

func (b *backend) Partitions() int { return len(b.queue.partitions) }

// enter locks a partition and reads the clock. Unless it returns an error, the caller must unlock
// the partition.
func (b *backend) enter(ctx context.Context, index int) (*partition, time.Time, error) {
	if err := b.store.checkOpen(ctx); err != nil {
		return nil, time.Time{}, err
	}
	p := b.queue.partitions[index]
	p.mu.Lock()
	now := b.store.now() // under the lock, so that readings are ordered
	return p, now, nil
}

// Put is O(log n) for each message.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	p, now, err := b.enter(ctx, put.Partition)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	return p.put(now, &put), nil
}

// Claim is O(log n) for each lease that it ends, at most 256, and for each message that it claims.
// If more leases have expired, Claimed.Lease is not later than Claimed.Now, and the next call ends
// them.
func (b *backend) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	p, now, err := b.enter(ctx, claim.Partition)
	if err != nil {
		return driver.Claimed{}, err
	}
	defer p.mu.Unlock()
	return p.claim(now, &claim, b.limits), nil
}

// Apply is O(log n) for each change.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := batch.Op.Check(); err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	p, now, err := b.enter(ctx, batch.Partition)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	return p.apply(now, &batch, b.limits), nil
}

// Pause is O(1).
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	p, _, err := b.enter(ctx, pause.Partition)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	p.paused = pause.Paused
	p.hints.Send(driver.Hint{Partition: p.index})
	return nil
}

// Get is O(1).
func (b *backend) Get(ctx context.Context, partition int, id string) (driver.Record, error) {
	p, _, err := b.enter(ctx, partition)
	if err != nil {
		return driver.Record{}, err
	}
	defer p.mu.Unlock()
	e := p.entries[id]
	if e == nil {
		return driver.Record{}, fmt.Errorf("memstore: %w with id %q in partition %d",
			driver.ErrNotFound, id, partition)
	}
	return e.copy(), nil
}

// Count is O(1) plus O(d) for the d messages that are due and not claimed.
func (b *backend) Count(ctx context.Context, partition int) (driver.Counts, error) {
	p, now, err := b.enter(ctx, partition)
	if err != nil {
		return driver.Counts{}, err
	}
	defer p.mu.Unlock()
	return p.count(local.Floor(now)), nil
}

// CountDue is O(log d) for each message that is due within the last of d durations.
func (b *backend) CountDue(ctx context.Context, partition int, within []time.Duration) ([]int64, error) {
	p, now, err := b.enter(ctx, partition)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	return p.scheduled.countDue(local.Bounds(local.Floor(now), within)), nil
}

// List is O(n log n) for each page of n messages in the state, because the sets are heaps.
func (b *backend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) (
	[]driver.Record, string, error,
) {
	at, id, err := driver.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("memstore: list: %w", err)
	}
	p, _, err := b.enter(ctx, partition)
	if err != nil {
		return nil, "", err
	}
	defer p.mu.Unlock()
	records, next := p.list(state, at, id, limit)
	return records, next, nil
}

// Audit is O(n). Only a bug in this package can cause a finding, because nothing else accesses the
// memory.
func (b *backend) Audit(ctx context.Context, partition int, repair bool) (driver.AuditReport, error) {
	p, now, err := b.enter(ctx, partition)
	if err != nil {
		return driver.AuditReport{}, err
	}
	defer p.mu.Unlock()
	return p.audit(local.Floor(now), repair), nil
}

// Heartbeat is O(m log m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]string, error) {
	if err := b.store.checkOpen(ctx); err != nil {
		return nil, err
	}
	return b.queue.members.Beat(b.store.now(), member, ttl), nil
}

// Members is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	if err := b.store.checkOpen(ctx); err != nil {
		return nil, err
	}
	return b.queue.members.List(b.store.now()), nil
}

// Watch buffers 256 hints. Further hints are lost.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.checkOpen(ctx); err != nil {
		return nil, err
	}
	return b.queue.hints.Watch(ctx), nil
}
