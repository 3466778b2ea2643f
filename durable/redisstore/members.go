package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// memberInfo is the JSON in which the store keeps the data of a member.
type memberInfo struct {
	driver.Member
	TTL int64 // of the last heartbeat, in milliseconds
}

// Heartbeat implements [driver.Backend]. It is O(m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]driver.Member, error) {
	info, err := json.Marshal(memberInfo{member, millis(ttl)})
	if err != nil {
		return nil, fmt.Errorf("redisstore: heartbeat: %w", err)
	}
	return b.membersOf(ctx, heartbeatScript, member.Name, millis(ttl), info)
}

// Members implements [driver.Backend]. It is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	return b.membersOf(ctx, membersScript)
}

// membersOf runs a script on the keys of the members and returns the members.
func (b *backend) membersOf(ctx context.Context, s *script, args ...any) (all []driver.Member, err error) {
	err = b.store.run(ctx, b.queue, s, func(r *reply) {
		config, err := r.join(driver.Config{Queue: b.config.Queue})
		if err == nil { // otherwise the key was lost, which Open reports
			b.latest.Store(&config)
		}
		for r.more() {
			name, until, info := r.text(), r.instant(), memberInfo{}
			if json.Unmarshal([]byte(r.text()), &info) == nil {
				info.Seen = until - driver.Instant(info.TTL)
			}
			info.Name, info.Until = name, until
			all = append(all, info.Member)
		}
	}, append(args, len(b.partitions)))
	slices.SortFunc(all, func(a, b driver.Member) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// lister implements [driver.Lister].
type lister struct{ s *Store }

// Queues scans the keys of each master, in small steps.
func (l lister) Queues(ctx context.Context) ([]string, error) {
	s := l.s
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	names := []string{}
	collect := func(ctx context.Context, master *redis.Client) error {
		keys := master.ScanType(ctx, 0, queueKey(s.options.Prefix, "*", "meta"), 1000, "hash").Iterator()
		for keys.Next(ctx) {
			state, err := s.client.HGet(ctx, keys.Val(), "deleted").Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			name := strings.TrimSuffix(strings.TrimPrefix(keys.Val(), s.options.Prefix+":{"), "}:meta")
			if state != "done" && !strings.ContainsAny(name, "{}:") { // not a key of another program
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
			}
		}
		return keys.Err()
	}
	_, err := within(ctx, func() (any, error) {
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			return nil, cluster.ForEachMaster(ctx, collect)
		}
		return nil, collect(ctx, s.client.(*redis.Client)) //nolint:errcheck // New accepts no other type
	})
	if err != nil {
		return nil, failure(ctx, "list the queues", err)
	}
	slices.Sort(names)
	return slices.Compact(names), nil // a key is on two masters while its slot moves
}

// DeleteQueue deletes one partition after another, and leaves notes: see the package comment.
func (l lister) DeleteQueue(ctx context.Context, queue string) error {
	partitions, created := 0, ""
	b := newBackend(l.s, driver.Config{Queue: queue, Partitions: contract.MaxPartitions}, meta{}, false, false)
	read := func(r *reply) { partitions, created = int(r.number()), r.text() }
	err := l.s.run(ctx, b.queue, deleteQueueScript, read, []any{formatVersion, false})
	for part := 0; part < min(partitions, contract.MaxPartitions) && err == nil; part++ {
		err = b.ask(ctx, part, deleteScript, func(*reply) {}, created)
	}
	if err == nil {
		err = l.s.run(ctx, b.queue, deleteQueueScript, read, []any{formatVersion, true, created})
	}
	return err
}
