package keyed

import (
	"slices"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// Why no key is lost, and none is reported twice, early, or after a Delete that returned true.
//
// The map is the truth: a key is present while it has an entry, and an entry holds one timer. The
// timer's payload is the key alone. The wheel claims timers in batches. From then on their
// Reschedule and Stop return false, and they have no Deadline. A claimed batch is swept: for each
// key, under the map's lock for that key, the entry is removed if its timer is not pending. Each
// removed key is reported.
//
//	K1  A timer is armed for a key under the map's lock for it and stands in the entry when that lock is let go.
//	K2  The timer of an entry is pending or claimed, until the wheel is stopped: whoever stops a timer has removed its entry before.
//	K3  A timer that is claimed is followed by a sweep of its key, which looks at the map after the claim.
//	K4  An entry leaves the map once, by a Delete or by a sweep. One that is replaced, under the lock, stays: its key is present
//	    throughout.
//	K5  Set and Touch move a timer, or replace it where it has been claimed, but never replace one that is pending.
//
// So where T is the timer of the entry for a key:
//
//   - Not lost. A pending T will be claimed. After that the sweep (K3) either finds T in the entry and removes it, or T has been
//     replaced by another timer, for which the same is true, or the entry has been removed. It cannot come before the entry is
//     there, however short the delay: the sweep waits for the lock (K1).
//   - Not early. A sweep removes an entry only where its timer is not pending, and so was claimed (K2), and so was due. A sweep on
//     behalf of an older timer of the same key finds the newer one pending and lets it be. If that is claimed too, it may remove
//     the entry on its behalf: that timer's own sweep will find nothing, or a still newer entry, of which the same is true.
//   - Not twice, and never after a Delete that returned true: K4, as only the sweep that removes an entry reports its key.
//   - A Set or Touch without the lock (it looked up T and T.Reschedule returned true) counts as
//     done when it looked T up. If T was then removed by a Delete, or is no longer the timer of an
//     entry, the two calls overlapped, and the Delete came second. T cannot be of an entry that was
//     swept, since Reschedule returns false for a claimed timer.
//   - A Set or Touch whose Reschedule returned false looks again under the lock. If the entry's
//     timer is pending, it is moved. If the timer is claimed, it is replaced: the call came before
//     the sweep. If there is no entry, Set adds the key and Touch returns false: the call came
//     after the sweep.
//
// After Stop no timer is pending, so not pending no longer means claimed. Stop first takes the map away (timers is nil), and then
// stops the wheel. A sweep that finds a timer not pending looks whether the map is still there; if so, the wheel was not stopped when
// it looked at the timer. What a late Set puts into a map that was taken away is garbage.
//
// Rejected: a number in the payload and in the entry, to be compared by the sweep. It takes 16 bytes more for each key, a counter that all
// goroutines write, and a second slice for the keys that are reported, as payloads are no keys then; looking at the timer
// costs the lock of a shard for each key that expires, docs/keyed.md. Rejected: an object for each key, to which payload and entry
// point. That is a second allocation, and gives the garbage collector the wheel to scan.

// sweep takes the keys of a claimed batch out of the map and reports them.
func (k *Keys[K]) sweep(claimed []K) {
	m := k.timers.Load()
	if m == nil {
		return
	}
	over := slices.DeleteFunc(claimed, func(key K) bool { return !k.take(m, key) })
	if len(over) > 0 {
		k.expire(slices.Clip(over))
	}
}

// take removes a key whose timer has been claimed, and reports whether it did.
func (k *Keys[K]) take(m *timersOf[K], key K) (taken bool) {
	m.Compute(key, func(t timingwheel.Timer, present bool) (timingwheel.Timer, xsync.ComputeOp) {
		if !present {
			return t, xsync.CancelOp // deleted
		}
		if _, pending := t.Deadline(); pending || k.timers.Load() == nil { // in this order
			return t, xsync.CancelOp
		}
		taken = true
		return t, xsync.DeleteOp
	})
	return taken
}
