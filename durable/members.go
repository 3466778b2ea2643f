package durable

import (
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/dgryski/go-rendezvous"
)

// membership keeps the consumer among the members of the queue, and starts and stops its pumps as members come and go. Each partition belongs to
// the member that rendezvous hashing gives it, so that all agree without speaking to each other, and few partitions change hands.
//
// Where the store cannot be reached nothing changes: two owners of a partition do no harm.
func (c *consumer) membership() {
	defer c.disown()
	for c.ctx.Err() == nil {
		members, err := c.q.backend.Heartbeat(c.ctx, c.name, c.opts.Membership)
		switch {
		case err == nil:
			c.own(members)
		case c.ctx.Err() == nil:
			c.q.report("heartbeat: %w", err)
		}
		pause(c.ctx, c.opts.Membership/3)
	}
}

// own starts and stops pumps.
func (c *consumer) own(members []string) {
	if !slices.Contains(members, c.name) {
		members = append(slices.Clone(members), c.name)
	}
	table := rendezvous.New(members, xxhash.Sum64String)
	parts := c.dispatcher.parts
	mine := make([]bool, len(parts))
	owned := 0
	for i := range parts {
		if mine[i] = table.Lookup(strconv.Itoa(i)) == c.name; mine[i] {
			owned++
		}
	}
	c.dispatcher.setOwned(owned)
	for i, p := range parts { // all at once: each may wait for a call that is under way, and heartbeats wait for all
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

// disown ends the pumps. Their messages are released by retire.
func (c *consumer) disown() {
	for _, p := range c.dispatcher.parts {
		if p.pump.cancel != nil {
			p.pump.cancel()
			<-p.pump.done
		}
	}
}
