package redisstore

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

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
