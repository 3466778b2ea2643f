package keyed

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
)

// This comment proves that no key is lost, and that none is reported twice, early, or after a
// Delete that returned true.
//
// The map of entries is the truth: a key is present while it has an entry, and an entry holds one
// timer. The timer's payload is the key alone. The wheel claims timers in batches. From then on
// their Reschedule and Stop return false, and they have no Deadline. A claimed batch is swept: for
// each key, under the map's lock for that key, removeClaimed removes the entry if its timer is not pending.
// Each removed entry is reported.
//
//	K1  A timer is armed for a key under the map's lock for the key, and stands in the entry when
//	    the lock is released.
//	K2  The timer of an entry is pending or claimed, until the wheel is stopped: a call that stops
//	    a timer removes the entry too.
//	K3  A claim of a timer is followed by a sweep of its key, which looks at the map after the
//	    claim.
//	K4  An entry leaves the map once: by a Delete, by a sweep, or in a Map by moveToExpired. An entry that
//	    is replaced under the lock stays: its key is present throughout.
//	K5  A call that finds the timer pending moves it and never adds a second one.
//
// So if T is the timer of the entry for a key:
//
//   - Not lost. A pending T will be claimed. After that, the sweep (K3) either finds T in the entry
//     and removes the entry, or T has been replaced by another timer, for which the same is true,
//     or the entry has been removed. The sweep cannot come before the entry is there, however short
//     the delay: it waits for the lock (K1).
//   - Not early. A sweep removes an entry only if its timer is not pending. That timer was claimed
//     (K2), so it was due. A sweep on behalf of an older timer of the same key finds the newer one
//     pending and leaves it. If the newer one is claimed too, the older one's sweep may remove the
//     entry on its behalf. The newer timer's own sweep then finds nothing, or a still newer entry,
//     for which the same is true.
//   - Not twice, and never after a Delete that returned true: K4, since only the sweep that removes
//     an entry reports it.
//
// Keys and Map differ in the moment at which the time of an entry is up.
//
// In Keys the sweep decides, so Set and Touch need no lock as a rule. If they look T up and
// T.Reschedule returns true, they count as done when they looked T up. If T was then removed by a
// Delete, or is no longer the timer of an entry, the two calls overlapped, and the Delete came
// second. T cannot be of an entry that was swept, since Reschedule returns false for a claimed
// timer. If Reschedule returned false, the call looks again under the lock. A pending timer is
// moved. A claimed timer is replaced: the call came before the sweep. If there is no entry, Set
// adds the key and Touch returns false: the call came after the sweep.
//
// In Map the clock decides, because Load must not return a value whose time is up while the wheel
// is late. A call that finds an entry overdue, or claimed, expels it: under the lock the entry is
// moved from the map to a list, expired, and the call then finds the key absent. All timers of a
// Map are moved and stopped under the lock, so none that is overdue can be postponed again. Load
// looks without the lock and takes the lock only if the entry is overdue.
//
//	M1  An entry in expired is followed by a sweep, which empties the list after it has taken the
//	    keys of its batch. If T was pending, T is due, or will be with the next tick (an entry
//	    without a ttl), and nothing refers to it any more, so the wheel will claim it. If T was
//	    claimed, its sweep has not looked at the key yet: otherwise the sweep would have removed
//	    the entry.
//	M2  If the function panics, the sweep's remaining entries go to expired, and a timer is armed
//	    for M1.
//
// After Stop no timer is pending, so a timer that is not pending need not have been claimed. Stop
// first takes the map away (entries is nil), and then stops the wheel. A sweep or a moveToExpired that
// finds a timer not pending checks that the map is still there: then the wheel was not stopped when
// it looked at the timer. An entry that a late Set puts into a map that was taken away is garbage.
//
// docs/internals/experiments.md has the rejected designs: a number in payload and entry, an object for each
// key, and a FuncTimer for each key.

// table is the mechanism and the upkeep of [Keys] and [Map]: a wheel, and an entry with a timer for
// each key that is present.
type table[K comparable, V any] struct {
	wheel   *timingwheel.Timeouts[K]
	entries atomic.Pointer[entryMap[K, V]] // nil: stopped
}

// entryMap replaces an entry as a whole, under a lock for its bucket. The bucket's lock comes
// before the locks of the wheel: timers are armed, moved and looked at under it.
type entryMap[K comparable, V any] = xsync.Map[K, entry[V]]

type entry[V any] struct {
	value V // an empty value takes no space here, at the end it would
	timer timingwheel.Timer
}

