package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Heartbeat implements [driver.Backend]. An empty name and a negative ttl are [driver.ErrInvalid]. It takes O(m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member string, ttl time.Duration) ([]string, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	switch {
	case member == "":
		return nil, fmt.Errorf("redisstore: heartbeat: %w member: its name is empty; 1 byte or more is accepted", driver.ErrInvalid)
	case ttl < 0:
		return nil, fmt.Errorf("redisstore: heartbeat: %w ttl %v: 0 or more is accepted", driver.ErrInvalid, ttl)
	}
	keys := []any{b.members}
	v, err := within(ctx, func() (any, error) {
		return heartbeatScript.run(ctx, b.store.client, append(newLine(keys, 2), member, millis(ttl)))
	})
	what := fmt.Sprintf("heartbeat in queue %q", b.config.Queue)
	if err != nil {
		b.store.lookForSlots(ctx, err)
		err = b.store.nameWrongKey(ctx, err, keys, []string{"zset"})
		return nil, failure(ctx, what, err)
	}
	r := newReply(v)
	var members []string
	for r.more() {
		members = append(members, r.text())
	}
	if r.err != nil {
		return nil, failure(ctx, what, r.err)
	}
	slices.Sort(members)
	return members, nil
}
