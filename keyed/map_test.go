package keyed

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

var _ wheeldebug.Source = (*Map[string, int])(nil)

func newMap[K comparable, V any](tb testing.TB, opts timingwheel.Options, ttl time.Duration, expire func(K, V)) *Map[K, V] {
	tb.Helper()
	m, err := NewMap(opts, ttl, expire)
	require.NoError(tb, err)
	tb.Cleanup(m.Stop)
	return m
}

// manualMap is a Map in Manual mode that records the entries that expire.
type manualMap struct {
	*Map[string, int]
	expired map[string][]int
}

func newManualMap(tb testing.TB, ttl time.Duration) *manualMap {
	tb.Helper()
	m := &manualMap{expired: map[string][]int{}}
	m.Map = newMap(tb, timingwheel.Options{Manual: true}, ttl, func(key string, value int) {
		m.expired[key] = append(m.expired[key], value)
	})
	return m
}

func (m *manualMap) pass(d time.Duration) { m.Advance(m.Now().Add(d)) }

func load(m *Map[string, int], key string) int {
	if value, ok := m.Load(key); ok {
		return value
	}
	return -1
}

// A touched and an untouched entry are absent once their deadlines have passed.
func TestMapEntriesExpireOneByOne(t *testing.T) {
	t.Parallel()
	m := newManualMap(t, 10*time.Second)
	assert.Equal(t, 10*time.Second, m.TTL())
	m.Store("a", 1)
	m.StoreFor("b", 2, 4*time.Second)
	m.pass(3 * time.Second)
	m.Store("c", 3)
	assert.Equal(t, 1, load(m.Map, "a"))
	assert.True(t, m.Touch("b"))
	assert.False(t, m.Touch("d"))
	m.pass(4*time.Second - 1)
	assert.Equal(t, 2, load(m.Map, "b"), "Touch gave it its own four seconds again")
	m.pass(1)
	assert.Equal(t, -1, load(m.Map, "b"))
	assert.Equal(t, map[string][]int{"b": {2}}, m.expired)
	m.pass(3 * time.Second)
	assert.Equal(t, map[string][]int{"a": {1}, "b": {2}}, m.expired, "Load does not extend")
	deadline, ok := m.Deadline("c")
	assert.True(t, ok)
	assert.True(t, deadline.Equal(m.Now().Add(3*time.Second)))
	assert.Equal(t, map[string]int{"c": 3}, maps.Collect(m.Range))
	assert.Equal(t, 1, m.Len())
	assert.True(t, m.Delete("c"))
	m.pass(time.Hour)
	assert.NotContains(t, m.expired, "c")
	assert.Zero(t, m.Len())
}

// The test makes each call with a key that is absent, present, due but not swept, or expired, and
// on a stopped map.
func TestMapCallResultsInEachState(t *testing.T) {
	t.Parallel()
	states := map[string]func(*manualMap){
		"absent":  func(*manualMap) {},
		"present": func(m *manualMap) { m.Store("k", 1) },
		"due":     func(m *manualMap) { m.StoreFor("k", 1, 0) },
		"expired": func(m *manualMap) { m.StoreFor("k", 1, 0); m.pass(0) },
		"stopped": func(m *manualMap) { m.Store("k", 1); m.Stop() },
	}
	for state, prepare := range states {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			was, stopped := state == "present", state == "stopped"
			value := func(v int) int { // v if the entry is present, and 0 otherwise
				if was {
					return v
				}
				return 0
			}
			for name, call := range map[string]func(t *testing.T, m *manualMap) (now int){
				"Load": func(t *testing.T, m *manualMap) int {
					v, ok := m.Load("k")
					assert.Equal(t, was, ok)
					assert.Equal(t, value(1), v)
					return value(1)
				},
				"Store": func(_ *testing.T, m *manualMap) int { m.Store("k", 2); return 2 },
				"Swap": func(t *testing.T, m *manualMap) int {
					v, ok := m.Swap("k", 2)
					assert.Equal(t, was, ok)
					assert.Equal(t, value(1), v)
					return 2
				},
				"LoadOrStore": func(t *testing.T, m *manualMap) int {
					v, ok := m.LoadOrStore("k", 2)
					assert.Equal(t, was, ok)
					assert.Equal(t, 2-value(1), v)
					return v
				},
				"Touch": func(t *testing.T, m *manualMap) int { assert.Equal(t, was, m.Touch("k")); return value(1) },
				"Delete": func(t *testing.T, m *manualMap) int {
					assert.Equal(t, was, m.Delete("k"))
					assert.False(t, m.Delete("k"))
					return 0
				},
				"LoadAndDelete": func(t *testing.T, m *manualMap) int {
					v, ok := m.LoadAndDelete("k")
					assert.Equal(t, was, ok)
					assert.Equal(t, value(1), v)
					return 0
				},
				"Deadline": func(t *testing.T, m *manualMap) int {
					at, ok := m.Deadline("k")
					assert.Equal(t, was, ok)
					assert.Equal(t, was, at.Equal(m.Now().Add(time.Second)))
					return value(1)
				},
				"Range": func(t *testing.T, m *manualMap) int {
					assert.Equal(t, was, maps.Collect(m.Range)["k"] == 1)
					return value(1)
				},
			} {
				t.Run(name, func(t *testing.T) {
					m := newManualMap(t, time.Second)
					prepare(m)
					now := call(t, m)
					if stopped {
						assert.Equal(t, -1, load(m.Map, "k"))
						assert.Zero(t, m.Len())
						m.pass(time.Hour)
						assert.Empty(t, m.expired)
						return
					}
					want := []int(nil)
					if state == "due" || state == "expired" {
						want = []int{1}
					}
					if now != 0 {
						assert.Equal(t, now, load(m.Map, "k"))
						m.pass(ms)
						assert.Equal(t, want, m.expired["k"], "the old deadline removes no new entry")
						assert.Equal(t, now, load(m.Map, "k"))
						want = append(want, now)
					}
					m.pass(2 * time.Second)
					assert.Equal(t, want, m.expired["k"])
					assert.Zero(t, m.Len())
				})
			}
		})
	}
}

