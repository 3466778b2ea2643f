package redisstore

import "fmt"

// Positions in the keys of a partition, from 1 as scripts count them.
const (
	keyStates    = 2
	keyScheduled = 3
	keyLeased    = 4
	keyDead      = 5
)

// partitionTypes are the types of the keys of a partition, in their order.
var partitionTypes = []string{"hash", "hash", "zset", "zset", "zset", "hash"}

// partition is what belongs to one partition of a queue. All of it has one hash tag.
type partition struct {
	records string // its first key
	keys    []any  // strings in the order of partition.lua, as a command takes them
	channel string
}

func newPartition(prefix, queue string, p int) partition {
	base := fmt.Sprintf("%s:{%s:%d}:", prefix, queue, p)
	k := partition{channel: base + "h"}
	for _, name := range "msdlxc" {
		k.keys = append(k.keys, base+string(name))
	}
	k.records = base + "m"
	return k
}

// metaKey is the key of what holds for the whole queue.
func metaKey(prefix, queue string) string { return fmt.Sprintf("%s:{%s}:meta", prefix, queue) }

// membersKey is the key of the members of the queue's consumers.
func membersKey(prefix, queue string) string { return fmt.Sprintf("%s:{%s}:members", prefix, queue) }

// hostsKey is the key of what is known of the members besides their names.
func hostsKey(prefix, queue string) string { return fmt.Sprintf("%s:{%s}:hosts", prefix, queue) }
