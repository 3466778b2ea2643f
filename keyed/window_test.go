package keyed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// heldKeys is a Keys in Manual mode whose claimed batches wait until the test sweeps them. In
// production the window between the claim and the sweep is open for a microsecond.
type heldKeys struct {
	*Keys[string]
	batches  [][]string
	reported []string
}

func newHeldKeys(tb testing.TB) *heldKeys {
	tb.Helper()
	h := &heldKeys{}
	h.Keys = &Keys[string]{expire: func(keys []string) {
		assert.NotEmpty(tb, keys)
		for _, key := range keys {
			assert.False(tb, h.Has(key), "%s is reported before it is removed", key)
		}
		h.reported = append(h.reported, keys...)
	}}
	opts := timingwheel.Options{Manual: true, Start: time.Unix(1_700_000_000, 0)}
	require.NoError(tb, h.init(opts, nil, func(claimed []string) { h.batches = append(h.batches, slices.Clone(claimed)) }))
	return h
}

// pass advances the clock, so that the timers that are due are claimed.
func (h *heldKeys) pass(d time.Duration) { h.Advance(h.Now().Add(d)) }

// sweepOne sweeps the i-th waiting batch and returns the keys that it reports.
func (h *heldKeys) sweepOne(i int) (reported []string) {
	batch := h.batches[i]
	h.batches = slices.Delete(h.batches, i, i+1)
	h.reported = nil
	h.sweep(batch)
	return h.reported
}

// The test claims a key, makes some calls, and sweeps the batch.
func TestCallsBetweenClaimAndSweep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, h *heldKeys)
		reported  bool          // by the sweep
		again     time.Duration // when it is reported afterwards; -1: not at all
	}{
		"nothing": {func(t *testing.T, h *heldKeys) {
			assert.True(t, h.Has("k"))
			assert.Equal(t, 1, h.Len())
			_, ok := h.Deadline("k")
			assert.False(t, ok, "a claimed timer has no deadline")
			assert.Empty(t, maps.Collect(h.All()))
		}, true, -1},
		"Set":        {func(t *testing.T, h *heldKeys) { assert.False(t, h.Set("k", time.Second)) }, false, time.Second},
		"Set to now": {func(t *testing.T, h *heldKeys) { assert.False(t, h.Set("k", 0)) }, false, 0},
		"SetAt":      {func(t *testing.T, h *heldKeys) { assert.False(t, h.SetAt("k", h.Now().Add(time.Second))) }, false, time.Second},
		"Touch":      {func(t *testing.T, h *heldKeys) { assert.True(t, h.Touch("k", time.Second)) }, false, time.Second},
		"TouchAt":    {func(t *testing.T, h *heldKeys) { assert.True(t, h.TouchAt("k", h.Now().Add(time.Second))) }, false, time.Second},
		"two Touches": {func(t *testing.T, h *heldKeys) {
			assert.True(t, h.Touch("k", time.Second))
			assert.True(t, h.Touch("k", time.Minute))
		}, false, time.Minute},
		"Delete": {func(t *testing.T, h *heldKeys) {
			assert.True(t, h.Delete("k"))
			assert.False(t, h.Delete("k"))
			assert.False(t, h.Touch("k", time.Second))
		}, false, -1},
		"Delete and Set": {func(t *testing.T, h *heldKeys) {
			assert.True(t, h.Delete("k"))
			assert.True(t, h.Set("k", time.Second))
		}, false, time.Second},
		"Touch and Delete": {func(t *testing.T, h *heldKeys) {
			assert.True(t, h.Touch("k", time.Second))
			assert.True(t, h.Delete("k"))
		}, false, -1},
		"Stop": {func(t *testing.T, h *heldKeys) {
			h.Stop()
			assert.False(t, h.Has("k"))
		}, false, -1},
		"Touch and Stop": {func(_ *testing.T, h *heldKeys) { h.Touch("k", time.Second); h.Stop() }, false, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHeldKeys(t)
			defer h.Stop()
			require.True(t, h.Set("k", ms))
			h.pass(ms)
			require.Len(t, h.batches, 1)
			c.meanwhile(t, h)
			var want []string
			if c.reported {
				want = []string{"k"}
			}
			assert.Equal(t, want, h.sweepOne(0))
			if c.again < 0 {
				assert.False(t, h.Has("k"))
				h.pass(time.Hour)
				assert.Empty(t, h.batches)
				return
			}
			if c.again > 0 {
				h.pass(c.again - ms)
				assert.Empty(t, h.batches)
			}
			assert.True(t, h.Has("k"))
			h.pass(ms)
			require.Len(t, h.batches, 1)
			assert.Equal(t, []string{"k"}, h.sweepOne(0))
			assert.False(t, h.Has("k"))
		})
	}
}

