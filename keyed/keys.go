package keyed

import (
	"fmt"
	"iter"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
)

// Keys is a set of keys, each with a timeout. Make one with [New]. All methods may be called at any time from any goroutine, the
// expire function included, unless they say otherwise.
type Keys[K comparable] struct {
	wheel  *timingwheel.Timeouts[K]
	timers atomic.Pointer[timersOf[K]] // nil: stopped
	expire func(keys []K)
}

// timersOf holds the timer of each key. An entry is replaced as a whole, under the lock that the map has for its bucket. That lock
// comes before the lock of a shard of the wheel: timers are armed, moved and looked at under it.
//
// The map was chosen by measurement, docs/keyed.md.
type timersOf[K comparable] = xsync.Map[K, timingwheel.Timer]

// New returns a running set without keys. There is nothing to start, and, while there are no keys, nothing running. Errors are those of
// [timingwheel.New]. It panics where expire is nil.
//
// Keys whose time is up are taken out and then given to expire, in batches of at most 256 that are never held back to fill and never
// empty. The slice is valid during the call only. expire runs where [timingwheel.Options.Executor] says, maybe on several goroutines
// at once, and without a lock. A panic or runtime.Goexit in it loses the rest of its slice at most; [timingwheel.Options.OnPanic]
// applies.
func New[K comparable](opts timingwheel.Options, expire func(keys []K)) (*Keys[K], error) {
	if expire == nil {
		panic("keyed: New with a nil function")
	}
	k := &Keys[K]{expire: expire}
	if opts.OnSlow != nil {
		opts.OnSlow = namedSlow(expire, opts.OnSlow)
	}
	if opts.ProfileLabels {
		k.expire = labelled(opts, expire)
	}
	if err := k.start(opts, k.sweep); err != nil {
		return nil, err
	}
	return k, nil
}

// start lets tests see batches before they are swept.
func (k *Keys[K]) start(opts timingwheel.Options, sweep func([]K)) error {
	w, err := timingwheel.NewTimeouts(opts, sweep)
	if err != nil {
		return err
	}
	k.wheel = w
	k.timers.Store(xsync.NewMap[K, timingwheel.Timer]())
	return nil
}

// Set makes key expire d from now, or up to one tick later, never earlier. It adds the key and returns true, or, where it is present,
// replaces its deadline and returns false. Zero and negative mean at once; a d beyond the range of the clock never expires.
//
// A Set of a key that is just expiring either comes first, and then the key is not reported before its new deadline, or adds the key
// anew, and then it is reported for both. On a stopped set it returns false and does nothing. It panics where key is not equal to
// itself (NaN).
//
// A present key costs as much as a Touch. A new one takes an allocation and O(1) amortised, as the map grows.
func (k *Keys[K]) Set(key K, d time.Duration) bool {
	m := k.timers.Load()
	if m == nil {
		return false
	}
	if t, ok := m.Load(key); ok && t.Reschedule(d) {
		return false
	}
	return k.put(m, key, moment{after: d})
}

// SetAt is Set for a point in time, see [timingwheel.TimingWheel.AtFunc].
func (k *Keys[K]) SetAt(key K, t time.Time) bool {
	m := k.timers.Load()
	if m == nil {
		return false
	}
	if old, ok := m.Load(key); ok && old.RescheduleAt(t) {
		return false
	}
	return k.put(m, key, moment{at: t, fixed: true})
}

// Touch makes a present key expire d from now instead, and returns true. Where it is not present, or the set is stopped, it returns
// false and does nothing. Zero and negative mean at once.
//
// A Touch of a key that is just expiring either comes first, and then the key is not reported before its new deadline, or returns false.
// It allocates nothing unless it does come first, but after the wheel has begun with the expiry. O(1).
func (k *Keys[K]) Touch(key K, d time.Duration) bool {
	m := k.timers.Load()
	if m == nil {
		return false
	}
	t, ok := m.Load(key)
	if !ok {
		return false
	}
	return t.Reschedule(d) || k.save(m, key, moment{after: d})
}

// TouchAt is Touch for a point in time, see [timingwheel.TimingWheel.AtFunc].
func (k *Keys[K]) TouchAt(key K, t time.Time) bool {
	m := k.timers.Load()
	if m == nil {
		return false
	}
	old, ok := m.Load(key)
	if !ok {
		return false
	}
	return old.RescheduleAt(t) || k.save(m, key, moment{at: t, fixed: true})
}