func TestMapExpiresAtEveryTTL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ttl, at time.Duration }{
		{math.MinInt64, 0}, {-1, 0}, {0, 0}, {1, ms}, {ms, ms}, {ms + 1, 2 * ms}, {400 * 24 * time.Hour, 400 * 24 * time.Hour}, {math.MaxInt64, -1},
	} {
		for name, store := range map[string]func(*manualMap){
			"new":      func(m *manualMap) { m.StoreFor("k", 1, c.ttl) },
			"replaced": func(m *manualMap) { m.Store("k", 0); m.StoreFor("k", 1, c.ttl) },
			"touched":  func(m *manualMap) { m.StoreFor("k", 1, c.ttl); m.Touch("k") },
			"longer":   func(m *manualMap) { m.StoreFor("k", 0, math.MaxInt64); m.StoreFor("k", 1, c.ttl) },
		} {
			m := newManualMap(t, time.Hour)
			m.pass(5 * ms)
			store(m)
			if c.at < 0 {
				m.pass(250 * 365 * 24 * time.Hour)
				assert.Equal(t, 1, load(m.Map, "k"), "%s %v", name, c.ttl)
				assert.Empty(t, m.expired)
				continue
			}
			if c.at > 0 {
				m.pass(c.at - 1)
				assert.Equal(t, 1, load(m.Map, "k"), "%s %v", name, c.ttl)
				assert.Empty(t, m.expired)
				m.pass(1)
			}
			assert.Equal(t, -1, load(m.Map, "k"), "%s %v", name, c.ttl)
			m.pass(0)
			assert.Equal(t, []int{1}, m.expired["k"], "%s %v", name, c.ttl)
		}
	}
}

// Between two ticks the timer of such an entry is still pending, because its deadline is rounded up
// to the next tick. No call finds the entry even then.
func TestMapNeverShowsEntryWithoutPositiveTTL(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{math.MinInt64, -time.Hour, -1, 0} {
		for name, store := range map[string]func(*manualMap){
			"new":      func(m *manualMap) { m.StoreFor("k", 1, ttl) },
			"replaced": func(m *manualMap) { m.Store("k", 0); m.StoreFor("k", 1, ttl) },
		} {
			for call, sees := range map[string]func(*manualMap) bool{
				"Load":          func(m *manualMap) bool { return load(m.Map, "k") >= 0 },
				"Deadline":      func(m *manualMap) bool { _, ok := m.Deadline("k"); return ok },
				"Range":         func(m *manualMap) bool { return len(maps.Collect(m.Range)) > 0 },
				"Touch":         func(m *manualMap) bool { return m.Touch("k") },
				"LoadAndDelete": func(m *manualMap) bool { _, ok := m.LoadAndDelete("k"); return ok },
				"Swap":          func(m *manualMap) bool { _, ok := m.Swap("k", 2); return ok },
				"LoadOrStore":   func(m *manualMap) bool { _, ok := m.LoadOrStore("k", 2); return ok },
			} {
				m := newManualMap(t, time.Hour)
				m.pass(ms / 3)
				store(m)
				assert.False(t, sees(m), "%s %v, %s", name, ttl, call)
				m.pass(ms)
				assert.Equal(t, []int{1}, m.expired["k"], "%s %v, %s", name, ttl, call)
			}
		}
	}
}

// Range calls its function no more once Stop has returned.
func TestMapStopEndsRange(t *testing.T) {
	t.Parallel()
	m := newMap[uint64, int](t, timingwheel.Options{}, time.Hour, nil)
	for i := range 100 {
		m.Store(uint64(i), i)
	}
	seen := 0
	for range m.Range {
		seen++
		m.Stop()
	}
	assert.Equal(t, 1, seen)
}

