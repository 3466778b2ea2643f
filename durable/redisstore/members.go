package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// memberInfo is the JSON in which the store keeps the data of a member.
type memberInfo struct {
	driver.Member
	TTL int64 // of the last heartbeat, in milliseconds
}

// memberTypes are the types of the keys of the members, in their order.
var memberTypes = []string{"zset", "hash"}

// Heartbeat implements [driver.Backend]. It is O(m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]driver.Member, error) {
	info, err := json.Marshal(memberInfo{member, millis(ttl)})
	if err != nil {
		return nil, fmt.Errorf("redisstore: heartbeat: %w", err)
	}
	return b.runMembers(ctx, heartbeatScript, member.Name, millis(ttl), info)
}

// Members implements [driver.Backend]. It is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	return b.runMembers(ctx, membersScript)
}

// runMembers runs a script on the keys of the members and returns the members.
func (b *backend) runMembers(ctx context.Context, s *script, args ...any) ([]driver.Member, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	v, err := within(ctx, func() (any, error) {
		return s.run(ctx, b.store.client, append(newLine(b.members, len(args)), args...))
	})
	what := fmt.Sprintf("%s in queue %q", s.name, b.config.Queue)
	if err != nil {
		b.store.reloadSlots(ctx, err)
		return nil, failure(ctx, what, b.store.nameWrongKey(ctx, err, b.members, memberTypes))
	}
	var all []driver.Member
	r := newReply(v)
	for r.more() {
		name, until, info := r.text(), r.instant(), memberInfo{}
		if json.Unmarshal([]byte(r.text()), &info) == nil {
			info.Seen = until - driver.Instant(info.TTL)
		}
		info.Name, info.Until = name, until
		all = append(all, info.Member)
	}
	slices.SortFunc(all, func(a, b driver.Member) int { return strings.Compare(a.Name, b.Name) })
	return all, failure(ctx, what, r.err)
}
