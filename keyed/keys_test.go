package keyed

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

const ms = time.Millisecond

func newKeys[K comparable](tb testing.TB, opts timingwheel.Options, expire func([]K)) *Keys[K] {
	tb.Helper()
	k, err := New(opts, expire)
	require.NoError(tb, err)
	tb.Cleanup(k.Stop)
	return k
}

// recorder is a Keys in Manual mode that records the keys that are reported.
type recorder struct {
	*Keys[string]
	reported []string
}

func newRecorder(tb testing.TB) *recorder {
	tb.Helper()
	r := &recorder{}
	r.Keys = newKeys(tb, timingwheel.Options{Manual: true}, func(keys []string) { r.reported = append(r.reported, keys...) })
	return r
}

// pass advances the clock by d and returns the keys that are reported meanwhile.
func (r *recorder) pass(d time.Duration) []string {
	r.reported = nil
	r.Advance(r.Now().Add(d))
	return r.reported
}

// The test makes each call with a key in each state and checks its result and when the key expires.
func TestCallResultsInEachState(t *testing.T) {
	t.Parallel()
	states := map[string]func(*recorder){
		"absent":  func(*recorder) {},
		"present": func(r *recorder) { r.Set("k", 10*ms) },
		"deleted": func(r *recorder) { r.Set("k", 10*ms); r.Delete("k") },
		"expired": func(r *recorder) { r.Set("k", 0); r.pass(0) },
		"due":     func(r *recorder) { r.Set("k", 0) },
	}
	calls := map[string]func(*recorder) bool{
		"Set":     func(r *recorder) bool { return r.Set("k", 20*ms) },
		"SetAt":   func(r *recorder) bool { return r.SetAt("k", r.Now().Add(20*ms)) },
		"Touch":   func(r *recorder) bool { return r.Touch("k", 20*ms) },
		"TouchAt": func(r *recorder) bool { return r.TouchAt("k", r.Now().Add(20*ms)) },
		"Delete":  func(r *recorder) bool { return r.Delete("k") },
		"Has":     func(r *recorder) bool { return r.Has("k") },
	}
	for state, prepare := range states {
		for name, call := range calls {
			t.Run(state+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newRecorder(t)
				prepare(r)
				present := state == "present" || state == "due"
				sets := name == "Set" || name == "SetAt"
				touches := name == "Touch" || name == "TouchAt"

				assert.Equal(t, present != sets, call(r))

				var want []string
				at := time.Duration(-1) // not at all
				switch {
				case sets || touches && present:
					at = 20 * ms
				case name == "Has" && state == "present":
					at = 10 * ms
				case name == "Has" && state == "due":
					at = 0
				}
				for now := time.Duration(0); now <= 30*ms; now += ms {
					want = nil
					if now == at {
						want = []string{"k"}
					}
					require.Equal(t, want, r.pass(min(now, ms)), "after %v", now)
					require.Equal(t, now < at, r.Has("k"), "after %v", now)
				}
				assert.Zero(t, r.Len())
			})
		}
	}
}

func TestExpiresAtEveryDelay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d, at time.Duration
		never bool
	}{
		{d: math.MinInt64}, {d: -1}, {d: 0}, {d: 1, at: ms}, {d: ms, at: ms}, {d: ms + 1, at: 2 * ms}, {d: 400 * 24 * time.Hour, at: 400 * 24 * time.Hour},
		{d: math.MaxInt64, never: true},
	} {
		for name, set := range map[string]func(*recorder){
			"Set":        func(r *recorder) { r.Set("k", c.d) },
			"Touch":      func(r *recorder) { r.Set("k", time.Hour); r.Touch("k", c.d) },
			"second Set": func(r *recorder) { r.Set("k", time.Hour); r.Set("k", c.d) },
		} {
			r := newRecorder(t)
			set(r)
			if c.never {
				assert.Empty(t, r.pass(250*365*24*time.Hour), "%s %v", name, c.d)
				assert.True(t, r.Has("k"))
				continue
			}
			if c.at > 0 {
				assert.Empty(t, r.pass(c.at-1), "%s %v", name, c.d)
				assert.True(t, r.Has("k"))
			}
			assert.Equal(t, []string{"k"}, r.pass(1), "%s %v", name, c.d)
			assert.False(t, r.Has("k"))
			assert.Empty(t, r.pass(2*time.Hour), "%s %v", name, c.d)
		}
	}
}