// A call that began before Stop and reads the timer afterwards leaves the entry alone: the timer is
// not pending because it was stopped, and not because it was claimed.
func TestMapCallOvertakenByStopExpiresNothing(t *testing.T) {
	t.Parallel()
	m := newManualMap(t, time.Hour)
	m.Store("k", 1)
	entries := m.entries.Load()
	m.Stop()
	_, _, ok := m.find(entries, "k")
	assert.False(t, ok)
	_, moved := m.Map.expired.first()
	assert.False(t, moved, "the entry was moved to expired")
}

// A zero Map or Keys has no wheel, so a key that it accepted would never expire.
func TestZeroValuePanicsInsteadOfLosingKeys(t *testing.T) {
	t.Parallel()
	var m Map[string, int]
	var k Keys[string]
	for name, call := range map[string]func(){
		"Store":       func() { m.Store("a", 1) },
		"Swap":        func() { m.Swap("a", 1) },
		"LoadOrStore": func() { m.LoadOrStore("a", 1) },
		"Set":         func() { k.Set("a", time.Hour) },
		"SetAt":       func() { k.SetAt("a", time.Now()) },
		"Stop":        m.Stop,
		"Keys.Stop":   k.Stop,
	} {
		assert.PanicsWithValue(t, "keyed: Map or Keys not made by NewMap or New", call, name)
	}
}

// Without a String method fmt would read the fields, which is a data race with other goroutines.
func TestStringDescribesWheel(t *testing.T) {
	t.Parallel()
	m := newMap[uint64, int](t, timingwheel.Options{Name: "sessions"}, time.Hour, nil)
	m.Store(1, 1)
	assert.Contains(t, fmt.Sprint(m), `Timeouts "sessions": 1 pending, `)
}

func TestNewMapRejectsBadInput(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, -time.Second} {
		_, err := NewMap[uint64, int](timingwheel.Options{}, ttl, nil)
		require.ErrorIs(t, err, ErrBadTimeout)
		assert.ErrorContains(t, err, ttl.String())
	}
	_, err := NewMap[uint64, int](timingwheel.Options{Tick: -1}, time.Second, nil)
	require.ErrorIs(t, err, timingwheel.ErrOption)

	m := newMap[any, wide](t, timingwheel.Options{Manual: true}, time.Second, nil)
	nan := math.NaN()
	assert.Panics(t, func() { m.Store(nan, wide{}) })
	assert.Panics(t, func() { m.LoadOrStore(nan, wide{}) })
	_, ok := m.Load(nan)
	assert.False(t, ok || m.Touch(nan) || m.Delete(nan))
	assert.Zero(t, m.Stats().Armed)
}

// Expired entries are removed even without an expire function, including overdue entries that a
// Load has found.
func TestMapWithNilExpireRemovesEntries(t *testing.T) {
	t.Parallel()
	m := newMap[uint64, int](t, timingwheel.Options{Manual: true, Around: func(_ timingwheel.Call, run func()) { run() }}, time.Second, nil)
	for i := range uint64(1000) {
		m.Store(i, 1)
		m.StoreFor(1000+i, 1, 0)
		_, ok := m.Load(1000 + i)
		assert.False(t, ok)
	}
	m.Advance(m.Now().Add(time.Second))
	assert.Zero(t, m.Len())
	assert.Nil(t, m.expired.items)
}

// An entry of a Map has two durations besides its value and timer. An entry of Keys has only its
// timer.
func TestEntrySizes(t *testing.T) {
	t.Parallel()
	timer := unsafe.Sizeof(timingwheel.Timer{})
	assert.Equal(t, timer, unsafe.Sizeof(entry[struct{}]{}))
	assert.Equal(t, timer+24, unsafe.Sizeof(mapEntry[uint64]{}))
}

// heldMap is a Map in Manual mode whose claimed batches wait until the test sweeps them.
type heldMap struct {
	*Map[string, int]
	batches  [][]string
	reported []int
}

func newHeldMap(tb testing.TB) *heldMap {
	tb.Helper()
	h := &heldMap{}
	h.Map = &Map[string, int]{ttl: time.Second, expire: func(_ string, value int) { h.reported = append(h.reported, value) }}
	opts := timingwheel.Options{Manual: true, Start: time.Unix(1_700_000_000, 0)}
	require.NoError(tb, h.Map.initMap(opts, nil, func(claimed []string) { h.batches = append(h.batches, slices.Clone(claimed)) }))
	tb.Cleanup(h.Stop)
	return h
}

func (h *heldMap) sweepOne(i int) {
	batch := h.batches[i]
	h.batches = slices.Delete(h.batches, i, i+1)
	h.sweep(batch)
}

// mapModel is the reference: a plain map with a deadline for each key.
type mapModel struct {
	t       assert.TestingT
	h       *heldMap
	n       int // values are numbers
	entries map[string]mapReference
	expired map[int]bool // values whose deadline has passed, and whether they have been reported
	seen    int          // how many of h.reported have been checked
}

type mapReference struct {
	value    int
	ttl      time.Duration
	deadline time.Time // rounded up to a tick
}

