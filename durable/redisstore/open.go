package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// formatVersion is that of the keys and their contents.
const formatVersion = 2

// Open implements [driver.Store]. An older server than Redis 6.2 is [driver.ErrVersion]. One that may evict keys, or loses
// more than two seconds in a crash, is [driver.ErrUnsafe]; the error names each such master and replica, what to set, and
// the option that accepts it.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	b, err := within(ctx, func() (*backend, error) { return s.open(ctx, config) })
	if err != nil {
		return nil, failure(ctx, fmt.Sprintf("open queue %q", config.Queue), err)
	}
	return b, nil
}

func (s *Store) open(ctx context.Context, config driver.Config) (*backend, error) {
	sharded, err := s.checkServers(ctx, membersKey(s.options.Prefix, config.Queue))
	if err != nil {
		return nil, err
	}
	if err := s.checkMeta(ctx, config); err != nil {
		return nil, err
	}
	if config.Partitions, err = s.join(ctx, config); err != nil {
		return nil, err
	}
	b := newBackend(s, config, sharded)
	return b, s.create(ctx, b)
}

// create makes the keys of all partitions that are missing: see create.lua. A partition whose slot is being moved or whose
// server has no memory left is made complete by another Open.
func (s *Store) create(ctx context.Context, b *backend) error {
	pipe := s.client.Pipeline()
	made := make([]*redis.Cmd, len(b.partitions))
	for i, p := range b.partitions {
		made[i] = createScript.command(ctx, true, newLine(p.keys, 0)) // by its text: a pipeline cannot fall back to it
		_ = pipe.Process(ctx, made[i])                                // only queued
	}
	_, _ = pipe.Exec(ctx) // the error is that of the first command
	for i, cmd := range made {
		err := cmd.Err()
		if kind := kindOf(err); err != nil && !errors.Is(kind, driver.ErrUnavailable) && !errors.Is(kind, driver.ErrFull) {
			return s.nameWrongKey(ctx, err, b.partitions[i].keys, partitionTypes)
		}
	}
	return nil
}

// checkMeta makes sure that a queue whose meta key was lost is not made anew with another number of partitions, as messages would be looked for in
// the wrong ones. Whoever names the number makes the key again.
func (s *Store) checkMeta(ctx context.Context, config driver.Config) error {
	if config.Partitions != 0 {
		return nil
	}
	key := metaKey(s.options.Prefix, config.Queue)
	if found, err := s.exists(ctx, key); err != nil || found {
		return err
	}
	if queue, err := s.anyPartition(ctx, config.Queue); err != nil || !queue {
		return err
	}
	if found, err := s.exists(ctx, key); err != nil || found { // somebody has made the queue since: this key first
		return err
	}
	return fmt.Errorf("%w: the key %q is missing, and there are keys of its partitions; open the queue once with the Partitions that it had",
		driver.ErrVersion, key)
}

func (s *Store) exists(ctx context.Context, key string) (bool, error) {
	n, err := s.client.Exists(ctx, key).Result()
	return n > 0, err
}

// anyPartition reports whether there are records of any partition that a queue may have. It is asked once, before a queue is made. It asks for one
// key of each: several would be refused while their slot moves.
func (s *Store) anyPartition(ctx context.Context, queue string) (bool, error) {
	pipe := s.client.Pipeline()
	all := make([]*redis.IntCmd, driver.MaxPartitions)
	for p := range all {
		all[p] = pipe.Exists(ctx, newPartition(s.options.Prefix, queue, p).records)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(found *redis.IntCmd) bool { return found.Val() > 0 }), nil
}

// join makes the queue or finds it, and returns the number of its partitions.
func (s *Store) join(ctx context.Context, config driver.Config) (int, error) {
	key := metaKey(s.options.Prefix, config.Queue)
	v, err := openScript.run(ctx, s.client, append(newLine([]any{key}, 3), formatVersion, config.Partitions, driver.DefaultPartitions))
	if err != nil {
		return 0, err
	}
	r := newReply(v)
	before, version, partitions := r.text(), r.text(), r.text()
	if r.err != nil {
		return 0, r.err
	}
	if before != "none" && before != "hash" {
		return 0, fmt.Errorf("%w: the key %q is a %s; a hash is accepted", driver.ErrVersion, key, before)
	}
	if n, err := strconv.Atoi(version); err != nil || n != formatVersion {
		return 0, fmt.Errorf("%w: the key %q has version %.20q; %d is accepted", driver.ErrVersion, key, version, formatVersion)
	}
	n, err := strconv.Atoi(partitions)
	if err != nil || n < 1 || n > driver.MaxPartitions {
		return 0, fmt.Errorf("%w: the key %q has %.20q partitions; 1 to %d are accepted", driver.ErrVersion, key, partitions, driver.MaxPartitions)
	}
	if config.Partitions != 0 && config.Partitions != n {
		return 0, fmt.Errorf("%w: it has %d, asked for were %d; 0 takes what is there", driver.ErrPartitions, n, config.Partitions)
	}
	return n, nil
}