func TestDeadlineLenAndAllAgree(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	begin := r.Now()
	want := map[string]time.Time{}
	for i, key := range []string{"a", "b", "c", "d"} {
		at := begin.Add(time.Duration(i+1) * time.Minute)
		r.SetAt(key, at)
		want[key] = at
	}
	r.Touch("a", time.Hour)
	want["a"] = begin.Add(time.Hour)
	r.Delete("b")
	delete(want, "b")
	r.pass(3 * time.Minute)
	delete(want, "c")

	assert.Equal(t, len(want), r.Len())
	got := maps.Collect(r.All())
	require.Len(t, got, len(want))
	for key, at := range want {
		deadline, ok := r.Deadline(key)
		require.True(t, ok)
		assert.True(t, at.Equal(deadline), "%s: %v instead of %v", key, deadline, at)
		assert.True(t, at.Equal(got[key]))
	}
	for _, key := range []string{"b", "c", "e"} {
		deadline, ok := r.Deadline(key)
		assert.False(t, ok)
		assert.Zero(t, deadline)
	}
	for key := range r.All() { // the body may call every method, and break
		r.Delete(key)
		r.Set(key+key, time.Minute)
		break
	}
	assert.Equal(t, len(want), r.Len())
	next, ok := r.Next()
	assert.True(t, ok)
	assert.False(t, next.After(begin.Add(4*time.Minute)))
}

// A key that is set many times has one timer. The memory of a deleted key's timer is reused
// immediately.
func TestEachKeyHasOneTimer(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	for i := range 1000 {
		assert.Equal(t, i == 0, r.Set("k", time.Duration(i%7)*time.Hour+ms))
		require.Equal(t, 1, r.Stats().Pending)
	}
	bytes := r.Stats().Bytes
	for range 10_000 {
		require.True(t, r.Delete("k"))
		require.True(t, r.Set("k", time.Hour))
	}
	assert.Equal(t, 1, r.Stats().Pending)
	assert.LessOrEqual(t, r.Stats().Bytes, 2*bytes)
}

func TestCallsAfterStopFindNoKey(t *testing.T) {
	t.Parallel()
	stops := map[string]func(*recorder){
		"Stop":     func(r *recorder) { r.Stop() },
		"Shutdown": func(r *recorder) { require.NoError(t, r.Shutdown(context.Background())) },
		"twice":    func(r *recorder) { r.Stop(); r.Stop(); require.NoError(t, r.Shutdown(context.Background())) },
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			r.Set("k", time.Hour)
			r.Set("due", 0)
			now := r.Now()
			stop(r)

			assert.False(t, r.Set("k", 0))
			assert.False(t, r.Set("new", 0))
			assert.False(t, r.SetAt("new", now))
			assert.False(t, r.Touch("k", 0))
			assert.False(t, r.TouchAt("k", now))
			assert.False(t, r.Delete("k"))
			assert.False(t, r.Has("k"))
			_, ok := r.Deadline("k")
			assert.False(t, ok)
			assert.Zero(t, r.Len())
			assert.Empty(t, maps.Collect(r.All()))
			_, ok = r.Next()
			assert.False(t, ok)
			assert.Equal(t, now, r.Now())
			assert.Zero(t, r.Advance(now.Add(2*time.Hour)))
			assert.Empty(t, r.reported)
			st := r.Stats()
			assert.Zero(t, st.Pending)
			assert.EqualValues(t, 2, st.Armed)
		})
	}
}