func newMapModel(t *testing.T) *mapModel {
	return &mapModel{t: withoutHelper{t}, h: newHeldMap(t), entries: map[string]mapReference{}, expired: map[int]bool{}}
}

func (m *mapModel) deadline(ttl time.Duration) time.Time {
	d := m.h.Now().Sub(m.h.begin) + max(ttl, 0)
	if ttl <= 0 {
		return m.h.Now()
	}
	return m.h.begin.Add((d + ms - 1) / ms * ms)
}

func (m *mapModel) expireByClock() {
	for key, r := range m.entries {
		if !m.h.Now().Before(r.deadline) {
			m.expired[r.value] = false
			delete(m.entries, key)
		}
	}
}

func (m *mapModel) store(key string, ttl time.Duration) {
	m.n++
	if r, present := m.entries[key]; m.n%3 == 0 && ttl == m.h.ttl {
		previous, loaded := m.h.Swap(key, m.n)
		assert.Equal(m.t, present, loaded)
		assert.Equal(m.t, r.value, previous)
	} else {
		m.h.StoreFor(key, m.n, ttl)
	}
	m.entries[key] = mapReference{m.n, ttl, m.deadline(ttl)}
	m.check()
}

func (m *mapModel) loadOrStore(key string) {
	m.n++
	r, present := m.entries[key]
	actual, loaded := m.h.LoadOrStore(key, m.n)
	assert.Equal(m.t, present, loaded, "LoadOrStore")
	if !present {
		r = mapReference{m.n, m.h.ttl, m.deadline(m.h.ttl)}
		m.entries[key] = r
	}
	assert.Equal(m.t, r.value, actual)
	m.check()
}

func (m *mapModel) touch(key string) {
	r, present := m.entries[key]
	assert.Equal(m.t, present, m.h.Touch(key), "Touch")
	if present {
		r.deadline = m.deadline(r.ttl)
		m.entries[key] = r
	}
	m.check()
}

func (m *mapModel) remove(key string) {
	r, present := m.entries[key]
	value, loaded := m.h.LoadAndDelete(key)
	assert.Equal(m.t, present, loaded, "LoadAndDelete")
	assert.Equal(m.t, r.value, value)
	delete(m.entries, key)
	m.check()
}

func (m *mapModel) look(key string) {
	r, present := m.entries[key]
	value, ok := m.h.Load(key)
	assert.Equal(m.t, present, ok, "Load")
	assert.Equal(m.t, r.value, value)
	deadline, ok := m.h.Deadline(key)
	assert.Equal(m.t, present, ok)
	assert.True(m.t, r.deadline.Equal(deadline), "%v instead of %v", deadline, r.deadline)
}

func (m *mapModel) all() {
	want := map[string]int{}
	for key, r := range m.entries {
		want[key] = r.value
	}
	assert.Equal(m.t, want, maps.Collect(m.h.Range))
}

func (m *mapModel) pass(d time.Duration) {
	m.h.Advance(m.h.Now().Add(d))
	m.check()
}

func (m *mapModel) sweep(last bool) {
	if n := len(m.h.batches); n > 0 {
		i := 0
		if last {
			i = n - 1
		}
		m.h.sweepOne(i)
		assert.Nil(m.t, m.h.expired.items, "the sweep did not report all of expired")
	}
	m.check()
}

// check verifies the invariants after each step. It reads no entry through the Map, because that
// would move an overdue entry to expired.
func (m *mapModel) check() {
	m.expireByClock()
	for ; m.seen < len(m.h.reported); m.seen++ {
		value := m.h.reported[m.seen]
		reported, ok := m.expired[value]
		assert.True(m.t, ok, "%d is reported early, or was deleted or replaced", value)
		assert.False(m.t, reported, "%d is reported twice", value)
		m.expired[value] = true
	}
	assert.GreaterOrEqual(m.t, m.h.Len(), len(m.entries))
}

func (m *mapModel) finish() {
	m.all()
	for range 2 {
		m.pass(3 * time.Hour)
		for len(m.h.batches) > 0 {
			m.sweep(true)
		}
	}
	for value, reported := range m.expired {
		assert.True(m.t, reported, "%d is lost", value)
	}
	assert.Zero(m.t, m.h.Len())
	assert.Zero(m.t, m.h.Stats().Pending)
	clear(m.expired)
}

