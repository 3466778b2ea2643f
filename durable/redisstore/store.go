// Package redisstore stores the queues of package durable on Redis: on a single server, behind
// Sentinel, or on a Cluster. The package needs Redis 6.2 or later, or a compatible server. A
// program passes its client to [New] and the [Store] to durable.Open.
//
// Each transition is one script, so it takes effect as a whole or not at all. Each partition has
// its own hash tag, which all its keys share, so the partitions of a queue spread over the nodes of
// a Cluster. Only the server's clock decides whether a message is due.
//
// # Keys
//
// With the prefix tw, the queue orders and its partition 3:
//
//	tw:{orders:3}:m       hash: id → record: times, attempt limit, body; never changes
//	tw:{orders:3}:s       hash: id → state, for messages that were ever claimed, moved or buried, or
//	                      are recurring
//	tw:{orders:3}:d       sorted set: scheduled messages by due time; negative if unreadable
//	tw:{orders:3}:l       sorted set: leased and firing messages by the end of the lease
//	tw:{orders:3}:x       sorted set: dead letters by the time of death
//	tw:{orders:3}:c       hash: counters, the last token, each producer's last call, which it may
//	                      repeat, the last claim by each of up to 16 consumers, lost keys
//	tw:{orders:3}:h       channel of hints
//	tw:{orders}:meta      hash: version, partitions, limits, when the queue was created, whether all
//	                      of its partitions exist
//	tw:{orders}:members   sorted set: consumers by the time at which they expire; '' by the time
//	                      of the last heartbeat
//	tw:{orders}:hosts     hash: consumer → the JSON of a [driver.Member]
//
// No key has a time to live, except for notes that DeleteQueue leaves for 30 days to tell processes
// that have the queue open that it was deleted. Open creates the keys of a partition, and they are
// never empty: each hash has a field, and each set a member, that is not a message. A Cluster
// therefore does not reject scripts for missing keys while it moves a slot, and a claim notices
// keys that were lost.
//
// A Cluster moves a partition between nodes as a whole and blocks both nodes meanwhile. On a
// Cluster, [Options].PartitionMessages and [Options].PartitionBytes therefore limit a partition.
//
// # Server settings
//
//   - maxmemory-policy noeviction: see [Options].AllowEviction. If the memory is full, Put returns
//     [driver.ErrFull] and stores nothing. All other transitions succeed, so consumers can empty
//     the queue.
//   - appendonly yes: see [Options].AllowLossOnCrash. With appendfsync always, a crash loses
//     nothing that was acknowledged; with everysec, up to two seconds.
//   - Open checks these settings on masters and replicas, and an open queue checks them once a
//     minute. A setting that the server does not show to the client's user is not checked.
//   - A failover may lose the last writes of the old master, because replication is asynchronous.
//     See [Options].Wait for the changes that a failover may undo. Tokens still rise, because they
//     are taken from the clock.
//
// # Permissions
//
// If an ACL restricts the client's user, that user needs:
//
//   - EVAL, EVALSHA, EXISTS, TYPE, TIME and the commands on hashes and sorted sets;
//   - SCAN, UNLINK and EXPIRE, to list and delete queues;
//   - INFO and CONFIG GET, without which the servers are not checked;
//   - WAIT if Options.Wait is set, which Open checks; on a Cluster, ASKING while slots move;
//   - for hints, SUBSCRIBE and PUBLISH (SSUBSCRIBE and SPUBLISH on a Cluster) and access to the
//     channels, without which the queue reports once that hints are off;
//   - PING, without which a silent subscription is renewed every ten seconds, and UNSUBSCRIBE
//     (SUNSUBSCRIBE), without which an unneeded subscription may remain while others exist.
package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Store is a [driver.Store] and [driver.Lister] on Redis, made by [New]. A Store is safe for
// concurrent use. A zero Store is not usable: Open returns [driver.ErrInvalid].
type Store struct {
	queues
	client  redis.UniversalClient
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	hub     hub
}

type queues = driver.Lister

var _ driver.Store = (*Store)(nil)

