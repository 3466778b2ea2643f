package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// backend is one queue.
type backend struct {
	store      *Store
	config     driver.Config                 // as opened
	latest     atomic.Pointer[driver.Config] // with the limits at the last heartbeat
	queue      keyGroup                      // the keys of the members, and of the queue
	partitions []partition
	publish    string         // the command by which scripts send hints: publish or spublish
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
	prefix, queue := s.options.Prefix, config.Queue
	b := &backend{store: s, config: config, meta: m, publish: "publish", channels: make(map[string]int)}
	b.queue = keyGroup{
		name:  fmt.Sprintf("queue %q", queue),
		keys:  []any{queueKey(prefix, queue, "members"), queueKey(prefix, queue, "hosts"), queueKey(prefix, queue, "meta")},
		types: []string{"zset", "hash", "hash"},
	}
	messages, bytes := math.MaxInt, int64(math.MaxInt64)
	if clustered {
		messages, bytes = clusterPartitionMessages, clusterPartitionBytes
	}
	b.limits = []any{cmp.Or(s.options.PartitionMessages, messages), cmp.Or(s.options.PartitionBytes, bytes)}
	if sharded {
		b.publish = "spublish"
	}
	b.latest.Store(&config)
	for i := range config.Partitions {
		p := newPartition(prefix, queue, i)
		b.partitions, b.channels[p.channel] = append(b.partitions, p), i
	}
	return b
}

// createArgs returns the arguments of create.lua.
func (b *backend) createArgs(repaired string) []any {
	return []any{len(b.partitions), b.meta.created, b.meta.complete, repaired}
}

// Config implements [driver.Backend].
func (b *backend) Config() driver.Config { return b.config }

// ask runs a script on the keys of a partition: see [Store.run].
func (b *backend) ask(ctx context.Context, part int, s *script, read func(*reply), args ...any) error {
	return b.store.run(ctx, b.partitions[part].keyGroup, s, read, args)
}

// hintArgs returns the first arguments of scripts that send hints.
func (b *backend) hintArgs(part int) []any { return []any{b.publish, b.partitions[part].channel} }

// callArgs returns the first arguments of scripts without tokens: see call.lua.
func (b *backend) callArgs(part int, c *driver.Call) []any {
	return append(b.hintArgs(part), c.Caller, c.Seq, int64(c.NotAfter), len(b.partitions))
}

// deadBounds returns the arguments of scripts that make dead letters.
func (b *backend) deadBounds() []any {
	c := b.latest.Load()
	return []any{c.DeadLimit, millis(c.DeadAge), c.DeadBytes}
}

// Positions of the keys of a partition, from 1 as in Lua.
const (
	keyStates    = 2
	keyScheduled = 3
	keyLeased    = 4
	keyDead      = 5
)

// keyGroup is a set of keys with the same hash tag, on which scripts run.
type keyGroup struct {
	name  string   // for errors
	keys  []any    // strings
	types []string // of the keys
}

// partition has the keys of a partition, in the order of partition.lua.
type partition struct {
	keyGroup
	channel string
}

func newPartition(prefix, queue string, p int) partition {
	base := fmt.Sprintf("%s:{%s:%d}:", prefix, queue, p)
	k := partition{keyGroup{name: fmt.Sprintf("queue %q, partition %d", queue, p)}, base + "h"}
	k.types = []string{"hash", "hash", "zset", "zset", "zset", "hash"}
	for _, name := range "msdlxc" {
		k.keys = append(k.keys, base+string(name))
	}
	return k
}

// queueKey returns the key of a queue with the given name: meta, members or hosts.
func queueKey(prefix, queue, name string) string {
	return fmt.Sprintf("%s:{%s}:%s", prefix, queue, name)
}