func TestNewRejectsBadInput(t *testing.T) {
	t.Parallel()
	expire := func([]string) {}
	_, err := New(timingwheel.Options{Tick: -1}, expire)
	require.ErrorIs(t, err, timingwheel.ErrOption)
	_, err = NewHeartbeats(timingwheel.Options{Tick: -1}, time.Second, expire)
	require.ErrorIs(t, err, timingwheel.ErrOption)
	for _, timeout := range []time.Duration{0, -time.Second} {
		_, err = NewHeartbeats(timingwheel.Options{}, timeout, expire)
		require.ErrorIs(t, err, ErrBadTimeout)
		assert.ErrorContains(t, err, timeout.String())
	}
	assert.PanicsWithValue(t, "keyed: New with a nil function", func() { _, _ = New[string](timingwheel.Options{}, nil) })
	assert.PanicsWithValue(t, "keyed: NewHeartbeats with a nil function", func() { _, _ = NewHeartbeats[string](timingwheel.Options{}, time.Second, nil) })
}

// The panic names the nil context and comes before the set is stopped.
func TestShutdownWithNilContextStopsNothing(t *testing.T) {
	t.Parallel()
	var none context.Context
	k := newKeys(t, timingwheel.Options{Manual: true}, func([]string) {})
	assert.PanicsWithValue(t, "keyed: Shutdown with a nil context", func() { _ = k.Shutdown(none) })
	assert.True(t, k.Set("k", time.Hour))
}

// The panic comes before a timer is armed.
func TestSetPanicsForKeyNotEqualToItself(t *testing.T) {
	t.Parallel()
	type point struct{ x, y float64 }
	k := newKeys(t, timingwheel.Options{Manual: true}, func(keys []any) { assert.NotContains(t, keys, nil) })
	for _, key := range []any{math.NaN(), point{1, math.NaN()}, [2]float64{math.NaN()}} {
		assert.PanicsWithValue(t, "keyed: key "+text(key)+" is not equal to itself, so it could never be found again", func() { k.Set(key, 0) })
		assert.Panics(t, func() { k.SetAt(key, k.Now()) })
		assert.False(t, k.Touch(key, 0))
		assert.False(t, k.Has(key))
		assert.False(t, k.Delete(key))
		_, ok := k.Deadline(key)
		assert.False(t, ok)
	}
	assert.Zero(t, k.Stats().Armed)
	assert.Zero(t, k.Len())
}

// Each call panics, as a Go map does, and releases the map's lock.
func TestIncomparableKeyPanicsWithoutHoldingLock(t *testing.T) {
	t.Parallel()
	k := newKeys(t, timingwheel.Options{Manual: true}, func([]any) {})
	for range 3 {
		for _, call := range []func(){
			func() { k.Set([]int{1}, time.Hour) },
			func() { k.Touch(map[int]int{}, time.Hour) },
			func() { k.Delete([]int{1}) },
			func() { k.Has(func() {}) },
			func() { k.Deadline(struct{ a any }{[]int{}}) },
		} {
			assert.Panics(t, call)
		}
	}
	for i := range 1000 {
		assert.True(t, k.Set(i, time.Hour))
	}
	assert.EqualValues(t, 1000, k.Stats().Armed)
}

// The dynamic type of an interface key matters, and 0 equals -0.
func TestKeysAreComparedAsInGoMap(t *testing.T) {
	t.Parallel()
	var got []any
	k := newKeys(t, timingwheel.Options{Manual: true}, func(keys []any) { got = append(got, keys...) })
	negative := math.Copysign(0, -1)
	for _, key := range []any{1, int64(1), "1", 1.0, 0.0, negative, nil, pair{host: "a"}, pair{host: "a"}} {
		k.Set(key, ms)
	}
	assert.Equal(t, 7, k.Len())
	k.Advance(k.Now().Add(ms))
	assert.Len(t, got, 7)
	assert.Equal(t, 1, len(slices.DeleteFunc(slices.Clone(got), func(key any) bool { return key != any(negative) })))
}

func text(v any) string { return fmt.Sprint(v) }