// New returns a store that uses a client. The caller still owns the client, and closes it after the
// store. New does no I/O. It returns [driver.ErrInvalid] for invalid options, and for any client
// but a *redis.Client or a *redis.ClusterClient that reads from masters. Others may use servers
// without the partition: a redis.Ring uses another shard while one does not answer.
//
// The client may retry commands by itself (MaxRetries), because transitions with a token are
// idempotent. Claims, calls that end a lease and calls without a token are exempt: only the queue
// retries these, so that it knows how many copies there are. The client's ReadTimeout limits how
// long a server that does not answer delays a call.
//
// A call returns when its context ends, with or without the client's ContextTimeoutEnabled. The
// connection of an abandoned call stays in use until the answer arrives or ReadTimeout has passed.
func New(client redis.UniversalClient, options Options) (*Store, error) {
	o, err := options.withDefaults()
	if err := cmp.Or(err, checkClient(client)); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	s := &Store{client: client, options: o}
	s.queues, s.hub = lister{s}, hub{store: s, do: make(chan func() error)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// checkClient returns an error for a client that New does not accept.
func checkClient(client redis.UniversalClient) error {
	single, _ := client.(*redis.Client)
	cluster, _ := client.(*redis.ClusterClient)
	if single != nil || cluster != nil && !cluster.Options().ReadOnly { // RouteByLatency and RouteRandomly set ReadOnly
		return nil
	}
	return fmt.Errorf("%w client of type %T; it must be a *redis.Client, or a *redis.ClusterClient "+
		"without ReadOnly, RouteByLatency and RouteRandomly, and not nil", driver.ErrInvalid, client)
}

// Close ends the watches of the store, and all later calls return [driver.ErrClosed]. Calls in
// progress continue. The client stays open. Close returns nil, and a second Close does nothing.
func (s *Store) Close() error {
	if s.cancel != nil {
		s.cancel()
	}
	return nil
}

// usable returns an error if the store is not open or ctx has ended.
func (s *Store) usable(ctx context.Context) error {
	if s.ctx == nil {
		return fmt.Errorf("redisstore: %w store: it is zero; it must be made by New",
			driver.ErrInvalid)
	}
	if s.ctx.Err() != nil {
		return fmt.Errorf("redisstore: the store is %w", driver.ErrClosed)
	}
	return context.Cause(ctx)
}

// Options are the options for [New]. The zero value of each field means its default. New returns
// [driver.ErrInvalid] for values below the minimum, which is 0 unless the field names another.
type Options struct {
	// Prefix is the beginning of all keys and channels: 1 to 128 letters, digits, '.', '_', '-' or
	// ':'. The default is "tw".
	Prefix string

	// AllowEviction lets Open accept a server whose maxmemory-policy applies to all keys
	// ("allkeys-lru" and others). Such a server may remove whole partitions when its memory is
	// full. The queue reports this, but stays healthy. A policy whose name begins with "volatile"
	// removes no messages, because their keys have no time to live, and is always accepted.
	AllowEviction bool

	// AllowLossOnCrash lets Open accept a server that may lose more than the last two seconds of
	// changes in a crash. Without an append-only file (appendonly no), a crash loses the changes
	// since the last snapshot, or all messages if there are no snapshots. With appendfsync no, a
	// crash of the machine loses the writes that the system has not yet written to the disk.
	//
	// The option is for tests, and for managed servers that persist messages by other means but
	// report that they have no append-only file.
	AllowLossOnCrash bool

	// PartitionMessages is the number of messages, dead letters included, at which a partition is
	// full: Put then returns [driver.ErrFull]. The limit shortens the time for which a Cluster
	// blocks two nodes while it moves a partition. A queue with more messages needs more
	// partitions. The default is 500,000 on a Cluster, and no limit on other servers.
	PartitionMessages int

	// PartitionBytes is the size of the records, in bytes, at which a partition is full. A record
	// has 19 bytes and a body. The sum is estimated from a sample of 128 records, unless all bodies
	// are so small that the sum cannot reach the limit. A single message may be larger. The default
	// is 128 MiB on a Cluster, and no limit on other servers.
	PartitionBytes int64

	// Wait is the number of replicas that must have a change before the call returns. The store
	// sends WAIT on the call's connection. Wait covers the calls whose result the caller relies on:
	// Put, Cancel, Reschedule, Replay, Purge and Pause. A result such as [driver.StatusDuplicate]
	// waits for the earlier changes that it depends on. If fewer replicas have the changes within
	// WaitTimeout, the call returns [driver.ErrUnavailable], although it has taken effect on the
	// master. The queue retries such a call, and the retry waits again.
	//
	// Other changes, such as claims, begins, acknowledgements, retries and burials, do not wait. If
	// a failover undoes them, their messages are delivered again.
	//
	// With Wait a failover is less likely to lose changes by calls that have returned. Wait is not
	// consensus: an isolated master may still be replaced by a replica without the last writes.
	// While a master has too few replicas, Queue.Healthy names that master. Zero means no replica.
	Wait int

	// WaitTimeout is the maximum time for which a change waits for replicas. It must be shorter
	// than the client's ReadTimeout, which Open checks. The default is one second, and the minimum
	// is one millisecond.
	WaitTimeout time.Duration
}

const (
	clusterPartitionMessages = 500_000
	clusterPartitionBytes    = 128 << 20
)

// validPrefix has no braces: the first braces of a key must enclose the hash tag.
var validPrefix = regexp.MustCompile(`^[a-zA-Z0-9._:-]{1,128}$`)

func (o Options) withDefaults() (Options, error) {
	o.Prefix, o.WaitTimeout = cmp.Or(o.Prefix, "tw"), cmp.Or(o.WaitTimeout, time.Second)
	switch {
	case o.PartitionMessages < 0 || o.PartitionBytes < 0:
		return o, fmt.Errorf("%w Options.PartitionMessages %d or PartitionBytes %d; they must be at least 1, or 0 for the default",
			driver.ErrInvalid, o.PartitionMessages, o.PartitionBytes)
	case !validPrefix.MatchString(o.Prefix):
		return o, fmt.Errorf("%w Options.Prefix %.140q; it must be 1 to 128 letters, digits, '.', '_', '-' and ':'",
			driver.ErrInvalid, o.Prefix)
	case o.Wait < 0:
		return o, fmt.Errorf("%w Options.Wait %d; it must be 0 or more replicas", driver.ErrInvalid, o.Wait)
	case o.WaitTimeout < time.Millisecond: // to WAIT, 0 means no timeout
		return o, fmt.Errorf("%w Options.WaitTimeout %v; it must be at least 1ms, or 0 for one second",
			driver.ErrInvalid, o.WaitTimeout)
	}
	return o, nil
}
