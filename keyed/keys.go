package keyed

import (
	"iter"
	"slices"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// Keys is a set of keys, each with its own timeout. Make one with [New]. All methods may be called
// at any time from any goroutine, including from the expire function.
//
// The wheel decides when a key expires: a key is present until the wheel has removed it for the
// expire function. Until then a Set or Touch is in time, even if the deadline has passed. After
// Stop the set is empty, and methods that add keys do nothing.
type Keys[K comparable] struct {
	table[K, struct{}]
	expire func(keys []K)
}

// New returns a running set without keys. No goroutine runs while the set is empty. Errors come
// from [timingwheel.New]. New panics if expire is nil.
//
// Keys whose deadlines have passed are removed and then passed to expire, in batches of 1 to 256
// keys. A batch is never delayed to fill it. The slice is valid only during the call.
// [timingwheel.Options.Executor] determines where expire runs. Several calls may run concurrently,
// and no lock is held. A panic or runtime.Goexit in expire loses at most the rest of its slice.
// [timingwheel.Options.OnPanic] applies.
func New[K comparable](opts timingwheel.Options, expire func(keys []K)) (*Keys[K], error) {
	if expire == nil {
		panic("keyed: New with a nil function")
	}
	k := &Keys[K]{expire: expire}
	if err := k.init(opts, expire, k.sweep); err != nil {
		return nil, err
	}
	return k, nil
}

// Set makes key expire d from now, or up to one tick later, but never earlier. If key is absent,
// Set adds it. If key is present, Set replaces its deadline. Set reports whether it added key. If d
// is zero or negative, key expires immediately. If d is beyond the clock's range, key never
// expires.
//
// A call to Set that races with the expiry of key comes either first or second. If it comes first,
// it returns false, and key is not reported before its new deadline. If it comes second, it adds
// key again and returns true, and key is reported twice, once per call to Set. After Stop, Set
// returns false and does nothing. Set panics if key is not equal to itself (NaN).
//
// For a present key Set costs as much as Touch. Adding a key takes one allocation and is O(1)
// amortised, because the map grows.
func (k *Keys[K]) Set(key K, d time.Duration) bool {
	entries := k.entries.Load()
	if entries == nil {
		k.mustBeInitialized()
		return false
	}
	if e, ok := entries.Load(key); ok && e.timer.Reschedule(d) {
		return false
	}
	return k.setSlow(entries, key, expiry{after: d})
}

// SetAt is [Keys.Set] with a point in time instead of a duration. If t has passed, key expires
// immediately. A wall-clock time is converted as in [timingwheel.TimingWheel.AtFunc].
func (k *Keys[K]) SetAt(key K, t time.Time) bool {
	entries := k.entries.Load()
	if entries == nil {
		k.mustBeInitialized()
		return false
	}
	if e, ok := entries.Load(key); ok && e.timer.RescheduleAt(t) {
		return false
	}
	return k.setSlow(entries, key, expiry{at: t, fixed: true})
}

// Touch moves the deadline of a present key to d from now and reports whether key is present. If
// key is absent, Touch does nothing. If d is zero or negative, key expires immediately.
//
// A call to Touch that races with the expiry of key either comes first, and then key is not
// reported before its new deadline, or returns false. After Stop, Touch returns false. Touch
// allocates only if the wheel has already claimed the key's timer and Touch still comes before the
// expiry. O(1).
func (k *Keys[K]) Touch(key K, d time.Duration) bool {
	entries := k.entries.Load()
	if entries == nil {
		return false
	}
	e, ok := entries.Load(key)
	if !ok {
		return false
	}
	return e.timer.Reschedule(d) || k.touchSlow(entries, key, expiry{after: d})
}

// TouchAt is [Keys.Touch] with a point in time instead of a duration. If t has passed, key expires
// immediately. A wall-clock time is converted as in [timingwheel.TimingWheel.AtFunc].
func (k *Keys[K]) TouchAt(key K, t time.Time) bool {
	entries := k.entries.Load()
	if entries == nil {
		return false
	}
	e, ok := entries.Load(key)
	if !ok {
		return false
	}
	return e.timer.RescheduleAt(t) || k.touchSlow(entries, key, expiry{at: t, fixed: true})
}

// Delete removes key and reports whether it did. If so, key is not reported unless it is set again.
// Delete returns false if key was never set, was deleted, or has been removed for the expire
// function. If several goroutines delete a key concurrently, exactly one call returns true. After
// Stop, Delete returns false. O(1) amortised. The memory of a key and its timer is released
// immediately, and the memory of the map's table once most of its keys are gone.
func (k *Keys[K]) Delete(key K) bool {
	entries := k.entries.Load()
	if entries == nil {
		return false
	}
	e, present := entries.LoadAndDelete(key)
	if present {
		e.timer.Stop() // false: the timer has been claimed, and its sweep will not find the key
	}
	return present
}

// Has reports whether key is present, that is, set and neither deleted nor removed for the expire
// function. After Stop, Has returns false. O(1), lock-free.
func (k *Keys[K]) Has(key K) bool {
	entries := k.entries.Load()
	if entries == nil {
		return false
	}
	_, ok := entries.Load(key)
	return ok
}

// Deadline returns the time at which key expires, rounded up to a tick. It returns the zero time
// and false if key is absent or the wheel has claimed its timer, and always after Stop. O(1),
// lock-free.
func (k *Keys[K]) Deadline(key K) (time.Time, bool) {
	entries := k.entries.Load()
	if entries == nil {
		return time.Time{}, false
	}
	e, ok := entries.Load(key)
	if !ok {
		return time.Time{}, false
	}
	return e.timer.Deadline()
}

// All returns an iterator over the keys that are present and their deadlines, in no particular
// order. It omits keys whose timers the wheel has claimed. The iterator takes no snapshot: it may
// or may not yield a key that is added, deleted or expires during the loop. It yields no key twice,
// and misses no key that is present throughout. No lock is held in the body of the loop, which may
// call any method. Stop ends the loop. O(n).
func (k *Keys[K]) All() iter.Seq2[K, time.Time] {
	return func(yield func(K, time.Time) bool) {
		entries := k.entries.Load()
		if entries == nil {
			return
		}
		for key, e := range entries.All() {
			deadline, pending := e.timer.Deadline()
			if !pending { // e may have been replaced since the map returned it
				deadline, pending = k.Deadline(key)
			}
			if pending && !yield(key, deadline) {
				return
			}
		}
	}
}

// putSlow is the slow path of Set, or of Touch if add is false: the key was not found, or its timer
// has been claimed. The result was reports whether the key was present, and done whether the key
// has the new deadline.
func (k *Keys[K]) putSlow(entries *entryMap[K, struct{}], key K, when expiry, add bool) (was, done bool) {
	if add {
		mustEqualItself(key)
	}
	entries.Compute(key, func(e entry[struct{}], present bool) (entry[struct{}], xsync.ComputeOp) {
		was = present
		if !present && !add {
			return e, xsync.CancelOp
		}
		if present && when.reschedule(e.timer) { // another call has armed a timer meanwhile
			done = true
			return e, xsync.CancelOp
		}
		if e.timer = arm(k.wheel, key, when); e.timer == (timingwheel.Timer{}) {
			return e, xsync.CancelOp // the wheel has been stopped
		}
		done = true
		return e, xsync.UpdateOp
	})
	return was, done
}

// setSlow is putSlow for Set: it reports whether the key is new.
func (k *Keys[K]) setSlow(entries *entryMap[K, struct{}], key K, when expiry) bool {
	was, done := k.putSlow(entries, key, when, true)
	return done && !was
}

// touchSlow is putSlow for Touch: it reports whether the key is present and has the new deadline.
func (k *Keys[K]) touchSlow(entries *entryMap[K, struct{}], key K, when expiry) bool {
	_, done := k.putSlow(entries, key, when, false)
	return done
}

// sweep removes the keys of a claimed batch from the map and reports them.
func (k *Keys[K]) sweep(claimed []K) {
	entries := k.entries.Load()
	if entries == nil {
		return
	}
	expired := slices.DeleteFunc(claimed, func(key K) bool {
		_, taken := k.removeClaimed(entries, key)
		return !taken
	})
	if len(expired) > 0 {
		k.expire(slices.Clip(expired))
	}
}

// postponeClaimed lets key expire at t if its timer has been claimed.
func (k *Keys[K]) postponeClaimed(key K, t time.Time) {
	entries := k.entries.Load()
	if entries == nil {
		return
	}
	entries.Compute(key, func(e entry[struct{}], present bool) (entry[struct{}], xsync.ComputeOp) {
		if _, pending := e.timer.Deadline(); !present || pending {
			return e, xsync.CancelOp
		}
		if e.timer = k.wheel.AddAt(t, key); e.timer == (timingwheel.Timer{}) {
			return e, xsync.CancelOp // the wheel has been stopped
		}
		return e, xsync.UpdateOp
	})
}

// expiry is the time at which a key expires: a duration from now, which costs one reading of the
// clock and no time.Time, or a fixed time.
type expiry struct {
	after time.Duration
	at    time.Time
	fixed bool
}

// reschedule moves a pending timer to the expiry.
func (x expiry) reschedule(t timingwheel.Timer) bool {
	if x.fixed {
		return t.RescheduleAt(x.at)
	}
	return t.Reschedule(x.after)
}

// arm arms a timer for key. It returns the zero Timer if the wheel is stopped.
func arm[K comparable](w *timingwheel.Timeouts[K], key K, when expiry) timingwheel.Timer {
	if when.fixed {
		return w.AddAt(when.at, key)
	}
	return w.Add(when.after, key)
}
