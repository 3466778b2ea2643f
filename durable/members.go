package durable

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// membership keeps the consumer among the members of the queue, and starts and stops its pumps as
// members come and go. All members compute the same assignment from the list of members alone.
//
// If the store cannot be reached the assignment stays as it is: two owners of a partition do no harm.
func (c *consumer) membership() {
	defer c.disown()
	var known []string
	for c.ctx.Err() == nil {
		members, err := c.q.backend.Heartbeat(c.ctx, c.name, c.opts.Membership)
		switch {
		case err == nil && !slices.Equal(members, known):
			c.own(members)
			known = members
		case err != nil && c.ctx.Err() == nil:
			c.q.report("heartbeat: %w", err)
			c.fail(err)
		}
		pause(c.ctx, c.opts.Membership/3)
	}
}

// own starts and stops pumps.
func (c *consumer) own(members []string) {
	if !slices.Contains(members, c.name) {
		members = append(slices.Clone(members), c.name)
	}
	defer c.rebalanced(c.owns())
	parts := c.dispatcher.parts
	mine := make([]bool, len(parts))
	owned := 0
	for i, owner := range assign(members, len(parts)) {
		if mine[i] = owner == c.name; mine[i] {
			owned++
		}
	}
	c.dispatcher.setOwned(owned)
	for i, p := range parts { // all at once: each may wait for a call, and heartbeats wait for all
		if !mine[i] && p.pump.cancel != nil {
			p.pump.cancel()
		}
	}
	for i, p := range parts {
		switch {
		case mine[i] && p.pump.cancel == nil:
			p.pump.start()
		case !mine[i] && p.pump.cancel != nil:
			p.pump.stop()
		}
	}
}

// owns returns the partitions that the consumer owns.
func (c *consumer) owns() (partitions []int) {
	for i, p := range c.dispatcher.parts {
		if p.pump.cancel != nil {
			partitions = append(partitions, i)
		}
	}
	return partitions
}

// rebalanced calls OnEvent if the consumer owns other partitions than before.
func (c *consumer) rebalanced(before []int) {
	if now := c.owns(); c.q.options.OnEvent != nil && !slices.Equal(before, now) {
		c.q.emit(Event{Kind: EventRebalanced, Partition: -1, Time: time.Now(), Owned: now})
	}
}

// disown ends the pumps. Their messages are released by retire.
func (c *consumer) disown() {
	defer c.rebalanced(c.owns())
	for _, p := range c.dispatcher.parts {
		if p.pump.cancel != nil {
			p.pump.cancel()
			<-p.pump.done
			p.pump.cancel = nil
		}
	}
}

// assign returns the owner of each partition. No member has more than one partition above another.
// The result depends on the set of members only, not on their order.
//
// It is rendezvous hashing with bounded loads: one partition after the other goes to the member
// that has the highest hash with it and has room. A member that joins or leaves moves the partitions
// that it gains or loses and, because of the bounds, up to about as many again: 3 of 8 with the third
// member, 6 or 7 of 32 with the ninth (see TestAssignmentMovesFewPartitions). The cost is O(members ×
// partitions).
func assign(members []string, partitions int) []string {
	least, above := partitions/len(members), partitions%len(members) // so many members have one more
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