var mapSteps = []struct {
	name string
	do   func(m *mapModel, key string)
}{
	{"StoreFor 0", func(m *mapModel, key string) { m.store(key, 0) }},
	{"StoreFor 1s", func(m *mapModel, key string) { m.store(key, time.Second) }},
	{"Touch", func(m *mapModel, key string) { m.touch(key) }},
	{"LoadAndDelete", func(m *mapModel, key string) { m.remove(key) }},
	{"Load", func(m *mapModel, key string) { m.look(key) }},
	{"claim", func(m *mapModel, _ string) { m.pass(0) }},
	{"a second", func(m *mapModel, _ string) { m.pass(time.Second) }},
	{"sweep the oldest", func(m *mapModel, _ string) { m.sweep(false) }},
	{"sweep the newest", func(m *mapModel, _ string) { m.sweep(true) }},
	{"LoadOrStore", func(m *mapModel, key string) { m.loadOrStore(key) }},
	{"Range", func(m *mapModel, _ string) { m.all() }},
	{"StoreFor 1.5ms", func(m *mapModel, key string) { m.store(key, 1500*time.Microsecond) }},
	{"300µs", func(m *mapModel, _ string) { m.pass(300 * time.Microsecond) }},
	{"7ms", func(m *mapModel, _ string) { m.pass(7 * ms) }},
	{"StoreFor 1h", func(m *mapModel, key string) { m.store(key, time.Hour) }},
}

// The test compares the Map with the reference for every sequence of a few steps on one key.
func TestMapModelEverySequence(t *testing.T) {
	t.Parallel()
	const choices = 10 // the first ones of mapSteps
	length := 5
	switch {
	case underRace: // this test has one goroutine, so the race detector finds nothing
		length = 3
	case !testscale.Full():
		length = 4
	}
	m := newMapModel(t)
	for n := range int(math.Pow(choices, float64(length))) {
		var names []string
		for rest, i := n, 0; i < length; rest, i = rest/choices, i+1 {
			step := mapSteps[rest%choices]
			names = append(names, step.name)
			step.do(m, "k")
		}
		m.finish()
		if t.Failed() {
			t.Fatalf("the steps were %q", names)
		}
	}
}

func TestMapModelRandomSequences(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for run := range uint64(scaled(60)) {
		rng := rand.New(rand.NewPCG(seed, run))
		input := make([]byte, 600)
		for i := range input {
			input[i] = byte(rng.Uint32())
		}
		runMapModel(t, input)
		if t.Failed() {
			t.Fatalf("seed %d, run %d", seed, run)
		}
	}
}

// FuzzMap compares a Map with a plain map.
func FuzzMap(f *testing.F) {
	f.Add([]byte{0, 5, 1, 7, 6, 7})
	f.Add([]byte("0123456789 store, claim, load, store again, sweep the newest and then the oldest"))
	f.Fuzz(func(t *testing.T, input []byte) { runMapModel(t, input[:min(len(input), 2000)]) })
}

// runMapModel runs the steps that input selects, with two bytes for each: the step, and the key.
func runMapModel(t *testing.T, input []byte) {
	m := newMapModel(t)
	for ; len(input) >= 2; input = input[2:] {
		mapSteps[int(input[0])%len(mapSteps)].do(m, string('a'+rune(input[1]%6)))
	}
	m.finish()
}

// mapRace records the history of each key and the outcome of each value. Every stored value is a
// different number.
type mapRace struct {
	m         *Map[uint64, int]
	base      time.Time
	histories []history
	values    []valueOutcome // by value
	stored    atomic.Int64
}

type valueOutcome struct {
	begin, minDeadline time.Duration // when the call that stored it began; when it may expire
	ends               atomic.Int32
}

func (r *mapRace) now() time.Duration { return time.Since(r.base) }

// mapState returns the state of a key for the checker: 0 if the key is absent, otherwise the value
// and whether it expires late.
func mapState(value int, late bool) int {
	if late {
		return 2*value + 1
	}
	return 2 * value
}

// call makes a random call with the key and returns it as an event.
func (r *mapRace) call(key uint64) event {
	late := rand.IntN(3) == 0
	ttl := time.Hour
	if !late {
		ttl = rand.N(60 * time.Microsecond)
	}
	e := event{begin: r.now(), answer: true}
	// found sets the answer of a call that found value, or found no entry if value is 0.
	found := func(name string, value int, next func(state int) int) {
		e.name = fmt.Sprint(name, " finds ", value)
		e.next = func(state int) (int, bool) { return next(state), state/2 == value }
	}
	same := func(state int) int { return state }
	switch rand.IntN(7) {
	case 0, 1, 2:
		value := int(r.stored.Add(1))
		r.values[value].begin, r.values[value].minDeadline = e.begin, e.begin+ttl
		if late {
			previous, _ := r.m.Swap(key, value)
			r.end(previous)
			found(fmt.Sprint("Swap ", value), previous, func(int) int { return mapState(value, true) })
			break
		}
		previous, _ := r.m.swap(key, value, ttl)
		r.end(previous)
		found(fmt.Sprint("Swap ", value, " for ", ttl), previous, func(int) int { return mapState(value, false) })
	case 3:
		touched := r.m.Touch(key)
		e.answer, e.name = touched, "Touch"
		e.next = func(state int) (int, bool) { return state, state != 0 }
	case 4:
		value, _ := r.m.LoadAndDelete(key)
		r.end(value)
		found("LoadAndDelete", value, func(int) int { return 0 })
	case 5:
		value := 0
		if rand.IntN(20) > 0 {
			value, _ = r.m.Load(key)
			found("Load", value, same)
			break
		}
		r.m.Range(func(k uint64, v int) bool {
			if k == key {
				value = v
			}
			return k != key
		})
		found("Range", value, same)
	default:
		deadline, ok := r.m.Deadline(key)
		e.answer = ok && deadline.After(r.m.Now().Add(time.Minute))
		e.name = "Deadline"
		e.next = func(state int) (int, bool) { return state, state%2 == 1 }
	}
	e.end = r.now()
	return e
}