// put is Set where the key was not found, or its timer has been claimed. It reports whether the key is new.
func (k *Keys[K]) put(m *timersOf[K], key K, when moment) (added bool) {
	if self := key; self != key {
		panic(fmt.Sprintf("keyed: key %v is not equal to itself; accepted is a key that can be found again", key))
	}
	m.Compute(key, func(t timingwheel.Timer, present bool) (timingwheel.Timer, xsync.ComputeOp) {
		if present && reschedule(t, when) {
			return t, xsync.CancelOp
		}
		if t = arm(k.wheel, key, when); t == (timingwheel.Timer{}) {
			return t, xsync.CancelOp // stopped meanwhile
		}
		added = !present
		return t, xsync.UpdateOp
	})
	return added
}

// save is Touch where the key's timer has been claimed. It reports whether the key was present all the same, and has another timer now.
func (k *Keys[K]) save(m *timersOf[K], key K, when moment) (saved bool) {
	m.Compute(key, func(t timingwheel.Timer, present bool) (timingwheel.Timer, xsync.ComputeOp) {
		if !present {
			return t, xsync.CancelOp
		}
		if reschedule(t, when) {
			saved = true
			return t, xsync.CancelOp
		}
		if t = arm(k.wheel, key, when); t == (timingwheel.Timer{}) {
			return t, xsync.CancelOp // stopped meanwhile
		}
		saved = true
		return t, xsync.UpdateOp
	})
	return saved
}

// Delete takes key out and returns true: it will not be reported, unless it is set again. It returns false where the key is not
// present: it was never set, was deleted, has been given to the expire function or is just about to be, or the set is stopped. Of
// several calls at once exactly one returns true. O(1) amortised; the memory of a key and its timer is given back at once, that of the
// map when most of its keys have gone.
func (k *Keys[K]) Delete(key K) bool {
	m := k.timers.Load()
	if m == nil {
		return false
	}
	t, present := m.LoadAndDelete(key)
	if present {
		t.Stop() // false: it has been claimed, and its batch will not find the key
	}
	return present
}

// Has reports whether key is present: set, and neither deleted nor taken out for the expire function. On a stopped set it is false.
// O(1), without a lock.
func (k *Keys[K]) Has(key K) bool {
	m := k.timers.Load()
	if m == nil {
		return false
	}
	_, ok := m.Load(key)
	return ok
}

// Deadline returns when key is to expire, not rounded to a tick, or the zero time and false where it is not present, where its expiry
// has begun, or where the set is stopped. O(1).
func (k *Keys[K]) Deadline(key K) (time.Time, bool) {
	m := k.timers.Load()
	if m == nil {
		return time.Time{}, false
	}
	t, ok := m.Load(key)
	if !ok {
		return time.Time{}, false
	}
	return t.Deadline()
}

// Len returns the number of keys that are present, 0 on a stopped set. It is exact when nothing else is going on. It takes a sum of at
// most 32 counters.
//
// A key is counted, and no longer counted, right after it was added and taken out. So for a moment the sum may miss a key, where a Delete
// follows a Set at once on another goroutine, and count one twice, where a Set follows a Delete or an expiry. It is never negative.
func (k *Keys[K]) Len() int {
	m := k.timers.Load()
	if m == nil {
		return 0
	}
	return max(0, m.Size())
}

// All iterates over the keys that are present, with their deadlines, in no particular order. Keys whose expiry has begun are left out.
// It is no snapshot: what is added, deleted or expires meanwhile may be seen or not, but no key is seen twice, and one that stays is
// not missed. No lock is held in the body of the loop, which may call everything. On a stopped set there is nothing, and a Stop ends the
// loop. O(n).
func (k *Keys[K]) All() iter.Seq2[K, time.Time] {
	return func(yield func(K, time.Time) bool) {
		m := k.timers.Load()
		if m == nil {
			return
		}
		for key, timer := range m.All() {
			deadline, pending := timer.Deadline()
			if !pending { // the map may show an entry of before, which has been replaced
				deadline, pending = k.Deadline(key)
			}
			if pending && !yield(key, deadline) {
				return
			}
		}
	}
}
