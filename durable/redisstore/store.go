// Package redisstore keeps the queues of package durable on Redis: on one server, on one behind Sentinel, or on a Cluster. Redis 6.2 or
// later is needed, or a server that is compatible with it.
//
// Each transition is one script, so it takes place as a whole or not at all. All keys of a partition have the same hash tag, so
// the partitions of a queue spread over the nodes of a Cluster. The server's clock alone decides what is due.
//
// # Keys
//
// With the prefix tw, the queue orders and its partition 3:
//
//	tw:{orders:3}:m   hash: id → record, which never changes: times, limit of attempts, body
//	tw:{orders:3}:s   hash: id → state, of messages that were ever claimed, moved or buried
//	tw:{orders:3}:d   sorted set: scheduled messages by due time, negative for those that cannot be read
//	tw:{orders:3}:l   sorted set: leased and firing messages by the end of the lease
//	tw:{orders:3}:x   sorted set: dead letters by the time of death
//	tw:{orders:3}:c   hash: counters, the last token, the last call of each producer that may come
//	                  again, the last claim of up to 16 consumers
//	tw:{orders:3}:h   channel of hints
//	tw:{orders}:meta      hash: version, partitions
//	tw:{orders}:members   sorted set: consumers by the time at which they are gone; '' by the time of the last heartbeat
//	tw:{orders}:hosts     hash: consumer → host, process, partitions
//
// No key has a time to live. The keys of a partition are made by Open and are never empty: each hash has a field, and each
// set a member, that is no message. So a Cluster does not refuse scripts for missing keys while a slot moves.
//
// A partition is moved between the nodes of a Cluster as a whole, and blocks both meanwhile. [Options.PartitionMessages] and
// [Options.PartitionBytes] bound it.
//
// # What the server must be set up for
//
//   - maxmemory-policy noeviction, see [Options.AllowEviction]. When the memory is full, Put is [driver.ErrFull] and stores
//     nothing; all other transitions go on, so that what is queued can be worked off.
//   - appendonly yes, see [Options.AllowLossOnCrash]: with appendfsync always nothing that was acknowledged is lost in a
//     crash, with everysec up to two seconds are.
//   - Open checks both, on masters and replicas, and an open queue checks them once a minute. A setting that the server
//     does not tell to the user of the client is not checked.
//   - A failover may lose the last writes of the old master, as replication is asynchronous; [Options.Wait] tells what a
//     failover may undo. Tokens are taken from the clock, so they rise all the same.
//
// A user of the client who is restricted by ACL needs the commands EVAL, EVALSHA, EXISTS, TYPE, TIME and those on hashes and sorted sets; INFO
// and CONFIG GET, without which the servers cannot be checked; WAIT if it is used; and for hints SUBSCRIBE and PUBLISH (SSUBSCRIBE and
// SPUBLISH on a Cluster) with the channels, and PING, without which a silent subscription is made anew every ten seconds.
package redisstore

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Store is a [driver.Store] on Redis. Its methods may be called from many goroutines.
type Store struct {
	client  redis.UniversalClient
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
}

var _ driver.Store = (*Store)(nil)