func (r *mapRace) load(key uint64) int {
	value, _ := r.m.Load(key)
	return value
}

func (r *mapRace) end(value int) {
	if value != 0 {
		r.values[value].ends.Add(1)
	}
}

// Goroutines store, touch, delete and load the same keys while the keys expire. For each key there
// must be an order of the calls and expiries in which each result is right. Each value ends once,
// and none expires early.
func TestMapRaceIsLinearizable(t *testing.T) {
	t.Parallel()
	for name, opts := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raceMap(t, opts, func(_ *Map[uint64, int], over <-chan struct{}) { <-over })
		})
	}
	t.Run("manual", func(t *testing.T) {
		t.Parallel()
		opts := timingwheel.Options{Manual: true, Tick: 20 * time.Microsecond, WheelSize: 4, Shards: 3}
		raceMap(t, opts, func(m *Map[uint64, int], over <-chan struct{}) {
			for {
				select {
				case <-over:
					return
				default:
					m.Advance(m.Now().Add(10 * time.Microsecond))
					runtime.Gosched()
				}
			}
		})
	})
}

func raceMap(t *testing.T, opts timingwheel.Options, drive func(m *Map[uint64, int], over <-chan struct{})) {
	const goroutines, calls = 3, 4
	n := scaled(2000)
	r := &mapRace{base: time.Now(), histories: make([]history, n), values: make([]valueOutcome, n*goroutines*calls+1)}
	r.m = &Map[uint64, int]{ttl: time.Hour, expire: func(key uint64, value int) {
		outcome := &r.values[value]
		now := r.now()
		if !opts.Manual && now < outcome.minDeadline {
			t.Errorf("value %d expires %v early", value, outcome.minDeadline-now)
		}
		r.end(value)
		r.histories[key].add(event{outcome.begin, now, fmt.Sprint("expiry of ", value), true, func(state int) (int, bool) {
			return 0, state == mapState(value, false)
		}})
		if rand.IntN(20) == 0 {
			panic("must lose no other entry")
		}
	}}
	opts.OnPanic = func(any, []byte) {}
	require.NoError(t, r.m.initMap(opts, nil, func(claimed []uint64) {
		if rand.IntN(4) == 0 {
			runtime.Gosched()
		}
		r.m.sweep(claimed)
	}))
	t.Cleanup(r.m.Stop)

	over, driven := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(driven)
		drive(r.m, over)
	}()
	var arrived atomic.Int64
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for key := range n {
				for arrived.Add(1); arrived.Load() < int64(goroutines*(key+1)); {
					runtime.Gosched()
				}
				for range calls {
					r.histories[key].add(r.call(uint64(key)))
				}
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool {
		late := 0
		for key := range uint64(n) {
			if deadline, ok := r.m.Deadline(key); ok {
				if deadline.Before(r.m.Now().Add(time.Minute)) {
					return false
				}
				late++
			}
		}
		st := r.m.Stats()
		_, unreported := r.m.expired.first()
		return st.Running == 0 && st.Pending == late && r.m.Len() == late && !unreported
	}, time.Minute, 5*ms, "an entry is lost")
	close(over)
	<-driven
	r.check(t)
}

func (r *mapRace) check(t *testing.T) {
	t.Helper()
	for key := range r.histories {
		last := r.load(uint64(key))
		r.end(last)
		if events := r.histories[key].events; !linearizable(events, func(state int) bool { return state/2 == last }) {
			slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.begin, b.begin) })
			for _, e := range events {
				t.Logf("%v to %v: %s: %v", e.begin, e.end, e.name, e.answer)
			}
			t.Fatalf("key %d: no order of these events explains the results and the final value %d", key, last)
		}
	}
	for value := 1; value <= int(r.stored.Load()); value++ {
		if ends := r.values[value].ends.Load(); ends != 1 {
			t.Fatalf("value %d ended %d times", value, ends)
		}
	}
}