// init makes the wheel. callback is the user's function, whose name the wheel reports for the
// sweep.
func (t *table[K, V]) init(opts timingwheel.Options, callback any, sweep func([]K)) error {
	if callback != nil {
		opts, sweep = withCallbackName(opts, callback, sweep)
	}
	w, err := timingwheel.NewTimeouts(opts, sweep)
	if err != nil {
		return err
	}
	t.wheel = w
	t.entries.Store(xsync.NewMap[K, entry[V]]())
	return nil
}

// removeClaimed removes an entry whose timer has been claimed, and reports whether it did.
func (t *table[K, V]) removeClaimed(entries *entryMap[K, V], key K) (value V, taken bool) {
	entries.Compute(key, func(e entry[V], present bool) (entry[V], xsync.ComputeOp) {
		if !present {
			return e, xsync.CancelOp // deleted
		}
		if _, pending := e.timer.Deadline(); pending || t.entries.Load() == nil { // in this order
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
		panic(fmt.Sprintf("keyed: key %v is not equal to itself; accepted is a key that can be found again", key))
	}
}

// mustBeInitialized panics if the table is a zero value and not a stopped one, so that what a program adds
// is not lost in silence.
func (t *table[K, V]) mustBeInitialized() {
	if t.wheel == nil {
		panic("keyed: a Map or Keys that was not made by NewMap or New")
	}
}

// Len returns the number of keys that are present, 0 after Stop. It is exact if nothing else is
// going on. It adds at most 32 counters.
//
// A key is counted right after it was added, and no longer counted right after it was taken out.
// For a moment Len may thus miss a key that another goroutine deletes right after a Set, and count
// a key twice that is added right after it was taken out. It is never negative.
func (t *table[K, V]) Len() int {
	entries := t.entries.Load()
	if entries == nil {
		return 0
	}
	return max(0, entries.Size())
}

// Stop discards all keys and stops the wheel. None of the keys is reported. Calls of the expire
// function that have begun go on, and keys that have been taken out for a call that is about to
// begin are still reported. No key is taken out once Stop has returned. Stop is idempotent and may
// be called from the expire function. After it, every call returns at once and finds no key.
// O(shards).
func (t *table[K, V]) Stop() {
	t.mustBeInitialized()
	t.entries.Store(nil) // before the wheel, see above
	t.wheel.Stop()
}

// Shutdown is Stop and then waits for calls of the expire function. It returns nil when none runs
// any more, or ctx's error if ctx ends first. In the expire function it waits for itself until ctx
// ends. It may be called again, also after Stop. It panics if ctx is nil, and then stops nothing.
func (t *table[K, V]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		panic("keyed: Shutdown with a nil context")
	}
	t.Stop()
	return t.wheel.Shutdown(ctx)
}

// String is [timingwheel.TimingWheel.String] of the keys' timers.
func (t *table[K, V]) String() string { return t.wheel.String() }

// Stats returns a snapshot of the counters of the wheel, see [timingwheel.Stats]. Fired counts all
// timers that were claimed, also those of keys that were set, touched or deleted right afterwards
// and not reported. Bytes leaves out the map.
func (t *table[K, V]) Stats() timingwheel.Stats { return t.wheel.Stats() }

// WriteProfile is [timingwheel.TimingWheel.WriteProfile]. The timers are those of the keys.
func (t *table[K, V]) WriteProfile(w io.Writer) error { return t.wheel.WriteProfile(w) }

// Occupancy says where the keys' timers stand on the wheel, see [timingwheel.Timeouts.Occupancy].
// With Occupancy, Len and Stats this is a source of package debug.
func (t *table[K, V]) Occupancy() timingwheel.Occupancy { return t.wheel.Occupancy() }

// Now is [timingwheel.TimingWheel.Now].
func (t *table[K, V]) Now() time.Time { return t.wheel.Now() }

// Advance is [timingwheel.TimingWheel.Advance]: in Manual mode it moves the clock, reports what is
// due and returns how many timers it claimed, or handed over. That is the number of keys that
// expired, unless other goroutines deleted or touched some of them meanwhile.
func (t *table[K, V]) Advance(now time.Time) int { return t.wheel.Advance(now) }

// Next is [timingwheel.TimingWheel.Next]: a time not later than the earliest deadline rounded up,
// or false if no timer is pending.
func (t *table[K, V]) Next() (time.Time, bool) { return t.wheel.Next() }
