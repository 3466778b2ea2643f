package keyed

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// ErrBadTimeout is wrapped by the errors of [NewHeartbeats] and [NewMap] for a timeout or ttl that
// is not positive. It does not mean that a call timed out.
var ErrBadTimeout = errors.New("keyed: bad timeout")

// Heartbeats detects members that have stopped sending heartbeats. All members have the same
// timeout, and each beat restarts it. A member is a key that beats and has been neither removed by
// [Heartbeats.Leave] nor reported. Make a Heartbeats with [NewHeartbeats]. All methods may be
// called at any time from any goroutine, including from the expire function.
type Heartbeats[K comparable] struct {
	*table[K, struct{}]
	keys    *Keys[K]
	timeout time.Duration
}

// NewHeartbeats returns a running set without members. A member that has not beaten for the
// timeout, or up to one tick longer, is removed and passed to expire, see [New]. If timeout is zero
// or negative, the error wraps [ErrBadTimeout]. Other errors are those of [timingwheel.New].
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
		return fmt.Errorf("%w: %v; it must be positive", ErrBadTimeout, timeout)
	}
	return nil
}

// Beat restarts the timeout of key. It adds key if key is not a member, and then returns true: key
// is new, or has been reported since its last beat. For a member Beat returns false. Beat is
// [Keys.Set]: a beat that comes after the deadline, but before the wheel has removed the member, is
// in time. After Stop, Beat returns false and does nothing. For a member it allocates nothing.
// O(1).
func (h *Heartbeats[K]) Beat(key K) bool { return h.keys.Set(key, h.timeout) }

// Touch is [Heartbeats.Beat] for members only: if key is a member, Touch restarts its timeout and
// returns true. Otherwise it returns false and does nothing, so a member that has been reported
// stays out. After Stop, Touch returns false. O(1).
func (h *Heartbeats[K]) Touch(key K) bool { return h.keys.Touch(key, h.timeout) }

// Leave removes the member key and returns true: key is not reported unless it beats again. It
// returns false if key is not a member. See [Keys.Delete].
func (h *Heartbeats[K]) Leave(key K) bool { return h.keys.Delete(key) }

// Alive reports whether key is a member: it has beaten, and has neither left nor been reported. See
// [Keys.Has].
func (h *Heartbeats[K]) Alive(key K) bool { return h.keys.Has(key) }

// Deadline returns the time at which key is reported unless it beats before, rounded up to a tick.
// It returns the zero time and false if key is not a member. See [Keys.Deadline].
func (h *Heartbeats[K]) Deadline(key K) (time.Time, bool) { return h.keys.Deadline(key) }

// Timeout returns the timeout of all members, as passed to NewHeartbeats.
func (h *Heartbeats[K]) Timeout() time.Duration { return h.timeout }

// All returns an iterator over the members and their deadlines, see [Keys.All].
func (h *Heartbeats[K]) All() iter.Seq2[K, time.Time] { return h.keys.All() }
