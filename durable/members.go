package durable

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// hostname returns the host name, or "" if the system does not report it.
var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return strings.ToValidUTF8(name[:min(len(name), 255)], "")
})

// member returns the consumer as other members see it.
func (c *consumer) member() driver.Member {
	m := driver.Member{Name: c.name, Host: hostname(), PID: os.Getpid()}
	c.dispatcher.heartbeat(&m)
	if m.Capacity = max(c.opts.Concurrency, m.Free); c.opts.Tool {
		m.Capacity, m.Free = -1, 0
	}
	return m
}

// membership keeps the consumer among the members of the queue, and learns from their list which
// partitions it owns. All members compute the same assignment from the list alone. While the store
// is unreachable, the assignment stays unchanged.
func (c *consumer) membership() {
	defer c.own(nil)
	for c.ctx.Err() == nil {
		members, err := c.q.backend.Heartbeat(c.calls, c.member(), c.opts.Membership)
		switch {
		case c.ctx.Err() != nil:
		case err != nil:
			if !deleted(err) {
				c.q.report("heartbeat: %w", err)
			}
			c.fail(err)
		case c.own(members):
			continue // the next heartbeat reports the owned partitions
		}
		sleep(c.ctx, c.opts.Membership/3)
	}
}

// own records the members. It reports whether the partitions that the consumer owns have changed,
// and calls OnEvent if they have.
func (c *consumer) own(members []driver.Member) (changed bool) {
	freeOthers, freeElsewhere := 0, 0
	for _, m := range members {
		if m.Free > 0 && m.Name != c.name {
			freeOthers++
			if m.PID != os.Getpid() || m.Host != hostname() {
				freeElsewhere++
			}
		}
	}
	c.updateShare(members)
	owners := assign(members, len(c.dispatcher.parts))
	owned, changed := c.dispatcher.setMembers(func(p int) bool { return owners[p] == c.name }, freeOthers, freeElsewhere)
	if changed && c.q.options.OnEvent != nil {
		c.q.emit(Event{Kind: EventRebalanced, Partition: -1, Time: time.Now(), Owned: owned})
	}
	return changed
}

// updateShare sets the consumer's share of the limits of its source. It has as many units of
// Source.MaxRunning as it would own partitions, and the same part of Source.Rate. A share does not
// become smaller when another member leaves.
func (c *consumer) updateShare(members []driver.Member) {
	b := &c.dispatcher.admission.budget
	if len(members) == 0 || b.source.MaxRunning == 0 && b.source.Rate == 0 {
		return
	}
	units, all := 0, cmp.Or(b.source.MaxRunning, 1000)
	for _, name := range assign(members, all) {
		if name == c.name {
			units++
		}
	}
	if b.joined.IsZero() {
		b.joined = time.Now()
	}
	if units < all && time.Since(b.joined) < c.opts.Membership/2 { // the others have not read the list since then
		units = 0
	}
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	b.setShare(units, all)
	c.dispatcher.match()
}

// assign returns the owner of each partition, or "" if there are no members. Shares follow
// capacity: each partition in turn goes to the member whose capacity per partition is highest after
// that, and to the first of several such members. A member whose capacity is unknown counts 1, and
// a tool 0 unless all members are tools. The cost is O(members × partitions).
func assign(members []driver.Member, partitions int) []string {
	capable := func(m driver.Member) bool { return m.Capacity >= 0 }
	tools := !slices.ContainsFunc(members, capable)
	load, owners := make([]int, len(members)), make([]string, partitions)
	for p := range owners {
		best, most := -1, 0
		for m, member := range members {
			weight := max(1, member.Capacity)
			if (tools || capable(member)) && (best < 0 || weight*(load[best]+1) > most*(load[m]+1)) {
				best, most = m, weight
			}
		}
		if best >= 0 {
			load[best]++
			owners[p] = members[best].Name
		}
	}
	return owners
}
