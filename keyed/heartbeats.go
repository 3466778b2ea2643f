package keyed

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// ErrBadTimeout is wrapped by the errors that [NewHeartbeats] and [NewMap] return for a timeout or
// ttl that is not positive. It does not mean that a call timed out.
var ErrBadTimeout = errors.New("keyed: bad timeout")

// Heartbeats detects members that have stopped sending heartbeats. All members have the same
// timeout, and each beat restarts it. A member is a key that has beaten and has since been neither
// removed by [Heartbeats.Leave] nor reported. Make a Heartbeats with [NewHeartbeats]. All methods
// may be called at any time from any goroutine, including from the expire function.
type Heartbeats[K comparable] struct {
	// Grace gives members time to be heard after the wheel has run late. If the process was stopped
	// or got no processor, beats from live members may still be waiting in its sockets. If the
	// wheel runs more than a quarter of the timeout late, no member is reported until Grace has
	// passed. A wheel that is always that late reports no member. Grace must be set before the
	// first Beat. Zero, the default, and negative values mean no grace.
	//
	// With Grace, the wheel runs four more timers per timeout while there are members, and they
	// count in Stats and Advance. In Manual mode, a large step by Advance counts as late.
	Grace time.Duration

	*table[K, struct{}]
	keys    *Keys[K]
	timeout time.Duration

	mu    sync.Mutex
	probe timingwheel.Timer // pending while there are members, if Grace is positive
	due   time.Time         // the deadline of probe, or zero if there is none
	until time.Time         // no member is reported before
}

// NewHeartbeats returns a running set without members. A member that has not beaten for the
// timeout, or up to one tick longer, is removed and passed to expire: see [New]. If timeout is zero
// or negative, the error wraps [ErrBadTimeout]. Other errors come from [timingwheel.New].
// NewHeartbeats panics if expire is nil.
func NewHeartbeats[K comparable](opts timingwheel.Options, timeout time.Duration, expire func(keys []K)) (*Heartbeats[K], error) {
	if expire == nil {
		panic("keyed: NewHeartbeats with a nil function")
	}
	if err := checkTimeout(timeout); err != nil {
		return nil, err
	}
	h := &Heartbeats[K]{keys: &Keys[K]{expire: expire}, timeout: timeout}
	h.table = &h.keys.table
	if err := h.init(opts, expire, h.sweep); err != nil {
		return nil, err
	}
	return h, nil
}

func checkTimeout(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("%w: %v; it must be positive", ErrBadTimeout, timeout)
	}
	return nil
}

// Beat restarts the timeout of key. If key is not a member, because it is new, has left or was
// reported, Beat adds it. Beat reports whether it added key. As with [Keys.Set], a heartbeat that
// comes after the deadline, but before the wheel has removed the member, is in time. After Stop,
// Beat returns false and does nothing. For a member it rarely allocates. O(1).
func (h *Heartbeats[K]) Beat(key K) bool {
	added := h.keys.Set(key, h.timeout)
	if added && h.Grace > 0 {
		h.check()
	}
	return added
}

// Touch is [Heartbeats.Beat] for members only: if key is a member, Touch restarts its timeout.
// Otherwise it does nothing, so a member that has been reported stays out. Touch reports whether
// key is a member. After Stop, Touch returns false. O(1).
func (h *Heartbeats[K]) Touch(key K) bool { return h.keys.Touch(key, h.timeout) }

// Leave removes key and reports whether it did. If so, key is not reported unless it beats again.
// See [Keys.Delete].
func (h *Heartbeats[K]) Leave(key K) bool { return h.keys.Delete(key) }

// Alive reports whether key is a member. See [Keys.Has].
func (h *Heartbeats[K]) Alive(key K) bool { return h.keys.Has(key) }

// Deadline returns the time, rounded up to a tick, at which key is reported unless it beats first.
// It returns the zero time and false if key is not a member or the wheel has claimed its timer. See
// [Keys.Deadline].
func (h *Heartbeats[K]) Deadline(key K) (time.Time, bool) { return h.keys.Deadline(key) }

// Timeout returns the timeout for all members, as passed to NewHeartbeats.
func (h *Heartbeats[K]) Timeout() time.Duration { return h.timeout }

// All returns an iterator over the members and their deadlines: see [Keys.All].
func (h *Heartbeats[K]) All() iter.Seq2[K, time.Time] { return h.keys.All() }

// sweep reports the members of a claimed batch, or postpones them if the wheel was late.
func (h *Heartbeats[K]) sweep(claimed []K) {
	if h.Grace > 0 {
		if until, late := h.check(); late {
			for _, key := range claimed {
				h.keys.postponeClaimed(key, until)
			}
			return
		}
	}
	h.keys.sweep(claimed)
}

// check finds out whether the wheel is late, by the deadline of probe. It returns the time before
// which no member may be reported, and whether that time is ahead. It arms probe again if it has
// been claimed and there are members. The first member arms it.
//
// The payload of probe is the zero key. That is harmless: the sweep of a key whose timer was not
// claimed finds nothing to do.
func (h *Heartbeats[K]) check() (until time.Time, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	if !h.due.IsZero() && now.Sub(h.due) > h.timeout/4 {
		h.until = now.Add(h.Grace)
	}
	if _, pending := h.probe.Deadline(); !pending {
		h.due = time.Time{}
		if h.Len() > 0 {
			h.arm(now.Add(h.timeout / 4))
		}
	}
	return h.until, now.Before(h.until)
}

// arm arms probe. mu is held.
func (h *Heartbeats[K]) arm(t time.Time) {
	var key K
	h.due, h.probe = t, h.wheel.AddAt(t, key)
	if deadline, pending := h.probe.Deadline(); pending {
		h.due = deadline // rounded up to a tick
	}
}
