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

	// AllowEviction lets Open go on where the server's maxmemory-policy is not noeviction. With a policy for all keys the server may then remove
	// whole partitions when its memory is full. Keys of a queue never have a time to live, so a policy whose name begins
	// with "volatile" leaves them alone.
	AllowEviction bool

	// Wait is the number of replicas that must have a change before the caller gets its answer, by WAIT on the same
	// connection. It covers the changes whose answer is a promise: Put, Cancel, Reschedule and Replay. If fewer replicas
	// have the change within WaitTimeout, the call is [driver.ErrUnavailable], though it has taken place on the master.
	//
	// The other changes do not wait, and a failover may undo them: a claim, a beginning, an acknowledgement, a retry, a
	// dead letter, or the purge of one. Their messages are delivered again, or are dead letters again.
	//
	// Wait makes it less likely that a failover loses what was answered. It is no consensus: a master that is cut off may
	// still be replaced by a replica without the last writes. 0: no replicas. Negative is an error.
	Wait int

	// WaitTimeout bounds that waiting. It has to be shorter than the ReadTimeout of the client. Defaults to one second, at least a millisecond.
	WaitTimeout time.Duration
}

const maxPrefix = 128

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = "tw"
	}
	if o.WaitTimeout == 0 {
		o.WaitTimeout = time.Second
	}
	switch {
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
