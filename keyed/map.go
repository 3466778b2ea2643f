package keyed

import (
	"math"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// Map is a concurrent map whose entries expire one by one, each after its own time to live (ttl).
// The methods that Map shares with [sync.Map] behave as they do there. Make a Map with [NewMap].
// All methods may be called at any time from any goroutine, including from the expire function.
//
// The wheel's clock decides whether an entry is present: the entry is present until its deadline,
// rounded up to a tick, and absent from then on, even if the wheel has not reached it yet. No
// method returns, extends or deletes an entry whose deadline has passed. Each stored value ends in
// exactly one way: it is replaced, it is deleted, it is passed to the expire function once, or Stop
// discards it.
//
// The number of entries is not limited, and no entry is evicted before its deadline. After Stop the
// Map is empty, and methods that store do nothing.
type Map[K comparable, V any] struct {
	table[K, timed[V]]
	manual  bool
	begin   time.Time // the wheel's clock when the Map was made
	ttl     time.Duration
	expire  func(key K, value V)
	expired expiredList[K, V]
}

// timed is the value of an entry with its times. The entry does not expire before minDeadline, so
// until then Load need not read the timer. Among very many entries that read is a cache miss. Touch
// moves the timer's deadline to a later time and leaves minDeadline as it is.
type timed[V any] struct {
	value       V
	ttl         time.Duration // Touch applies it again
	minDeadline time.Duration // after begin: the time of the Store plus ttl
}

// NewMap returns a running map without entries. No goroutine runs while the map is empty. An entry
// expires ttl after it was stored or touched, or up to one tick later, but never earlier. With a
// ttl of math.MaxInt64, entries never expire. If ttl is zero or negative, the error wraps
// [ErrBadTimeout]. Other errors come from [timingwheel.New].
//
// expire may be nil. Otherwise it is called once per expired entry, after the entry has been
// removed from the map. [timingwheel.Options.Executor] determines where expire runs. Several calls
// may run concurrently, and no lock is held. Entries that expire together are reported one after
// the other in batches of at most 256. A call that blocks delays only the rest of its batch. A
// panic or runtime.Goexit in expire loses no other entry. [timingwheel.Options.OnPanic] applies.
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

// initMap is the part of NewMap that takes the sweep, so that tests can hold batches back.
func (m *Map[K, V]) initMap(opts timingwheel.Options, callback any, sweep func([]K)) error {
	if err := m.init(opts, callback, sweep); err != nil {
		return err
	}
	m.manual, m.begin = opts.Manual, m.wheel.Now()
	return nil
}

// TTL returns the time to live that was passed to NewMap. Entries that [Map.StoreFor] stores have
// their own ttl.
func (m *Map[K, V]) TTL() time.Duration { return m.ttl }

// Load returns the value for key, and true if there is an entry. Load does not extend the entry's
// time to live. After Stop it finds nothing. Load allocates nothing, reads the clock once or twice,
// and takes no lock unless the entry is overdue. O(1).
func (m *Map[K, V]) Load(key K) (value V, ok bool) {
	entries := m.entries.Load()
	if entries == nil {
		return value, false
	}
	e, ok := entries.Load(key)
	if ok && !m.isLive(e) {
		e, _, ok = m.find(entries, key) // e may have been replaced since
	}
	return e.value.value, ok
}

// Store sets the value for key and makes the entry expire after the map's ttl. If key is present,
// Store replaces its value and its ttl and does not call the expire function. After Stop, Store
// does nothing. Store panics if key is not equal to itself (NaN). Each call makes one allocation.
// O(1) amortised, because the map grows.
func (m *Map[K, V]) Store(key K, value V) { m.swap(key, value, m.ttl) }

// StoreFor is [Map.Store] with a separate time to live for this entry. [Map.Touch] applies the same
// ttl again. An entry with a zero or negative ttl expires immediately: it is passed to the expire
// function, and no call ever finds it. With math.MaxInt64 the entry never expires.
func (m *Map[K, V]) StoreFor(key K, value V, ttl time.Duration) { m.swap(key, value, ttl) }

// Swap is [Map.Store] and also returns the value that it replaced. loaded reports whether there was
// one. After Stop, Swap stores nothing and returns false.
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

// LoadOrStore returns the value for key and true if key is present, and does not extend its time to
// live. Otherwise LoadOrStore stores value as [Map.Store] does and returns value and false. If
// several goroutines call it concurrently for an absent key, one stores its value and all return
// that value. After Stop, LoadOrStore stores nothing and returns value and false.
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

// Touch restarts the time to live of the entry for key and reports whether there is one. The entry
// then expires after the ttl with which it was stored, counted from now. If there is no entry,
// Touch does nothing. A call to Touch that races with the expiry of the entry either comes first,
// and then the entry stays, or returns false. After Stop, Touch returns false. It rarely allocates
// and reads the clock once or twice. O(1).
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

// Delete removes the entry for key and reports whether it did. If so, the expire function is not
// called for the entry. If there is no entry, or its deadline has passed, Delete returns false. If
// several goroutines delete an entry concurrently, exactly one call returns true. After Stop,
// Delete returns false. O(1) amortised. The memory of an entry is released immediately, and the
// memory of the map's table once most of its entries are gone.
func (m *Map[K, V]) Delete(key K) bool {
	_, deleted := m.LoadAndDelete(key)
	return deleted
}

// LoadAndDelete is [Map.Delete] and also returns the value that it removed.
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

// Deadline returns the time at which the entry for key expires, rounded up to a tick. It returns
// the zero time and false if there is no entry, and always after Stop. O(1).
func (m *Map[K, V]) Deadline(key K) (deadline time.Time, ok bool) {
	entries := m.entries.Load()
	if entries == nil {
		return time.Time{}, false
	}
	_, deadline, ok = m.find(entries, key)
	return deadline, ok
}

// Range calls f for each entry that is present, in no particular order, until f returns false.
// Range takes no snapshot: f may or may not see an entry that is stored, deleted or expires during
// the call. f sees no key twice, and misses no entry that is present throughout. No lock is held
// while f runs, and f may call any method. Stop ends the iteration. O(n).
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
		if !ok { // e may have been replaced since the map returned it
			e, _, ok = m.find(entries, key)
		}
		if m.entries.Load() == nil || ok && !f(key, e.value.value) {
			return
		}
	}
}