// Two timers of one key have been claimed. The batch that is swept first reports the key, and the
// other one does not.
func TestTwoClaimsOfOneKeyReportItOnce(t *testing.T) {
	t.Parallel()
	for first := range 2 {
		for _, between := range []string{"nothing", "Set"} {
			h := newHeldKeys(t)
			h.Set("k", 0)
			h.pass(0)
			h.Set("k", 0)
			h.pass(0)
			require.Len(t, h.batches, 2)
			assert.Equal(t, []string{"k"}, h.sweepOne(first))
			if between == "Set" {
				assert.True(t, h.Set("k", time.Second))
			}
			assert.Empty(t, h.sweepOne(0))
			assert.Equal(t, between == "Set", h.Has("k"))
			h.Stop()
		}
	}
}

// During All the timers of all keys are replaced and the map grows, so the map shows stale entries.
// All must yield each key that is present throughout exactly once.
func TestAllMissesNoKeyWhileMapGrows(t *testing.T) {
	t.Parallel()
	const n = 300
	h := newHeldKeys(t)
	defer h.Stop()
	for i := range n {
		h.Set(fmt.Sprint(i), ms)
	}
	seen := map[string]int{}
	for key := range h.All() {
		if len(seen) == 0 {
			h.pass(ms) // claims them all
			for i := range n {
				require.True(t, h.Touch(fmt.Sprint(i), time.Hour))
				for j := range 100 {
					h.Set(fmt.Sprint("other ", i, " ", j), time.Hour)
				}
			}
		}
		seen[key]++
	}
	for i := range n {
		assert.Equal(t, 1, seen[fmt.Sprint(i)], i)
	}
}

// After the claim the key got a new timer, which is not due. Stop discards the new timer during the
// sweep. The sweep must not report the key because of its old timer.
func TestStopDuringSweepReportsNothing(t *testing.T) {
	t.Parallel()
	h := newHeldKeys(t)
	h.Set("k", 0)
	h.pass(0)
	require.False(t, h.Set("k", time.Hour))
	m := h.entries.Load()
	h.Stop()
	_, taken := h.removeClaimed(m, "k")
	assert.False(t, taken)
}

// The test sweeps at every moment of a call to Stop that takes long because the wheel has many
// shards.
func TestSweepsDuringStopReportNothing(t *testing.T) {
	t.Parallel()
	for range 20 {
		k := &Keys[string]{}
		var claimed []string
		opts := timingwheel.Options{Manual: true, Shards: 256}
		require.NoError(t, k.init(opts, nil, func(keys []string) { claimed = append(claimed, keys...) }))
		k.Set("k", 0)
		k.Advance(k.Now())
		require.Equal(t, []string{"k"}, claimed)
		require.True(t, k.Touch("k", time.Hour))
		m := k.entries.Load()
		sweeping := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			close(sweeping)
			for stopped := false; !stopped; {
				stopped = k.entries.Load() == nil
				if _, taken := k.removeClaimed(m, "k"); taken {
					t.Error("a key is removed early")
					return
				}
			}
		})
		<-sweeping
		k.Stop()
		group.Wait()
	}
}

// A Set or Touch that loaded the map before Stop discarded it adds no key.
func TestCallOvertakenByStopAddsNothing(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(h *heldKeys, m *entryMap[string, struct{}]) bool{
		"Set of an absent key": func(h *heldKeys, m *entryMap[string, struct{}]) bool { return h.setSlow(m, "new", expiry{}) },
		"Set of a present key": func(h *heldKeys, m *entryMap[string, struct{}]) bool { return h.setSlow(m, "k", expiry{}) },
		"Touch, a present key": func(h *heldKeys, m *entryMap[string, struct{}]) bool { return h.touchSlow(m, "k", expiry{}) },
		"Touch, an absent key": func(h *heldKeys, m *entryMap[string, struct{}]) bool { return h.touchSlow(m, "new", expiry{}) },
	} {
		h := newHeldKeys(t)
		h.Set("k", time.Hour)
		m := h.entries.Load()
		h.Stop()
		assert.False(t, call(h, m), name)
		assert.Zero(t, h.Len())
		assert.False(t, h.Has("new"))
	}
}

