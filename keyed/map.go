package keyed

import (
	"math"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// Map is a concurrent map whose entries expire one by one, each when its time to live (ttl) is
// over. The methods that it shares with [sync.Map] behave as they do there. Make one with [NewMap].
// All methods may be called at any time from any goroutine, also from the expire function.
//
// The wheel's clock decides: an entry is present until its deadline, rounded up to a tick, and
// absent from then on, however late the wheel comes to it. No method returns, extends or deletes an
// entry whose deadline has passed. Each value that was stored ends in exactly one way: it is
// replaced, it is deleted, it is given to the expire function once, or Stop discards it.
//
// Nothing limits the number of entries, and none is evicted before its time.
type Map[K comparable, V any] struct {
	table[K, timed[V]]
	manual  bool
	begin   time.Time // by the wheel's clock
	ttl     time.Duration
	expire  func(key K, value V)
	expired expiredList[K, V]
}

// timed is the value of an entry with its time. minDeadline spares Load the look at the timer, which is
// a cache miss among very many: Touch moves the timer's deadline later and leaves minDeadline.
type timed[V any] struct {
	value       V
	ttl         time.Duration // which Touch gives it again
	minDeadline time.Duration // after begin: when it was stored plus ttl
}

// NewMap returns a running map without entries. While there are none, no goroutine runs. Entries
// expire ttl after they were stored or touched, or up to one tick later, never earlier. With
// math.MaxInt64 they never do. The error wraps [ErrBadTimeout] if ttl is zero or negative. Other
// errors are those of [timingwheel.New].
//
// expire may be nil. Otherwise it is called once for each entry that has expired, when the entry is
// no longer in the map. expire runs where [timingwheel.Options.Executor] says, without a lock and
// maybe on several goroutines at once. Entries that expire together are reported one after the
// other in batches of at most 256. An expire that blocks delays the rest of its batch only. A panic
// or runtime.Goexit in expire loses no other entry. [timingwheel.Options.OnPanic] applies.
func NewMap[K comparable, V any](opts timingwheel.Options, ttl time.Duration, expire func(key K, value V)) (*Map[K, V], error) {
	if err := checkTimeout(ttl); err != nil {
		return nil, err
	}
	m := &Map[K, V]{ttl: ttl, expire: expire}
	var callback any
	if expire != nil {
		callback = expire
	}
	if err := m.initMap(opts, callback, m.sweep); err != nil {
		return nil, err
	}
	return m, nil
}

// initMap lets tests see batches before they are swept.
func (m *Map[K, V]) initMap(opts timingwheel.Options, callback any, sweep func([]K)) error {
	if err := m.init(opts, callback, sweep); err != nil {
		return err
	}
	m.manual, m.begin = opts.Manual, m.wheel.Now()
	return nil
}

// TTL returns the time to live of entries that were stored without one of their own.
func (m *Map[K, V]) TTL() time.Duration { return m.ttl }

// Load returns the value of key. It does not extend the entry's time. Load allocates nothing, reads
// the clock once, and takes no lock unless the entry is overdue. O(1).
func (m *Map[K, V]) Load(key K) (value V, ok bool) {
	entries := m.entries.Load()
	if entries == nil {
		return value, false
	}
	e, ok := entries.Load(key)
	if ok && !m.isLive(e) {
		e, _, ok = m.find(entries, key) // it may have been replaced since
	}
	return e.value.value, ok
}

// Store sets the value of key, which expires after the ttl of the map. It replaces a value that is
// present, and the ttl that came with that value, without a call of the expire function. After
// Stop it does nothing. Store panics if key is not equal to itself (NaN). It takes one allocation
// and O(1) amortised, as the map grows.
func (m *Map[K, V]) Store(key K, value V) { m.swap(key, value, m.ttl) }

// StoreFor is Store with a time to live for this entry, which Touch will give it again. A zero or
// negative ttl means at once: the entry is given to the expire function and never seen.
func (m *Map[K, V]) StoreFor(key K, value V, ttl time.Duration) { m.swap(key, value, ttl) }

// Swap is Store, and returns the value that it replaced, if any.
func (m *Map[K, V]) Swap(key K, value V) (previous V, loaded bool) { return m.swap(key, value, m.ttl) }

func (m *Map[K, V]) swap(key K, value V, ttl time.Duration) (previous V, loaded bool) {
	entries := m.entries.Load()
	if entries == nil {
		m.mustBeInitialized()
		return previous, false
	}
	mustEqualItself(key)
	entries.Compute(key, func(e mapEntry[V], present bool) (mapEntry[V], xsync.ComputeOp) {
		if now := m.wheel.Now(); present && m.reschedule(e, ttl, now) {
			previous, loaded = e.value.value, true
			e.value = m.timed(value, ttl, now)
			return e, xsync.UpdateOp
		}
		return m.replace(key, e, present, value, ttl)
	})
	return previous, loaded
}

// LoadOrStore returns the value of key if there is one, and does not extend its time. Otherwise it
// stores value and returns it. The result loaded is true if the value was there. After Stop
// LoadOrStore stores nothing and returns value.
func (m *Map[K, V]) LoadOrStore(key K, value V) (actual V, loaded bool) {
	if actual, loaded = m.Load(key); loaded {
		return actual, true
	}
	entries := m.entries.Load()
	if entries == nil {
		m.mustBeInitialized()
		return value, false
	}
	mustEqualItself(key)
	actual = value
	entries.Compute(key, func(e mapEntry[V], present bool) (mapEntry[V], xsync.ComputeOp) {
		if present {
			if loaded = m.isLive(e); loaded {
				actual = e.value.value
				return e, xsync.CancelOp
			}
		}
		return m.replace(key, e, present, value, m.ttl)
	})
	return actual, loaded
}

// Touch gives the entry of key its whole time to live again, from now, and returns true: the ttl
// with which it was stored. If there is no entry, Touch returns false and does nothing. It
// allocates nothing, and reads the clock once. O(1).
func (m *Map[K, V]) Touch(key K) (touched bool) {
	entries := m.entries.Load()
	if entries == nil {
		return false
	}
	entries.Compute(key, func(e mapEntry[V], present bool) (mapEntry[V], xsync.ComputeOp) {
		if !present {
			return e, xsync.CancelOp
		}
		if touched = m.reschedule(e, e.value.ttl, m.wheel.Now()); !touched {
			return e, m.moveToExpired(key, e)
		}
		return e, xsync.CancelOp
	})
	return touched
}

// Delete removes the entry of key and returns true: the expire function is not called for it. If
// there is no entry, Delete returns false. If several goroutines delete an entry at once, exactly
// one call returns true. O(1) amortised. The memory of an entry is free at once, the memory of the
// map when most of its entries have gone.
func (m *Map[K, V]) Delete(key K) bool {
	_, deleted := m.LoadAndDelete(key)
	return deleted
}

// LoadAndDelete is Delete, and returns the value that it removed.
func (m *Map[K, V]) LoadAndDelete(key K) (value V, loaded bool) {
	entries := m.entries.Load()
	if entries == nil {
		return value, false
	}
	entries.Compute(key, func(e mapEntry[V], present bool) (mapEntry[V], xsync.ComputeOp) {
		switch {
		case !present:
			return e, xsync.CancelOp
		case m.isLive(e) && e.timer.Stop():
			value, loaded = e.value.value, true
			return e, xsync.DeleteOp
		}
		return e, m.moveToExpired(key, e)
	})
	return value, loaded
}

// Deadline returns when the entry of key expires, rounded up to a tick, or the zero time and false
// if there is no entry. O(1).
func (m *Map[K, V]) Deadline(key K) (deadline time.Time, ok bool) {
	entries := m.entries.Load()
	if entries == nil {
		return time.Time{}, false
	}
	_, deadline, ok = m.find(entries, key)
	return deadline, ok
}

// Range calls f for each entry that is present, in no particular order, until f returns false. It
// takes no snapshot: an entry that is stored, deleted or expires meanwhile may be seen or not. No
// key is seen twice, and no entry that stays is missed. f runs without a lock and may call
// everything. A Stop ends the Range. O(n).
//
// The method value is an iterator:
//
//	for key, value := range m.Range {
func (m *Map[K, V]) Range(f func(key K, value V) bool) {
	entries := m.entries.Load()
	if entries == nil {
		return
	}
	for key, e := range entries.All() {
		ok := m.isLive(e)
		if !ok { // the map may show an entry of before, which has been replaced
			e, _, ok = m.find(entries, key)
		}
		if m.entries.Load() == nil || ok && !f(key, e.value.value) {
			return
		}
	}
}

type mapEntry[V any] = entry[timed[V]]

// liveDeadline returns the deadline of an entry if it is after now. The deadline of an entry without a ttl
// may be, because it is rounded up to a tick.
func (m *Map[K, V]) liveDeadline(e mapEntry[V], now time.Time) (deadline time.Time, ok bool) {
	if deadline, ok = e.timer.Deadline(); !ok || e.value.ttl <= 0 || !now.Before(deadline) {
		return time.Time{}, false
	}
	return deadline, true
}

// present reports whether an entry that was found in the map is in time. It mostly looks at the
// clock only, and then needs no time.Time.
func (m *Map[K, V]) isLive(e mapEntry[V]) bool {
	if !m.manual && time.Since(m.begin) < e.value.minDeadline {
		return true
	}
	_, ok := m.liveDeadline(e, m.wheel.Now())
	return ok
}

// find returns the entry of key, under the lock. An entry whose deadline has passed is expelled, so
// that no other call takes it for present.
func (m *Map[K, V]) find(entries *entryMap[K, timed[V]], key K) (found mapEntry[V], deadline time.Time, ok bool) {
	entries.Compute(key, func(e mapEntry[V], present bool) (mapEntry[V], xsync.ComputeOp) {
		if !present {
			return e, xsync.CancelOp
		}
		if deadline, ok = m.liveDeadline(e, m.wheel.Now()); !ok {
			return e, m.moveToExpired(key, e)
		}
		found = e
		return e, xsync.CancelOp
	})
	return found, deadline, ok
}

// reschedule gives an entry its whole ttl, unless its deadline has passed. The map's lock for the
// key is held, as it is for replace and moveToExpired.
func (m *Map[K, V]) reschedule(e mapEntry[V], ttl time.Duration, now time.Time) bool {
	_, ok := m.liveDeadline(e, now)
	return ok && e.timer.RescheduleAt(now.Add(ttl))
}

// replace arms a timer for a new entry. An old one is expelled.
func (m *Map[K, V]) replace(key K, old mapEntry[V], present bool, value V, ttl time.Duration) (mapEntry[V], xsync.ComputeOp) {
	op := xsync.CancelOp
	if present {
		op = m.moveToExpired(key, old)
	}
	now := m.wheel.Now()
	timer := m.wheel.AddAt(now.Add(ttl), key)
	if timer == (timingwheel.Timer{}) {
		return old, op // stopped meanwhile
	}
	return mapEntry[V]{m.timed(value, ttl, now), timer}, xsync.UpdateOp
}

func (m *Map[K, V]) timed(value V, ttl time.Duration, now time.Time) timed[V] {
	minDeadline := now.Sub(m.begin)
	if minDeadline += ttl; minDeadline < ttl && ttl > 0 {
		minDeadline = math.MaxInt64
	}
	return timed[V]{value, ttl, minDeadline}
}

// moveToExpired hands an entry that is overdue or claimed to the sweep that is to come. The caller removes
// it from the map.
func (m *Map[K, V]) moveToExpired(key K, e mapEntry[V]) xsync.ComputeOp {
	if _, pending := e.timer.Deadline(); !pending && m.entries.Load() == nil { // in this order
		return xsync.CancelOp // maybe not claimed, but stopped
	}
	m.expired.push(key, e.value.value)
	return xsync.DeleteOp
}

// sweep takes the keys of a claimed batch out of the map and reports them, and then what was
// expelled.
func (m *Map[K, V]) sweep(claimed []K) {
	entries := m.entries.Load()
	if entries == nil {
		return
	}
	if m.expire == nil {
		for _, key := range claimed {
			m.removeClaimed(entries, key)
		}
		m.expired.clear()
		return
	}
	done := false
	defer func() {
		if !done { // the expire function panicked or called Goexit
			m.deferRest(entries, claimed)
		}
	}()
	for len(claimed) > 0 {
		key := claimed[0]
		claimed = claimed[1:]
		if e, taken := m.removeClaimed(entries, key); taken {
			m.expire(key, e.value)
		}
	}
	for {
		key, value, ok := m.expired.pop()
		if !ok {
			break
		}
		m.expire(key, value)
	}
	done = true
}

// deferRest leaves the rest of a batch, and what was expelled, to another sweep.
func (m *Map[K, V]) deferRest(entries *entryMap[K, timed[V]], claimed []K) {
	for _, key := range claimed {
		if e, taken := m.removeClaimed(entries, key); taken {
			m.expired.push(key, e.value)
		}
	}
	if key, ok := m.expired.first(); ok {
		m.wheel.Add(0, key)
	}
}

// expiredList holds the entries that left the map by moveToExpired, in order.
type expiredList[K comparable, V any] struct {
	mu    sync.Mutex
	items []expiredItem[K, V]
}

type expiredItem[K comparable, V any] struct {
	key   K
	value V
}

func (l *expiredList[K, V]) push(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, expiredItem[K, V]{key, value})
}

func (l *expiredList[K, V]) pop() (key K, value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.items) == 0 {
		return key, value, false
	}
	item := l.items[0]
	l.items[0] = expiredItem[K, V]{}
	if l.items = l.items[1:]; len(l.items) == 0 {
		l.items = nil
	}
	return item.key, item.value, true
}

func (l *expiredList[K, V]) first() (key K, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.items) == 0 {
		return key, false
	}
	return l.items[0].key, true
}

func (l *expiredList[K, V]) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = nil
}