// Expired returns the number of entries that have expired and are waiting to be passed to the
// expire function. Len does not count them. They wait while earlier calls to the expire function
// run, so the number grows if the function blocks. After Stop, Expired returns 0. O(1).
func (m *Map[K, V]) Expired() int {
	if m.entries.Load() == nil {
		return 0
	}
	return m.expired.len()
}

// Stats returns a snapshot of the wheel's counters and the result of [Map.Expired]. Fired counts
// every claimed timer, including timers of keys that were stored, touched or deleted right
// afterwards and therefore not reported. Bytes does not include the map.
func (m *Map[K, V]) Stats() timingwheel.Stats {
	stats := m.table.Stats()
	stats.Expired = m.Expired()
	return stats
}

type mapEntry[V any] = entry[timed[V]]

// liveDeadline returns the deadline of an entry if the entry is present at now. An entry without a
// positive ttl is never present, although its deadline, rounded up to a tick, may be after now.
func (m *Map[K, V]) liveDeadline(e mapEntry[V], now time.Time) (deadline time.Time, ok bool) {
	if deadline, ok = e.timer.Deadline(); !ok || e.value.ttl <= 0 || !now.Before(deadline) {
		return time.Time{}, false
	}
	return deadline, true
}

// isLive reports whether the deadline of an entry that was found in the map has not passed. In most
// cases a reading of the clock suffices, without a time.Time.
func (m *Map[K, V]) isLive(e mapEntry[V]) bool {
	if !m.manual && time.Since(m.begin) < e.value.minDeadline {
		return true
	}
	_, ok := m.liveDeadline(e, m.wheel.Now())
	return ok
}

// find looks key up under the map's lock. It moves an entry whose deadline has passed to expired,
// so that no other call finds it.
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

// reschedule moves the timer of an entry to ttl from now, unless the entry's deadline has passed.
// The caller holds the map's lock for the key, as for replace and moveToExpired.
func (m *Map[K, V]) reschedule(e mapEntry[V], ttl time.Duration, now time.Time) bool {
	_, ok := m.liveDeadline(e, now)
	return ok && e.timer.RescheduleAt(now.Add(ttl))
}

// replace arms a timer for a new entry of key. It moves an old entry to expired.
func (m *Map[K, V]) replace(key K, old mapEntry[V], present bool, value V, ttl time.Duration) (mapEntry[V], xsync.ComputeOp) {
	op := xsync.CancelOp
	if present {
		op = m.moveToExpired(key, old)
	}
	now := m.wheel.Now()
	timer := m.wheel.AddAt(now.Add(ttl), key)
	if timer == (timingwheel.Timer{}) {
		return old, op // the wheel has been stopped
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

// moveToExpired appends an entry that is overdue or claimed to expired, whose entries the next
// sweep reports. It returns the operation by which the caller removes the entry from the map.
func (m *Map[K, V]) moveToExpired(key K, e mapEntry[V]) xsync.ComputeOp {
	// The order of the two reads matters, see the proof in table.go.
	if _, pending := e.timer.Deadline(); !pending && m.entries.Load() == nil {
		return xsync.CancelOp // the timer may have been stopped and not claimed
	}
	m.expired.push(key, e.value.value)
	return xsync.DeleteOp
}

// sweep removes the keys of a claimed batch from the map and reports them, and then reports the
// entries of expired.
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

// deferRest leaves the rest of a batch, and the entries of expired, to another sweep.
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

// expiredList is a queue of the entries that moveToExpired has removed from the map.
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

func (l *expiredList[K, V]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items)
}

func (l *expiredList[K, V]) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = nil
}
