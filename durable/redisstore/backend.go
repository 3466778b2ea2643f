package redisstore

import (
	"context"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// backend is one queue.
type backend struct {
	store      *Store
	config     driver.Config
	partitions []partition
	publish    string // the command by which the scripts give hints
	members    []any  // the keys of the members, as a command takes them
}

var (
	_ driver.Backend = (*backend)(nil)
	_ driver.Checker = (*backend)(nil)
)

func newBackend(s *Store, config driver.Config, sharded bool) *backend {
	b := &backend{store: s, config: config, publish: "PUBLISH"}
	b.members = []any{membersKey(s.options.Prefix, config.Queue), hostsKey(s.options.Prefix, config.Queue)}
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

// run runs a script on the keys of a partition. Its errors are those of package durable.
func (b *backend) run(ctx context.Context, part int, s *script, args ...any) (any, error) {
	return b.runLine(ctx, part, s, append(b.line(part, len(args)), args...))
}

// line is the beginning of a command line for a partition, with room for arguments.
func (b *backend) line(part, room int) []any {
	return newLine(b.partitions[part].keys, room)
}

// runLine runs a script, and waits for replicas if the store has to.
func (b *backend) runLine(ctx context.Context, part int, s *script, line []any) (any, error) {
	v, err := within(ctx, func() (any, error) {
		if s.promise && b.store.options.Wait > 0 {
			return b.store.runAndWait(ctx, s, b.partitions[part].records, line)
		}
		return s.run(ctx, b.store.client, line)
	})
	return v, b.failure(ctx, part, s, err)
}

func (b *backend) failure(ctx context.Context, part int, s *script, err error) error {
	if err == nil {
		return nil
	}
	b.store.lookForSlots(ctx, err)
	err = b.store.nameWrongKey(ctx, err, b.partitions[part].keys, partitionTypes)
	return failure(ctx, b.naming(s, part), err)
}

// naming names a script and what it works on.
func (b *backend) naming(s *script, part int) string {
	return fmt.Sprintf("%s in queue %q, partition %d", s.name, b.config.Queue, part)
}

// hinting are the first arguments of scripts that give hints.
func (b *backend) hinting(part int) []any { return []any{b.publish, b.partitions[part].channel} }

// calling are the first arguments of scripts without tokens: see call.lua.
func (b *backend) calling(part int, c *driver.Call) []any {
	return append(b.hinting(part), c.Caller, c.Seq, int64(c.NotAfter), driver.MaxAhead.Milliseconds())
}

// deadBounds are the arguments of scripts that make dead letters.
func (b *backend) deadBounds() []any {
	return []any{b.config.DeadLimit, millis(b.config.DeadAge), b.config.DeadBytes}
}
