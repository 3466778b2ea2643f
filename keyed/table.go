package keyed

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// This comment proves that no key is lost, and that no key is reported twice, early, or after a
// Delete that returned true.
//
// The map of entries is the single source of truth: a key is present while it has an entry, and an
// entry holds one timer. The timer's payload is only the key. The wheel claims timers in batches. A
// claimed timer has no Deadline, and its Reschedule and Stop return false. After the claim the
// batch is swept: for each key, under the map's lock for that key, removeClaimed removes the entry
// if its timer is not pending. The sweep reports each entry that it removes.
//
//	K1  A timer for a key is armed under the map's lock for the key and is in the entry when the
//	    lock is released.
//	K2  Until the wheel is stopped, the timer of an entry is pending or claimed: a call that stops
//	    a timer also removes its entry.
//	K3  Each claim of a timer is followed by a sweep of its key, which reads the map after the
//	    claim.
//	K4  An entry is removed once: by a Delete, by a sweep, or in a Map by moveToExpired. Replacing
//	    an entry under the lock does not remove it: its key is present throughout.
//	K5  A call that finds the timer pending moves it and never adds a second timer.
//
// Let T be the timer of the entry for a key:
//
//   - No key is lost. A pending T will be claimed. The sweep that follows (K3) finds T in the entry
//     and removes the entry, or T has been replaced by another timer, to which the same applies, or
//     the entry has been removed. Even if the delay is very short, the sweep cannot come before the
//     entry is in the map, because it waits for the lock (K1).
//   - No key is early. A sweep removes an entry only if its timer is not pending. That timer was
//     claimed (K2), so it was due. A sweep for an older timer of the same key finds the newer timer
//     pending and leaves it. If the newer timer has been claimed too, the sweep for the older one
//     may remove the entry. The sweep for the newer timer then finds no entry, or a still newer
//     one, to which the same applies.
//   - No key is reported twice or after a Delete that returned true. This follows from K4, because
//     only the sweep that removes an entry reports it.
//
// Keys and Map differ in when an entry counts as expired.
//
// In Keys the sweep decides, so Set and Touch usually need no lock. If they find T and T.Reschedule
// returns true, their linearization point is the lookup of T. If T was then stopped by a Delete, or
// is no longer the timer of an entry, the two calls overlapped, and the Delete came second. T
// cannot belong to an entry that was swept, because Reschedule returns false for a claimed timer.
// If Reschedule returned false, the call looks the key up again under the lock. It moves a pending
// timer. It replaces a claimed timer, and then comes before the sweep. If there is no entry, Set
// adds the key and Touch returns false, and both come after the sweep.
//
// In Map the clock decides, because Load must not return an entry whose deadline has passed while
// the wheel is late. A call that finds an entry overdue or claimed calls moveToExpired: under the
// lock, the entry moves from the map to the list expired. The call then finds the key absent. All
// timers of a Map are moved and stopped under the lock, so a call cannot postpone an overdue timer.
// Load reads the entry without the lock and takes the lock only if the entry is overdue.
//
//	M1  An entry in expired is followed by a sweep, which empties the list after it has removed
//	    the keys of its batch. If T was pending, T is due, or will be at the next tick (an entry
//	    without a positive ttl). The wheel will claim T, because no call can reach T to move or
//	    stop it. If T was claimed, its sweep has not read the map yet: otherwise the sweep would
//	    have removed the entry.
//	M2  If the expire function panics, the remaining entries of the sweep go to expired, and a
//	    timer is armed for M1.
//
// After Stop no timer is pending, so a timer that is not pending need not have been claimed.
// Therefore Stop first sets entries to nil and then stops the wheel. A sweep or a moveToExpired
// that finds a timer not pending then checks that entries is not nil: if so, the wheel was not yet
// stopped when the timer was read. An entry that a late Set puts into the discarded map is garbage.
//
// docs/internals/decisions.md has the rejected designs.

// table is the common part of [Keys] and [Map]: a wheel, and an entry with a timer for each key
// that is present.
type table[K comparable, V any] struct {
	wheel   *timingwheel.Timeouts[K]
	entries atomic.Pointer[entryMap[K, V]] // nil: stopped
}

// entryMap replaces whole entries, under the lock of the key's bucket. The lock order is the
// bucket's lock, then the locks of the wheel: timers are armed, moved and read under the bucket's
// lock.
type entryMap[K comparable, V any] = xsync.Map[K, entry[V]]

type entry[V any] struct {
	value V // first, because an empty struct as the last field would take space
	timer timingwheel.Timer
}

// init makes the wheel and the map. callback is the user's function, which Options.Around gets
// instead of sweep.
func (t *table[K, V]) init(opts timingwheel.Options, callback any, sweep func([]K)) error {
	if around := opts.Around; around != nil && callback != nil {
		code := reflect.ValueOf(callback).Pointer()
		opts.Around = func(c timingwheel.Call, run func()) {
			c.Func = code
			around(c, run)
		}
	}
	w, err := timingwheel.NewTimeouts(opts, sweep)
	if err != nil {
		return err
	}
	t.wheel = w
	t.entries.Store(xsync.NewMap[K, entry[V]]())
	return nil
}

