package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// formatVersion is the version of the keys and their contents.
const formatVersion = 5

// Open creates a queue or joins an existing one, as [driver.Store] describes. It checks the
// servers, creates missing keys, and takes a few round trips, plus several per master and replica.
// If a server is loading its data after a restart, Open waits for it until ctx ends.
//
// Besides the errors that driver.Store lists, Open returns [driver.ErrVersion] for a server older
// than Redis 6.2, [driver.ErrInvalid] if [Options].Wait is set and a master rejects WAIT or
// WaitTimeout is not below the client's ReadTimeout, [driver.ErrUnavailable] if a server does not
// answer, and [driver.ErrUnsafe] if a server may evict keys or a crash loses over two seconds of
// changes; the error names each such server, the required setting, and the option that waives it.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := contract.CheckConfig(config); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	b, err := within(ctx, func() (*backend, error) { return s.openLoaded(ctx, config) })
	if err != nil {
		return nil, failure(ctx, fmt.Sprintf("open queue %q", config.Queue), err)
	}
	return b, nil
}

// openLoaded calls open until the servers have loaded their data, or ctx ends.
func (s *Store) openLoaded(ctx context.Context, config driver.Config) (*backend, error) {
	for {
		b, err := s.open(ctx, config)
		if !errors.Is(err, errLoading) && !redis.IsLoadingError(err) {
			return b, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s *Store) open(ctx context.Context, config driver.Config) (*backend, error) {
	sharded, clustered, err := s.checkServers(ctx, queueKey(s.options.Prefix, config.Queue, "members"), 0)
	if err != nil {
		return nil, err
	}
	if err := s.checkMeta(ctx, config); err != nil {
		return nil, err
	}
	config, meta, err := s.join(ctx, config)
	if err != nil {
		return nil, err
	}
	b := newBackend(s, config, meta, sharded, clustered)
	return b, s.create(ctx, b)
}

// create creates the missing keys of all partitions: see create.lua. It does not fail for a
// partition whose slot is being moved. A later claim creates these keys. When all partitions exist,
// the key of the queue says so, and the next time a partition without keys has lost them.
func (s *Store) create(ctx context.Context, b *backend) error {
	pipe := s.client.Pipeline()
	made := make([]*redis.Cmd, len(b.partitions))
	for i, p := range b.partitions {
		// EVAL, because a pipeline cannot fall back to it.
		made[i] = createScript.command(ctx, true, newLine(p.keys, b.createArgs("")...))
		_ = pipe.Process(ctx, made[i]) // only queued
	}
	_, _ = pipe.Exec(ctx) // the first command has the error
	complete := true
	for i, cmd := range made {
		err := cmd.Err()
		if err != nil && !errors.Is(kindOf(err), driver.ErrUnavailable) {
			return s.nameWrongKey(ctx, err, b.partitions[i].keyGroup)
		}
		complete = complete && err == nil
	}
	if !complete || b.meta.complete {
		return nil
	}
	b.meta.complete = true
	key := queueKey(s.options.Prefix, b.config.Queue, "meta")
	_, _ = completeScript.run(ctx, s.client, newLine([]any{key}, b.meta.created)) // if it fails, the next Open repeats it
	return nil
}

// checkMeta returns an error if the meta key of an existing queue was lost and config does not give
// the number of partitions. With the default number, messages would be looked up in the wrong
// partitions. An Open that gives the number creates the key again.
func (s *Store) checkMeta(ctx context.Context, config driver.Config) error {
	if config.Partitions != 0 {
		return nil
	}
	key := queueKey(s.options.Prefix, config.Queue, "meta")
	for range 2 { // another process may create the queue meanwhile, beginning with this key
		if n, err := s.client.Exists(ctx, key).Result(); err != nil || n > 0 {
			return err
		}
		if queue, err := s.anyPartition(ctx, config.Queue); err != nil || !queue {
			return err
		}
	}
	return fmt.Errorf("%w: the key %q is missing, but partitions of the queue exist; "+
		"open the queue once with its former number of Partitions and its limits", driver.ErrVersion, key)
}

// anyPartition reports whether any possible partition of the queue has records. Open calls it
// before it creates a queue. A Cluster rejects an EXISTS of several keys while their slot moves.
func (s *Store) anyPartition(ctx context.Context, queue string) (bool, error) {
	pipe := s.client.Pipeline()
	all := make([]*redis.IntCmd, contract.MaxPartitions)
	for p := range all {
		all[p] = pipe.Exists(ctx, fmt.Sprint(newPartition(s.options.Prefix, queue, p).keys[0]))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(found *redis.IntCmd) bool { return found.Val() > 0 }), nil
}

// meta is what the key of a queue says.
type meta struct {
	created  string // when the queue was created: see open.lua
	complete bool   // all partitions existed when the queue was opened
}

// join creates the queue or finds it.
func (s *Store) join(ctx context.Context, config driver.Config) (joined driver.Config, m meta, err error) {
	key := queueKey(s.options.Prefix, config.Queue, "meta")
	created := contract.NewConfig(config)
	line := newLine([]any{key}, formatVersion, config.Partitions, config.Existing, config.Update, created.Partitions)
	for _, limit := range slices.Concat(contract.Limits(config), contract.Limits(created)) {
		line = append(line, limit)
	}
	v, err := openScript.run(ctx, s.client, line)
	if err != nil {
		return config, m, err
	}
	r := newReply(v)
	switch before := r.text(); {
	case before == "none" && config.Existing:
		return config, m, fmt.Errorf("%w: there is no key %q", driver.ErrNoQueue, key)
	case before == "deleting":
		return config, m, fmt.Errorf("%w: its deletion was interrupted; delete it again", driver.ErrNoQueue)
	case r.err == nil && before != "none" && before != "hash":
		return config, m, fmt.Errorf("%w: the key %q is a %s; it must be a hash", driver.ErrVersion, key, before)
	}
	version := r.text()
	m.created, m.complete = r.text(), r.text() == "1"
	if r.err == nil && version != strconv.Itoa(formatVersion) {
		return config, m, fmt.Errorf("%w: the key %q has version %.20q; it must be %d", driver.ErrVersion, key, version, formatVersion)
	}
	joined, err = r.join(config)
	if err = cmp.Or(r.err, err); err != nil {
		return config, m, fmt.Errorf("the key %q: %w", key, err)
	}
	return joined, m, nil
}

// join reads the number of partitions and the limits of a queue. JoinConfig rejects damaged ones.
func (r *reply) join(config driver.Config) (driver.Config, error) {
	sizes := make([]int64, 1+len(contract.Limits(config)))
	for i := range sizes {
		sizes[i], _ = strconv.ParseInt(r.text(), 10, 64) // 0 if it is not a number
	}
	return contract.JoinConfig(config, int(min(sizes[0], contract.MaxPartitions+1)), sizes[1:])
}
