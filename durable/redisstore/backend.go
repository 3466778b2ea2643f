package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// backend is one queue.
type backend struct {
	store      *Store
	config     driver.Config
	partitions []partition
	publish    string         // the command by which scripts send hints: PUBLISH or SPUBLISH
	members    []any          // the keys of the members and the queue: strings
	limits     []any          // of a partition: messages and bytes
	channels   map[string]int // partitions by their channels
	meta       meta
}

var (
	_ driver.Backend = (*backend)(nil)
	_ driver.Checker = (*backend)(nil)
	_ driver.Auditor = (*backend)(nil)
)

func newBackend(s *Store, config driver.Config, m meta, sharded, clustered bool) *backend {
	b := &backend{store: s, config: config, meta: m, publish: "PUBLISH", channels: make(map[string]int)}
	messages, bytes := math.MaxInt, int64(math.MaxInt64)
	if clustered {
		messages, bytes = clusterPartitionMessages, clusterPartitionBytes
	}
	b.limits = []any{cmp.Or(s.options.PartitionMessages, messages), cmp.Or(s.options.PartitionBytes, bytes)}
	prefix, queue := s.options.Prefix, config.Queue
	b.members = []any{queueKey(prefix, queue, "members"), queueKey(prefix, queue, "hosts"), queueKey(prefix, queue, "meta")}
	if sharded {
		b.publish = "SPUBLISH"
	}
	for i := range m.partitions {
		p := newPartition(s.options.Prefix, config.Queue, i)
		b.partitions, b.channels[p.channel] = append(b.partitions, p), i
	}
	return b
}

// createArgs returns the arguments of create.lua.
func (b *backend) createArgs(repaired string) []any {
	return []any{len(b.partitions), b.meta.created, flag(b.meta.complete), repaired}
}

// Partitions implements [driver.Backend].
func (b *backend) Partitions() int { return len(b.partitions) }

// ask runs a script of a usable store on the keys of a partition, and returns the reply.
func ask(ctx context.Context, b *backend, part int, s *script, args ...any) (*reply, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	v, err := b.runLine(ctx, part, s, append(b.line(part, len(args)), args...))
	return newReply(v), err
}

// line returns the beginning of a command line for a partition, with room for arguments.
func (b *backend) line(part, room int) []any {
	return newLine(b.partitions[part].keys, room)
}

// runLine runs a script, and classifies errors by package driver.
func (b *backend) runLine(ctx context.Context, part int, s *script, line []any) (any, error) {
	v, err := b.store.send(ctx, s, line)
	return v, b.failure(ctx, part, s, err)
}

func (b *backend) failure(ctx context.Context, part int, s *script, err error) error {
	if err == nil {
		return nil
	}
	b.store.reloadSlots(ctx, err)
	err = b.store.nameWrongKey(ctx, err, b.partitions[part].keys, partitionTypes)
	return failure(ctx, b.callName(s, part), err)
}

// callName returns the name of a script and of the partition for errors.
func (b *backend) callName(s *script, part int) string {
	return fmt.Sprintf("%s in queue %q, partition %d", s.name, b.config.Queue, part)
}

// isLate reports whether v is the reply to a copy of a call that arrived too late: see call.lua.
func isLate(v any) bool {
	values, ok := v.([]any)
	return ok && len(values) > 0 && values[0] == "late"
}

// call runs a script like runLine, and returns the reply, or a [driver.LateError] if the script has
// rejected the call as late.
func (b *backend) call(ctx context.Context, part int, s *script, line []any) (*reply, error) {
	v, err := b.runLine(ctx, part, s, line)
	r := newReply(v)
	if err != nil || !isLate(v) {
		return r, err
	}
	r.text()
	refused := &driver.LateError{Now: r.instant(), Unknown: r.text() == "1"}
	if r.err != nil {
		return r, nil
	}
	return nil, fmt.Errorf("redisstore: %s: %w", b.callName(s, part), refused)
}

// hintArgs returns the first arguments of scripts that send hints.
func (b *backend) hintArgs(part int) []any { return []any{b.publish, b.partitions[part].channel} }

// callArgs returns the first arguments of scripts without tokens: see call.lua.
func (b *backend) callArgs(part int, c *driver.Call) []any {
	return append(b.hintArgs(part), c.Caller, c.Seq, int64(c.NotAfter), len(b.partitions))
}

// deadBounds returns the arguments of scripts that make dead letters.
func (b *backend) deadBounds() []any {
	return []any{b.config.DeadLimit, millis(b.config.DeadAge), b.config.DeadBytes}
}

// Positions of the keys of a partition, from 1 as in Lua.
const (
	keyStates    = 2
	keyScheduled = 3
	keyLeased    = 4
	keyDead      = 5
)

// partitionTypes are the types of the keys of a partition, in their order.
var partitionTypes = []string{"hash", "hash", "zset", "zset", "zset", "hash"}

// partition has the names of a partition's keys, which have the same hash tag.
type partition struct {
	records string // its first key
	keys    []any  // strings, in the order of partition.lua
	channel string
}

func newPartition(prefix, queue string, p int) partition {
	base := fmt.Sprintf("%s:{%s:%d}:", prefix, queue, p)
	k := partition{records: base + "m", channel: base + "h"}
	for _, name := range "msdlxc" {
		k.keys = append(k.keys, base+string(name))
	}
	return k
}

// queueKey returns the key of a queue with the given name: meta, members or hosts.
func queueKey(prefix, queue, name string) string {
	return fmt.Sprintf("%s:{%s}:%s", prefix, queue, name)
}
