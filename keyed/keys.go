package keyed

import (
	"iter"
	"slices"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// Keys is a set of keys, each with a timeout of its own. Make one with [New]. All methods may be
// called at any time from any goroutine, also from the expire function.
type Keys[K comparable] struct {
	table[K, struct{}]
	expire func(keys []K)
}

// New returns a running set without keys. While there are no keys, no goroutine runs. Errors are
// those of [timingwheel.New]. New panics if expire is nil.
//
// Keys whose time is up are taken out and then given to expire, in batches of at most 256 that are
// never held back to fill and never empty. The slice is valid during the call only. expire runs
// where [timingwheel.Options.Executor] says, maybe on several goroutines at once, and without a
// lock. A panic or runtime.Goexit in expire loses at most the rest of its slice.
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

// Set makes key expire d from now, or up to one tick later, never earlier. It adds the key and
// returns true, or, if the key is present, replaces its deadline and returns false. A zero or
// negative d means at once. With a d beyond the range of the clock the key never expires.
//
// A Set of a key that is just expiring either comes first, and then the key is not reported before
// its new deadline, or adds the key anew, and then the key is reported for both. After Stop, Set
// returns false and does nothing. It panics if key is not equal to itself (NaN).
//
// For a present key Set costs as much as Touch. A new key takes an allocation and O(1) amortised,
// as the map grows.
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

// SetAt is Set for a point in time, see [timingwheel.TimingWheel.AtFunc].
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

// Touch makes a present key expire d from now instead, and returns true. If the key is not present,
// it returns false and does nothing. A zero or negative d means at once.
//
// A Touch of a key that is just expiring either comes first, and then the key is not reported
// before its new deadline, or returns false. Touch allocates nothing, unless it comes first after
// the wheel has claimed the key's timer. O(1).
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

// TouchAt is Touch for a point in time, see [timingwheel.TimingWheel.AtFunc].
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

// Delete takes key out and returns true: the key is not reported, unless it is set again. Delete
// returns false if the key is not present: it was never set, was deleted, or has been taken out for
// the expire function. If several goroutines delete a key at once, exactly one call returns true.
// O(1) amortised. The memory of a key and its timer is free at once, the memory of the map when
// most of its keys have gone.
func (k *Keys[K]) Delete(key K) bool {
	entries := k.entries.Load()
	if entries == nil {
		return false
	}
	e, present := entries.LoadAndDelete(key)
	if present {
		e.timer.Stop() // false: it has been claimed, and its batch will not find the key
	}
	return present
}

// Has reports whether key is present: set, and neither deleted nor taken out for the expire
// function. O(1), without a lock.
func (k *Keys[K]) Has(key K) bool {
	entries := k.entries.Load()
	if entries == nil {
		return false
	}
	_, ok := entries.Load(key)
	return ok
}

// Deadline returns when key is to expire, rounded up to a tick. It returns the zero time and false
// if the key is not present, or if its expiry has begun. O(1), without a lock.
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

// All iterates over the keys that are present, with their deadlines, in no particular order. Keys
// whose expiry has begun are left out. All takes no snapshot: a key that is added, deleted or
// expires meanwhile may be seen or not. No key is seen twice, and no key that stays is missed. No
// lock is held in the body of the loop, which may call everything. A Stop ends the loop. O(n).
func (k *Keys[K]) All() iter.Seq2[K, time.Time] {
	return func(yield func(K, time.Time) bool) {
		entries := k.entries.Load()
		if entries == nil {
			return
		}
		for key, e := range entries.All() {
			deadline, pending := e.timer.Deadline()
			if !pending { // the map may show an entry of before, which has been replaced
				deadline, pending = k.Deadline(key)
			}
			if pending && !yield(key, deadline) {
				return
			}
		}
	}
}

// put is Set, or Touch if add is false, for a key that was not found or whose timer has been
// claimed. It reports whether the key was present, and whether it has the new deadline.
func (k *Keys[K]) putSlow(entries *entryMap[K, struct{}], key K, when expiry, add bool) (was, done bool) {
	if add {
		mustEqualItself(key)
	}
	entries.Compute(key, func(e entry[struct{}], present bool) (entry[struct{}], xsync.ComputeOp) {
		was = present
		if !present && !add {
			return e, xsync.CancelOp
		}
		if present && when.reschedule(e.timer) { // another call has armed it meanwhile
			done = true
			return e, xsync.CancelOp
		}
		if e.timer = arm(k.wheel, key, when); e.timer == (timingwheel.Timer{}) {
			return e, xsync.CancelOp // stopped meanwhile
		}
		done = true
		return e, xsync.UpdateOp
	})
	return was, done
}

// add is put for Set: it reports whether the key is new.
func (k *Keys[K]) setSlow(entries *entryMap[K, struct{}], key K, when expiry) bool {
	was, done := k.putSlow(entries, key, when, true)
	return done && !was
}

// save is put for Touch: it reports whether the key was present all the same, and has another
// deadline now.
func (k *Keys[K]) touchSlow(entries *entryMap[K, struct{}], key K, when expiry) bool {
	_, done := k.putSlow(entries, key, when, false)
	return done
}

// sweep takes the keys of a claimed batch out of the map and reports them.
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

// expiry is when a key is to expire: after a duration from now, which takes one reading of the
// clock and no time.Time, or at a fixed time.
type expiry struct {
	after time.Duration
	at    time.Time
	fixed bool
}

// move gives a pending timer another deadline.
func (x expiry) reschedule(t timingwheel.Timer) bool {
	if x.fixed {
		return t.RescheduleAt(x.at)
	}
	return t.Reschedule(x.after)
}

// arm makes a timer for key, or returns the zero Timer if the wheel is stopped.
func arm[K comparable](w *timingwheel.Timeouts[K], key K, when expiry) timingwheel.Timer {
	if when.fixed {
		return w.AddAt(when.at, key)
	}
	return w.Add(when.after, key)
}
