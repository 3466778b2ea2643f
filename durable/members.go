package durable

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Consumer is a consumer of a queue in any process: a call to [Queue.Consume] or a [Receiver].
type Consumer struct {
	ID            string    // unique among the consumers of the queue
	Host          string    // host name, at most [driver.MaxHost] bytes; empty if unknown
	PID           int       // process id on the host
	Partitions    []int     // owned at the last heartbeat, ascending
	LastHeartbeat time.Time // on the store's clock
	Expires       time.Time // when other consumers get its partitions unless it sends a heartbeat
}

// Consumers returns the consumers of the queue in all processes, according to their last heartbeats
// and sorted by ID. A consumer sends three heartbeats per ConsumerOptions.Membership, and one
// whenever its partitions change. A consumer that crashed or is suspended is listed until it
// expires. Two consumers may list a partition that is moving from one to the other. Consumers makes
// one call to the store. It returns the store's error, such as [ErrUnavailable].
func (q *Queue) Consumers(ctx context.Context) ([]Consumer, error) {
	if err := q.checkOpen(ctx); err != nil {
		return nil, err
	}
	members, err := q.backend.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("durable: consumers: %w", err)
	}
	all := make([]Consumer, len(members))
	for i, m := range members {
		all[i] = Consumer{
			ID: m.Name, Host: m.Host, PID: m.PID, Partitions: m.Partitions,
			LastHeartbeat: timeOf(m.Seen), Expires: timeOf(m.Until),
		}
	}
	return all, nil
}

// unowned returns the number of partitions without an owner.
func unowned(consumers []Consumer, partitions int) int {
	owned := make([]bool, partitions)
	for _, c := range consumers {
		for _, p := range c.Partitions {
			if p >= 0 && p < partitions {
				owned[p] = true
			}
		}
	}
	n := 0
	for _, o := range owned {
		if !o {
			n++
		}
	}
	return n
}

// hostname returns the host name, or "" if the system does not report it.
var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return strings.ToValidUTF8(name[:min(len(name), driver.MaxHost)], "")
})

// member returns the consumer as other members see it.
func (c *consumer) member() driver.Member {
	return driver.Member{
		Name: c.name, Host: hostname(), PID: os.Getpid(), Partitions: c.owns(),
		Capacity: c.opts.Concurrency, Free: min(c.opts.Concurrency, c.dispatcher.load().waiting),
	}
}

// membership keeps the consumer among the members of the queue, and starts and stops its claimers
// as members join and leave. All members compute the same assignment from the list of members
// alone.
//
// While the store is unreachable, the assignment stays unchanged, because two owners of a partition
// are harmless.
func (c *consumer) membership() {
	defer c.disown()
	var known []string
	for c.ctx.Err() == nil {
		members, err := c.heartbeat()
		switch {
		case c.ctx.Err() != nil:
		case err == nil && !slices.Equal(members, known):
			known = members
			if c.own(members) {
				continue // the next heartbeat reports the owned partitions
			}
		case err != nil:
			c.q.report("heartbeat: %w", err)
			c.fail(err)
		}
		sleep(c.ctx, c.opts.Membership/3)
	}
}

// heartbeat renews the membership. When the consumer ends, a call in progress gets a grace period.
// If it were abandoned, it might take effect after the call to leave, and the consumer's partitions
// would have no owner until Membership has passed.
func (c *consumer) heartbeat() ([]string, error) {
	ctx, cancel := c.graceContext(c.ctx)
	defer cancel()
	return c.q.backend.Heartbeat(ctx, c.member(), c.opts.Membership)
}

// own starts and stops claimers. It reports whether the set of owned partitions has changed.
func (c *consumer) own(members []string) (changed bool) {
	if !slices.Contains(members, c.name) {
		members = append(slices.Clone(members), c.name)
	}
	before := c.owns()
	parts := c.dispatcher.parts
	mine := make([]bool, len(parts))
	owned := 0
	for i, owner := range assign(members, len(parts)) {
		if mine[i] = owner == c.name; mine[i] {
			owned++
		}
	}
	c.dispatcher.setOwned(owned)
	// All are cancelled first, because each stop may wait for a call, and the next heartbeat waits
	// for all of them.
	for i, p := range parts {
		if !mine[i] && p.claimer.cancel != nil {
			p.claimer.cancel()
		}
	}
	for i, p := range parts {
		switch {
		case mine[i] && p.claimer.cancel == nil:
			p.claimer.start()
		case !mine[i] && p.claimer.cancel != nil:
			p.claimer.stop()
		}
	}
	return c.rebalanced(before)
}

// owns returns the partitions that the consumer owns.
func (c *consumer) owns() (partitions []int) {
	for i, p := range c.dispatcher.parts {
		if p.claimer.cancel != nil {
			partitions = append(partitions, i)
		}
	}
	return partitions
}

// rebalanced reports whether the set of owned partitions has changed, and calls OnEvent if it has.
func (c *consumer) rebalanced(before []int) bool {
	now := c.owns()
	if slices.Equal(before, now) {
		return false
	}
	if c.q.options.OnEvent != nil {
		c.q.emit(Event{Kind: EventRebalanced, Partition: -1, Time: time.Now(), Owned: now})
	}
	return true
}

// disown stops the claimers. retire releases their messages.
func (c *consumer) disown() {
	defer c.rebalanced(c.owns())
	for _, p := range c.dispatcher.parts {
		if p.claimer.cancel != nil {
			p.claimer.cancel()
			<-p.claimer.done
			p.claimer.cancel = nil
		}
	}
}

// assign returns the owner of each partition. The members' numbers of partitions differ by at most
// one. The result depends on the set of members only, not on their order.
//
// The algorithm is rendezvous hashing with bounded loads: each partition in turn goes to the member
// with the highest hash among the members that have room. A member that joins or leaves moves the
// partitions that it gains or loses and, because of the bounds, up to about as many again: 3 of 8
// with the third member, 6 or 7 of 32 with the ninth (see TestAssignmentMovesFewPartitions). The
// cost is O(members × partitions).
func assign(members []string, partitions int) []string {
	// Each member gets least partitions, and some members get one more.
	least, above := partitions/len(members), partitions%len(members)
	load := make([]int, len(members))
	owners := make([]string, partitions)
	var key []byte
	for p := range owners {
		best, highest := -1, uint64(0)
		for m, member := range members {
			if load[m] > least || load[m] == least && above == 0 {
				continue
			}
			key = binary.LittleEndian.AppendUint32(append(key[:0], member...), uint32(p))
			hash := xxhash.Sum64(key)
			if best < 0 || hash > highest || hash == highest && member < members[best] {
				best, highest = m, hash
			}
		}
		if load[best] == least {
			above--
		}
		load[best]++
		owners[p] = members[best]
	}
	return owners
}