// With the default executor entries expire on time, and no goroutine is left: otherwise the bubble
// would not end.
func TestMapExpiresInSynctestBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begin, at := time.Now(), map[string]time.Duration{}
		m := newMap(t, timingwheel.Options{}, time.Minute, func(key string, value int) {
			mu.Lock()
			defer mu.Unlock()
			at[key] = time.Since(begin)
		})
		m.Store("a", 1)
		m.StoreFor("b", 1, time.Hour)
		m.Store("touched", 1)
		m.Store("replaced", 1)
		m.Store("deleted", 1)
		time.Sleep(time.Minute - 1)
		assert.Equal(t, 1, load(m, "a"))
		assert.True(t, m.Touch("touched"))
		m.Store("replaced", 2)
		assert.True(t, m.Delete("deleted"))
		time.Sleep(1 + ms) // now the deadline, rounded up to a tick, has passed
		assert.Equal(t, -1, load(m, "a"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for key, want := range map[string]time.Duration{"a": time.Minute, "b": time.Hour, "touched": 2*time.Minute - 1, "replaced": 2*time.Minute - 1} {
			assert.GreaterOrEqual(t, at[key], want, key)
			assert.LessOrEqual(t, at[key], want+ms, key)
		}
		assert.Len(t, at, 4)
		m.Stop()
	})
}

// While an Inline callback blocks the wheel, Load finds no entry whose deadline has passed. A Store
// then adds a new entry, and both values are reported once.
func TestMapHidesOverdueEntryWhileWheelIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var values []int
		reported := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(values)
		}
		gate := make(chan struct{})
		m := newMap(t, timingwheel.Options{Executor: timingwheel.Inline, Shards: 1}, time.Minute, func(_ string, value int) {
			if value == 0 {
				<-gate
			}
			mu.Lock()
			defer mu.Unlock()
			values = append(values, value)
		})
		m.StoreFor("blocks", 0, time.Second)
		m.StoreFor("k", 1, 2*time.Second)
		time.Sleep(2*time.Second - 1)
		assert.Equal(t, 1, load(m, "k"))
		time.Sleep(1 * time.Nanosecond)
		assert.Equal(t, -1, load(m, "k"))
		assert.False(t, m.Touch("k"))
		assert.False(t, m.Delete("k"))
		m.Store("k", 2)
		assert.Equal(t, 2, load(m, "k"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Empty(t, reported())
		close(gate)
		synctest.Wait()
		assert.Equal(t, []int{0, 1}, reported())
		assert.Equal(t, 2, load(m, "k"))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2}, reported())
		m.Stop()
	})
}

// While the expire function blocks, entries that wait to be reported are counted: each of n values
// is in the map, counted by Expired, or was passed to the expire function.
func TestMapCountsExpiredEntriesWhileExpireBlocks(t *testing.T) {
	t.Parallel()
	const n = 10_000
	for name, executor := range map[string]timingwheel.Executor{"default": nil, "inline": timingwheel.Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				gate := make(chan struct{})
				m := newMap(t, timingwheel.Options{Executor: executor, Shards: 1}, time.Minute, func(string, int) {
					calls.Add(1)
					<-gate
				})
				require.Zero(t, m.Expired())
				for i := range n {
					m.StoreFor("key", i, -1)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				require.LessOrEqual(t, m.Len(), 1)
				require.Equal(t, n, m.Len()+m.Expired()+int(calls.Load()))
				require.Greater(t, m.Expired(), n/2)
				require.Equal(t, m.Expired(), m.Stats().Expired)
				close(gate)
				synctest.Wait()
				require.EqualValues(t, n, calls.Load())
				require.Zero(t, m.Expired())
				require.Zero(t, m.Stats().Expired)
				m.Stop()
			})
		})
	}
}

// Entries that wait to be reported when the Map is stopped are discarded like all others.
func TestMapIsEmptyAfterStopWhileExpireBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		m := newMap(t, timingwheel.Options{Executor: timingwheel.Inline, Shards: 1}, time.Minute, func(string, int) { <-gate })
		m.StoreFor("key", 1, -1)
		time.Sleep(time.Second)
		m.StoreFor("key", 2, -1)
		m.StoreFor("key", 3, -1)
		require.Equal(t, 1, m.Expired())
		m.Stop()
		require.Zero(t, m.Expired())
		require.Zero(t, m.Stats().Expired)
		close(gate)
	})
}

// A panic or Goexit in the expire function loses no other entry of its batch.
func TestMapPanicLosesNoOtherEntry(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 1000
				var reported [n]atomic.Int32
				m := newMap(t, timingwheel.Options{OnPanic: func(any, []byte) {}}, time.Second, func(key uint64, _ int) {
					reported[key].Add(1)
					if key%3 == 0 {
						leave()
					}
				})
				for key := range uint64(n) {
					m.Store(key, 1)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				for key := range n {
					assert.EqualValues(t, 1, reported[key].Load(), key)
				}
				assert.Zero(t, m.Len())
				m.Stop()
			})
		})
	}
}