// A call on the slow path that finds a pending timer under the lock, because another call was
// faster, moves that timer and adds none.
func TestSlowPathMovesPendingTimer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(h *heldKeys) bool{
		"Set":   func(h *heldKeys) bool { return !h.setSlow(h.entries.Load(), "k", expiry{after: time.Second}) },
		"Touch": func(h *heldKeys) bool { return h.touchSlow(h.entries.Load(), "k", expiry{after: time.Second}) },
	} {
		h := newHeldKeys(t)
		h.Set("k", time.Hour)
		assert.True(t, call(h), name)
		assert.EqualValues(t, 1, h.Stats().Armed, name)
		deadline, _ := h.Deadline("k")
		assert.True(t, deadline.Equal(h.Now().Add(time.Second)), name)
		h.Stop()
	}
}

// steps are the steps of the exhaustive test and the fuzz target. Each acts on one key.
var steps = []struct {
	name string
	do   func(m *model, key string)
}{
	{"Set 0", func(m *model, key string) { m.set(key, 0) }},
	{"Set 1s", func(m *model, key string) { m.set(key, time.Second) }},
	{"Touch 0", func(m *model, key string) { m.touch(key, 0) }},
	{"Touch 1s", func(m *model, key string) { m.touch(key, time.Second) }},
	{"Delete", func(m *model, key string) { m.remove(key) }},
	{"claim", func(m *model, _ string) { m.pass(0) }},
	{"a second", func(m *model, _ string) { m.pass(time.Second) }},
	{"sweep the oldest", func(m *model, _ string) { m.sweepOldest() }},
	{"sweep the newest", func(m *model, _ string) { m.sweepNewest() }},
	{"Set 1.5ms", func(m *model, key string) { m.set(key, 1500*time.Microsecond) }},
	{"Touch -1", func(m *model, key string) { m.touch(key, -1) }},
	{"300µs", func(m *model, _ string) { m.pass(300 * time.Microsecond) }},
	{"7ms", func(m *model, _ string) { m.pass(7 * ms) }},
	{"Set 1h", func(m *model, key string) { m.set(key, time.Hour) }},
	{"2h", func(m *model, _ string) { m.pass(2 * time.Hour) }},
}

// The sequences include sweeps in either order.
func TestModelEverySequence(t *testing.T) {
	t.Parallel()
	const choices = 9 // the first ones of steps
	length := 5
	switch {
	case underRace: // this test has one goroutine, so the race detector finds nothing
		length = 3
	case !testscale.Full():
		length = 4
	}
	total := 1
	for range length {
		total *= choices
	}
	m := newModel(t)
	for n := range total {
		var names []string
		for rest, i := n, 0; i < length; rest, i = rest/choices, i+1 {
			step := steps[rest%choices]
			names = append(names, step.name)
			step.do(m, "k")
		}
		m.finish() // empty, for the next sequence
		if t.Failed() {
			t.Fatalf("the steps were %q", names)
		}
	}
}

// The sequences are long and use a few keys.
func TestModelRandomSequences(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	runs := uint64(60)
	if underRace {
		runs = 5
	}
	for run := range runs {
		rng := rand.New(rand.NewPCG(seed, run))
		input := make([]byte, 600)
		for i := range input {
			input[i] = byte(rng.Uint32())
		}
		runModel(t, input)
		if t.Failed() {
			t.Fatalf("seed %d, run %d", seed, run)
		}
	}
}

// FuzzKeys compares a Keys with a plain map.
func FuzzKeys(f *testing.F) {
	f.Add([]byte{0, 5, 1, 7, 6, 7})
	f.Add([]byte("0123456789 set, claim, set again, sweep the newest and then the oldest"))
	f.Fuzz(func(t *testing.T, input []byte) { runModel(t, input[:min(len(input), 2000)]) })
}

// runModel runs the steps that input selects, with two bytes for each: the step, and the key.
func runModel(t *testing.T, input []byte) {
	m := newModel(t)
	for ; len(input) >= 2; input = input[2:] {
		steps[int(input[0])%len(steps)].do(m, string('a'+rune(input[1]%6)))
	}
	m.finish()
}
