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

	// Wait is the number of replicas that each Put waits for, by WAIT on the same connection. Where fewer have it within WaitTimeout the call
	// is [driver.ErrUnavailable], though the messages are stored. This makes it less likely that a failover loses what was
	// acknowledged; it is no consensus: a master that is cut off may have its replicas promoted without the last writes all the same.
	// 0: none. Negative is an error.
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
