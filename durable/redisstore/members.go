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
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]string, error) {
	info, err := json.Marshal(memberInfo{member, millis(ttl)})
	if err != nil {
		return nil, fmt.Errorf("redisstore: heartbeat: %w", err)
	}
	var names []string
	err = b.runMembers(ctx, heartbeatScript, func(r *reply) {
		for r.more() {
			names = append(names, r.text())
		}
	}, member.Name, millis(ttl), info)
	slices.Sort(names)
	return names, err
}

// Members implements [driver.Backend]. It is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	var all []driver.Member
	err := b.runMembers(ctx, membersScript, func(r *reply) {
		for r.more() {
			name, until, info := r.text(), r.instant(), memberInfo{}
			if json.Unmarshal([]byte(r.text()), &info) == nil {
				info.Seen = until - driver.Instant(info.TTL)
			}
			info.Name, info.Until = name, until
			all = append(all, info.Member)
		}
	})
	slices.SortFunc(all, func(a, b driver.Member) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// runMembers runs a script on the keys of the members and passes the reply to read.
func (b *backend) runMembers(ctx context.Context, s *script, read func(*reply), args ...any) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	v, err := within(ctx, func() (any, error) {
		return s.run(ctx, b.store.client, append(newLine(b.members, len(args)), args...))
	})
	what := fmt.Sprintf("%s in queue %q", s.name, b.config.Queue)
	if err != nil {
		b.store.reloadSlots(ctx, err)
		return failure(ctx, what, b.store.nameWrongKey(ctx, err, b.members, memberTypes))
	}
	r := newReply(v)
	read(r)
	return failure(ctx, what, r.err)
}
