package keyed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// ErrTimeout is wrapped by the error of [NewHeartbeats] for a timeout that is not positive.
var ErrTimeout = errors.New("keyed: bad timeout")

// Heartbeats watches members that have to give a sign of life now and then: each has the same timeout, which every beat begins anew.
// Make one with [NewHeartbeats]. All methods may be called at any time from any goroutine, the expire function included, unless they
// say otherwise.
type Heartbeats[K comparable] struct {
	keys    *Keys[K]
	timeout time.Duration
}

// NewHeartbeats returns a running set without members. A member that has not beaten for the timeout, or up to one tick longer, is
// taken out and given to expire, see [New]. The error wraps [ErrTimeout] where timeout is zero or negative; others are those of
// [timingwheel.New]. It panics where expire is nil.
func NewHeartbeats[K comparable](opts timingwheel.Options, timeout time.Duration, expire func(keys []K)) (*Heartbeats[K], error) {
	if expire == nil {
		panic("keyed: NewHeartbeats with a nil function")
	}
	if timeout <= 0 {
		return nil, fmt.Errorf("%w: it is %v; accepted is a positive duration", ErrTimeout, timeout)
	}
	keys, err := New(opts, expire)
	if err != nil {
		return nil, err
	}
	return &Heartbeats[K]{keys: keys, timeout: timeout}, nil
}

// Beat gives key its whole timeout again. It returns true where key was not a member and is one now: it is new, or has been reported
// since its last beat. It is [Keys.Set]: a beat that comes before the member has been taken out is in time. On a stopped set it
// returns false and does nothing. For a member it allocates nothing. O(1).
func (h *Heartbeats[K]) Beat(key K) bool { return h.keys.Set(key, h.timeout) }

// Touch is Beat for members only: it returns true where key is one, and otherwise does nothing. So whoever has been reported stays
// out. O(1).
func (h *Heartbeats[K]) Touch(key K) bool { return h.keys.Touch(key, h.timeout) }

// Leave takes key out and returns true: it will not be reported, unless it beats again. See [Keys.Delete].
func (h *Heartbeats[K]) Leave(key K) bool { return h.keys.Delete(key) }

// Alive reports whether key is a member, see [Keys.Has].
func (h *Heartbeats[K]) Alive(key K) bool { return h.keys.Has(key) }

// Deadline returns when key will be reported unless it beats, see [Keys.Deadline].
func (h *Heartbeats[K]) Deadline(key K) (time.Time, bool) { return h.keys.Deadline(key) }

// Timeout returns the timeout of all members.
func (h *Heartbeats[K]) Timeout() time.Duration { return h.timeout }

// Len returns the number of members, see [Keys.Len].
func (h *Heartbeats[K]) Len() int { return h.keys.Len() }

// All iterates over the members and their deadlines, see [Keys.All].
func (h *Heartbeats[K]) All() iter.Seq2[K, time.Time] { return h.keys.All() }

// Stop is [Keys.Stop].
func (h *Heartbeats[K]) Stop() { h.keys.Stop() }

// Shutdown is [Keys.Shutdown].
func (h *Heartbeats[K]) Shutdown(ctx context.Context) error { return h.keys.Shutdown(ctx) }

// Stats is [Keys.Stats].
func (h *Heartbeats[K]) Stats() timingwheel.Stats { return h.keys.Stats() }

// WriteProfile is [Keys.WriteProfile].
func (h *Heartbeats[K]) WriteProfile(w io.Writer) error { return h.keys.WriteProfile(w) }

// Occupancy is [Keys.Occupancy].
func (h *Heartbeats[K]) Occupancy() timingwheel.Occupancy { return h.keys.Occupancy() }

// Now is [Keys.Now].
func (h *Heartbeats[K]) Now() time.Time { return h.keys.Now() }

// Advance is [Keys.Advance].
func (h *Heartbeats[K]) Advance(now time.Time) int { return h.keys.Advance(now) }

// Next is [Keys.Next].
func (h *Heartbeats[K]) Next() (time.Time, bool) { return h.keys.Next() }