func TestMapExpireMayCallEveryMethod(t *testing.T) {
	t.Parallel()
	var m *Map[string, int]
	var reported []int
	m = newMap(t, timingwheel.Options{Manual: true}, time.Second, func(key string, value int) {
		reported = append(reported, value)
		assert.Equal(t, -1, load(m, key))
		if value == 1 {
			assert.Equal(t, -1, load(m, "b"), "b is due too")
		}
		assert.False(t, m.Delete(key))
		switch {
		case value < 3:
			m.Store(key, value+2)
		case value == 4:
			m.Stop()
			m.Store(key, 5)
			assert.Equal(t, -1, load(m, key))
		}
	})
	m.Store("a", 1)
	m.Store("b", 2)
	m.Advance(m.Now().Add(time.Second))
	assert.ElementsMatch(t, []int{1, 2}, reported, "the same Advance must report the entry that Load found overdue")
	assert.Equal(t, 2, m.Len())
	m.Advance(m.Now().Add(time.Second))
	assert.Subset(t, reported, []int{1, 2, 4})
	assert.Zero(t, m.Len())
}

// Load, Touch, Deadline, Delete and expiry allocate nothing. A Store makes one allocation.
func TestMapCallsDoNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	testMapAllocs(t, func(i int) string { return fmt.Sprint("connection ", i) }, 1)
	testMapAllocs(t, func(i int) any { return i }, wide{})

	m := newMap(t, timingwheel.Options{Manual: true}, time.Hour, func(uint64, int) {})
	for i := range 20_000 {
		m.StoreFor(uint64(i), i, time.Duration(i/50+1)*ms)
	}
	step := func() { m.Advance(m.Now().Add(ms)) }
	for range 10 {
		step()
	}
	assert.Zero(t, testing.AllocsPerRun(100, step), "expiry")
	assert.Less(t, m.Len(), 15_000)
}

func testMapAllocs[K comparable, V any](t *testing.T, key func(i int) K, value V) {
	t.Helper()
	const n = 1000
	for _, manual := range []bool{false, true} {
		m := newMap(t, timingwheel.Options{Manual: manual}, time.Hour, func(K, V) {})
		keys := make([]K, n)
		for i := range keys {
			keys[i] = key(i)
			m.Store(keys[i], value)
		}
		i := 0
		for name, c := range map[string]struct {
			f    func(key K)
			want float64
		}{
			"Load":             {func(key K) { m.Load(key) }, 0},
			"Touch":            {func(key K) { m.Touch(key) }, 0},
			"Deadline":         {func(key K) { m.Deadline(key) }, 0},
			"LoadOrStore":      {func(key K) { m.LoadOrStore(key, value) }, 0},
			"Store":            {func(key K) { m.Store(key, value) }, 1},
			"Delete and Store": {func(key K) { m.Delete(key); m.Store(key, value) }, 1},
		} {
			assert.Equal(t, c.want, testing.AllocsPerRun(n, func() { c.f(keys[i%n]); i++ }), "%T, %T: %s, manual=%v", keys[0], value, name, manual)
		}
	}
}

// wide is a large value with a pointer. The tests share a few combinations of types, because each
// takes the compiler about a second.
type wide struct {
	object *object
	_      [7]uint64
}

// The garbage collector frees a value that was replaced, deleted, reported or discarded.
func TestMapReleasesRemovedValues(t *testing.T) {
	t.Parallel()
	const n = 700
	for name, end := range map[string]func(m *Map[any, wide], key any){
		"deleted":  func(m *Map[any, wide], key any) { m.Delete(key) },
		"replaced": func(m *Map[any, wide], key any) { m.Store(key, wide{}) },
		"expired":  func(m *Map[any, wide], key any) { m.StoreFor(key, wide{object: &object{}}, 0) },
		"found overdue": func(m *Map[any, wide], key any) {
			m.StoreFor(key, wide{object: &object{}}, 0)
			m.Load(key)
		},
		"stopped": func(m *Map[any, wide], _ any) { m.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMap(t, timingwheel.Options{}, time.Hour, func(any, wide) {})
			refs := func() []weak.Pointer[object] {
				refs := make([]weak.Pointer[object], n)
				for i := range refs {
					o := &object{}
					refs[i] = weak.Make(o)
					m.Store(i, wide{object: o})
				}
				for i := range refs {
					end(m, i)
				}
				return refs
			}()
			require.Eventually(t, func() bool {
				runtime.GC()
				return !slices.ContainsFunc(refs, func(ref weak.Pointer[object]) bool { return ref.Value() != nil })
			}, time.Minute, 5*ms, "some values are still reachable")
			runtime.KeepAlive(m)
		})
	}
}

// However many entries were added and removed, only the entries that are present take memory.
func TestMapMemoryStaysBoundedUnderChurn(t *testing.T) {
	// Not parallel: it measures the heap.
	const present = 10_000
	m := newMap(t, timingwheel.Options{Manual: true}, time.Second, func(any, wide) {})
	churn := func(rounds int) {
		for range rounds {
			for key := range present {
				m.Store(key, wide{})
				m.Store(key, wide{})
			}
			for key := range present / 2 {
				m.Delete(key)
			}
			m.Advance(m.Now().Add(2 * time.Second))
		}
	}
	churn(3)
	before := heapInUse()
	churn(scaled(60))
	after := heapInUse()
	assert.Zero(t, m.Len())
	assert.Less(t, int64(after)-int64(before), int64(present*50), "from %d to %d bytes", before, after)
}
