package keyed

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// ErrBadTimeout is wrapped by the errors of [NewHeartbeats] and [NewMap] for a timeout that is not
// positive. No call that timed out returns it.
var ErrBadTimeout = errors.New("keyed: bad timeout")

// Heartbeats watches members that have to give a sign of life now and then. All members have the
// same timeout, which begins anew with each beat. Make one with [NewHeartbeats]. All methods may be
// called at any time from any goroutine, also from the expire function.
type Heartbeats[K comparable] struct {
	*table[K, struct{}]
	keys    *Keys[K]
	timeout time.Duration
}

// NewHeartbeats returns a running set without members. A member that has not beaten for the
// timeout, or up to one tick longer, is taken out and given to expire, see [New]. The error wraps
// [ErrBadTimeout] if timeout is zero or negative. Other errors are those of [timingwheel.New].
// NewHeartbeats panics if expire is nil.
func NewHeartbeats[K comparable](opts timingwheel.Options, timeout time.Duration, expire func(keys []K)) (*Heartbeats[K], error) {
	if expire == nil {
		panic("keyed: NewHeartbeats with a nil function")
	}
	if err := checkTimeout(timeout); err != nil {
		return nil, err
	}
	keys, err := New(opts, expire)
	if err != nil {
		return nil, err
	}
	return &Heartbeats[K]{&keys.table, keys, timeout}, nil
}

func checkTimeout(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("%w: it is %v; accepted is a positive duration", ErrBadTimeout, timeout)
	}
	return nil
}

// Beat gives key its whole timeout again. It returns true if key was not a member and is one now:
// it is new, or has been reported since its last beat. Beat is [Keys.Set]: a beat that comes before
// the member has been taken out is in time. After Stop it returns false and does nothing. For a
// member it allocates nothing. O(1).
func (h *Heartbeats[K]) Beat(key K) bool { return h.keys.Set(key, h.timeout) }

// Touch is Beat for members only: it returns true if key is one, and otherwise does nothing. A
// member that has been reported thus stays out. O(1).
func (h *Heartbeats[K]) Touch(key K) bool { return h.keys.Touch(key, h.timeout) }

// Leave takes key out and returns true: the key is not reported, unless it beats again. See
// [Keys.Delete].
func (h *Heartbeats[K]) Leave(key K) bool { return h.keys.Delete(key) }

// Alive reports whether key is a member, see [Keys.Has].
func (h *Heartbeats[K]) Alive(key K) bool { return h.keys.Has(key) }

// Deadline returns when key will be reported unless it beats, see [Keys.Deadline].
func (h *Heartbeats[K]) Deadline(key K) (time.Time, bool) { return h.keys.Deadline(key) }

// Timeout returns the timeout of all members.
func (h *Heartbeats[K]) Timeout() time.Duration { return h.timeout }

// All iterates over the members and their deadlines, see [Keys.All].
func (h *Heartbeats[K]) All() iter.Seq2[K, time.Time] { return h.keys.All() }