// removeClaimed removes the entry of key if its timer has been claimed, and reports whether it did.
func (t *table[K, V]) removeClaimed(entries *entryMap[K, V], key K) (value V, taken bool) {
	entries.Compute(key, func(e entry[V], present bool) (entry[V], xsync.ComputeOp) {
		if !present {
			return e, xsync.CancelOp // deleted
		}
		// The order of the two reads matters, see the proof above.
		if _, pending := e.timer.Deadline(); pending || t.entries.Load() == nil {
			return e, xsync.CancelOp
		}
		value, taken = e.value, true
		return e, xsync.DeleteOp
	})
	return value, taken
}

// mustEqualItself panics if key could never be found again.
func mustEqualItself[K comparable](key K) {
	if self := key; self != key {
		panic(fmt.Sprintf("keyed: key %v is not equal to itself, so it could never be found again", key))
	}
}

// mustBeInitialized panics if the table is a zero value, so that no key is silently lost. A stopped
// table passes.
func (t *table[K, V]) mustBeInitialized() {
	if t.wheel == nil {
		panic("keyed: Map or Keys not made by NewMap or New")
	}
}

// Len returns the number of keys that are present, and 0 after Stop. An entry of a [Map] whose
// deadline has passed counts until the wheel or another call finds it. The result is exact if no
// key is added or removed during the call, and is never negative. Len sums at most 32 counters.
//
// The counters change right after a key is added or removed. During concurrent changes Len may
// therefore omit a key that another goroutine deletes right after a Set, and may count a key twice
// if it is added again right after its removal.
func (t *table[K, V]) Len() int {
	entries := t.entries.Load()
	if entries == nil {
		return 0
	}
	return max(0, entries.Size())
}

// Stop discards all keys without reporting them and stops the wheel. Stop does not wait for calls
// to the expire function: calls that have begun continue, and keys that have been removed for a
// call that is about to begin are still reported. No key is removed after Stop has returned. Stop
// is idempotent and may be called from the expire function. After Stop every method but Shutdown
// returns immediately, and none finds a key. O(n).
func (t *table[K, V]) Stop() {
	t.mustBeInitialized()
	t.entries.Store(nil) // before the wheel stops, see the proof above
	t.wheel.Stop()
}

// Shutdown calls Stop and then waits until no call to the expire function is running. It returns
// nil, or ctx's error if ctx ends first. If the expire function calls Shutdown, it waits for itself
// until ctx ends. Shutdown may be called again, and after Stop. If ctx is nil, Shutdown panics and
// stops nothing.
func (t *table[K, V]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		panic("keyed: Shutdown with a nil context")
	}
	t.Stop()
	return t.wheel.Shutdown(ctx)
}

// String returns the wheel's name and the numbers of pending timers and levels: see
// [timingwheel.TimingWheel.String].
func (t *table[K, V]) String() string { return t.wheel.String() }

// Stats returns a snapshot of the wheel's counters: see [timingwheel.Stats]. Fired counts every
// claimed timer, including timers of keys that were set, touched or deleted right afterwards and
// therefore not reported. Bytes does not include the map.
func (t *table[K, V]) Stats() timingwheel.Stats { return t.wheel.Stats() }

// WriteProfile writes a profile of the keys' timers to w: see
// [timingwheel.TimingWheel.WriteProfile].
func (t *table[K, V]) WriteProfile(w io.Writer) error { return t.wheel.WriteProfile(w) }

// surveyed returns the wheel whose timers [survey.Take] counts for the set.
func (t *table[K, V]) surveyed() any { return t.wheel }

func init() {
	take := survey.Take
	survey.Take = func(wheel any) survey.Wheel {
		if set, ok := wheel.(interface{ surveyed() any }); ok {
			wheel = set.surveyed()
		}
		return take(wheel)
	}
}

// Now returns the time on the wheel's clock: see [timingwheel.TimingWheel.Now].
func (t *table[K, V]) Now() time.Time { return t.wheel.Now() }

// Advance moves the clock of a set in Manual mode to now and reports the keys that are due: see
// [timingwheel.TimingWheel.Advance]. It returns the number of timers that it claimed or handed to
// the executor, which is the number of expired keys unless Grace is set or other goroutines deleted
// or touched some of them meanwhile. Advance never moves the clock back. It panics if the set is
// not in Manual mode.
func (t *table[K, V]) Advance(now time.Time) int { return t.wheel.Advance(now) }

// Next returns a time that is not later than the earliest deadline, rounded up to a tick, or false
// if no timer is pending. See [timingwheel.TimingWheel.Next].
func (t *table[K, V]) Next() (time.Time, bool) { return t.wheel.Next() }