// New returns a store that works through a client, which the caller keeps and closes after the store. It does no I/O. Without a client or
// with invalid options it is [driver.ErrInvalid].
//
// The client may retry commands by itself (MaxRetries): every transition with a token may be repeated. Of the others, and Ack, the client is
// told not to: the queue repeats them itself and knows how many copies there are. Its ReadTimeout bounds how long a server that does not
// answer holds up a call.
//
// A call returns when its context ends, whether the client has ContextTimeoutEnabled or not. The connection of a call that
// was left behind stays in use until the server answers or the ReadTimeout is over.
func New(client redis.UniversalClient, options Options) (*Store, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("redisstore: %w client: it is nil", driver.ErrInvalid)
	}
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	s := &Store{client: client, options: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the watches of the store and makes all later calls [driver.ErrClosed]. Calls under way end as they would. The client stays
// open. A second Close does nothing.
func (s *Store) Close() error {
	if s.cancel != nil {
		s.cancel()
	}
	return nil
}

// usable is the reason for which a call must not be made.
func (s *Store) usable(ctx context.Context) error {
	if s.ctx == nil {
		return fmt.Errorf("redisstore: %w store: it was not made by New", driver.ErrInvalid)
	}
	if s.ctx.Err() != nil {
		return fmt.Errorf("redisstore: the store is %w", driver.ErrClosed)
	}
	return context.Cause(ctx)
}

// Options are those of [New]. The zero value of each field stands for its default.
type Options struct {
	// Prefix is what all keys and channels begin with, 1 to 128 letters, digits, '.', '_', '-' or ':'. Defaults to "tw".
	Prefix string

	// AllowEviction lets Open go on if the maxmemory-policy of a server is one for all keys ("allkeys-lru" and others). The
	// server may then remove whole partitions when its memory is full. Keys of a queue never have a time to live, so a
	// policy whose name begins with "volatile" leaves them alone and is accepted without this option.
	AllowEviction bool

	// AllowLossOnCrash lets Open go on if a crash of a server loses more than the last two seconds. Without an append-only
	// file (appendonly no) a crash loses what was stored since the last snapshot, or everything if there are no snapshots.
	// With appendfsync no, a crash of the machine loses what the system has not written yet.
	//
	// Set it for tests, and for managed servers that keep messages safe by other means but tell that they have no
	// append-only file.
	AllowLossOnCrash bool

	// PartitionMessages is the number of messages, dead letters included, at which a partition takes no more: Put is
	// [driver.ErrFull] then. A partition is moved between the nodes of a Cluster as a whole, and blocks both meanwhile.
	// Defaults to 500,000. A queue that has to hold more has to have more partitions.
	PartitionMessages int

	// PartitionBytes is likewise the sum of the bytes of its records, which are a body and 19 bytes each. It is estimated
	// from a sample of 128 records, unless all bodies are so small that the sum is less anyway. A single message may have
	// more. Defaults to 128 MiB.
	PartitionBytes int64

	// Wait is the number of replicas that must have a change before the caller gets its answer, by WAIT on the same
	// connection. It covers the changes whose answer is a promise: Put, Cancel, Reschedule, Replay and Purge. If fewer
	// replicas have the change within WaitTimeout, the call is [driver.ErrUnavailable], though it has taken place on the
	// master. The queue repeats such a call, which waits again.
	//
	// The other changes do not wait, and a failover may undo them: a claim, a beginning, an acknowledgement, a retry or a
	// dead letter. Their messages are delivered again.
	//
	// Wait makes it less likely that a failover loses what was answered. It is no consensus: a master that is cut off may
	// still be replaced by a replica without the last writes. 0: no replicas. Negative is an error.
	Wait int

	// WaitTimeout bounds that waiting. It has to be shorter than the ReadTimeout of the client. Defaults to one second, at least a millisecond.
	WaitTimeout time.Duration
}

const (
	maxPrefix                = 128
	defaultPartitionMessages = 500_000
	defaultPartitionBytes    = 128 << 20
)

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = "tw"
	}
	if o.WaitTimeout == 0 {
		o.WaitTimeout = time.Second
	}
	if o.PartitionMessages == 0 {
		o.PartitionMessages = defaultPartitionMessages
	}
	if o.PartitionBytes == 0 {
		o.PartitionBytes = defaultPartitionBytes
	}
	switch {
	case o.PartitionMessages < 0:
		return o, fmt.Errorf("%w Options.PartitionMessages %d: 1 or more are accepted, and 0 for %d",
			driver.ErrInvalid, o.PartitionMessages, defaultPartitionMessages)
	case o.PartitionBytes < 0:
		return o, fmt.Errorf("%w Options.PartitionBytes %d: 1 or more are accepted, and 0 for %d",
			driver.ErrInvalid, o.PartitionBytes, defaultPartitionBytes)
	case !validPrefix(o.Prefix):
		return o, fmt.Errorf("%w Options.Prefix %.140q: 1 to %d letters, digits, '.', '_', '-' and ':' are accepted",
			driver.ErrInvalid, o.Prefix, maxPrefix)
	case o.Wait < 0:
		return o, fmt.Errorf("%w Options.Wait %d: 0 or more replicas are accepted", driver.ErrInvalid, o.Wait)
	case o.WaitTimeout < time.Millisecond: // WAIT takes 0 for no end
		return o, fmt.Errorf("%w Options.WaitTimeout %v: 1ms or more is accepted, and 0 for one second", driver.ErrInvalid, o.WaitTimeout)
	}
	return o, nil
}

// validPrefix leaves out braces above all: those of the hash tag must be the first.
func validPrefix(prefix string) bool {
	ok := len(prefix) <= maxPrefix
	for _, r := range prefix {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' || r == ':')
	}
	return ok
}
