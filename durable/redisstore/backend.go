package redisstore

import (
	"context"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// backend is one queue.
type backend struct {
	store      *Store
	config     driver.Config
	partitions []partition
	publish    string // the command by which the scripts give hints
	members    string
}

var _ driver.Backend = (*backend)(nil)

func newBackend(s *Store, config driver.Config, sharded bool) *backend {
	b := &backend{store: s, config: config, publish: "PUBLISH", members: membersKey(s.options.Prefix, config.Queue)}
	if sharded {
		b.publish = "SPUBLISH"
	}
	for p := range config.Partitions {
		b.partitions = append(b.partitions, newPartition(s.options.Prefix, config.Queue, p))
	}
	return b
}

// Partitions implements [driver.Backend].
func (b *backend) Partitions() int { return len(b.partitions) }

// check is the reason for which a call of a partition must not be made.
func (b *backend) check(ctx context.Context, part int) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	if part < 0 || part >= len(b.partitions) {
		return fmt.Errorf("redisstore: %w partition %d of queue %q: 0 to %d are accepted",
			driver.ErrInvalid, part, b.config.Queue, len(b.partitions)-1)
	}
	return nil
}

// checkBatch checks the number of messages in a batch.
func checkBatch(what string, n int) error {
	if n > driver.MaxBatch {
		return fmt.Errorf("redisstore: %w %s of %d messages: 0 to %d are accepted", driver.ErrInvalid, what, n, driver.MaxBatch)
	}
	return nil
}

// checkIDs refuses a batch that has an id twice, as the scripts make each transition from what there was before the batch. The empty id is
// not one of a message: see writes.lua.
func checkIDs(what string, n int, id func(int) string) error {
	seen := make(map[string]struct{}, n)
	for i := range n {
		if id(i) == "" {
			return fmt.Errorf("redisstore: %w %s: id %d of %d is empty; 1 to %d bytes are accepted", driver.ErrInvalid, what, i, n, durable.MaxID)
		}
		seen[id(i)] = struct{}{}
		if len(seen) <= i {
			return fmt.Errorf("redisstore: %w %s: message %.40q is there twice; different ids are accepted", driver.ErrInvalid, what, id(i))
		}
	}
	return nil
}

// run runs a script on the keys of a partition. Its errors are those of package durable.
func (b *backend) run(ctx context.Context, part int, s *script, args ...any) (any, error) {
	return b.runLine(ctx, part, s, false, append(b.line(part, len(args)), args...))
}

// line is the beginning of a command line for a partition, with room for arguments.
func (b *backend) line(part, room int) []any {
	return newLine(b.partitions[part].keys, room)
}

// runLine runs a script, and waits for replicas if the store has to. If once is set, the client does not repeat the
// call by itself when a reply was lost.
func (b *backend) runLine(ctx context.Context, part int, s *script, once bool, line []any) (any, error) {
	v, err := within(ctx, func() (any, error) {
		if s.promise && b.store.options.Wait > 0 {
			return b.store.runAndWait(ctx, s, once, b.partitions[part].records, line)
		}
		return s.run(ctx, b.store.client, once, line)
	})
	return v, b.failure(ctx, part, s, err)
}

func (b *backend) failure(ctx context.Context, part int, s *script, err error) error {
	if err == nil {
		return nil
	}
	b.store.lookForSlots(ctx, err)
	err = b.store.nameWrongKey(ctx, err, b.partitions[part].keys, partitionTypes)
	return failure(ctx, fmt.Sprintf("%s in queue %q, partition %d", s.name, b.config.Queue, part), err)
}

// hinting are the first arguments of scripts that give hints.
func (b *backend) hinting(part int) []any { return []any{b.publish, b.partitions[part].channel} }

// deadBounds are the arguments of scripts that make dead letters.
func (b *backend) deadBounds() []any {
	return []any{b.config.DeadLimit, millis(b.config.DeadAge), b.config.DeadBytes}
}
