package keyed

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// underRace is true in a build with the race detector, which allocates memory itself.
var underRace bool

// pair is a key with a string and an array.
type pair struct {
	host  string
	ports [4]uint32
}

// Touch, Set of a present key, Beat and all lookups allocate nothing, for any type of key.
func TestCallsDoNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	t.Run("uint64", func(t *testing.T) { testAllocs(t, func(i int) uint64 { return uint64(i) }) })
	t.Run("string", func(t *testing.T) { testAllocs(t, func(i int) string { return fmt.Sprintf("connection %d", i) }) })
	t.Run("struct", func(t *testing.T) {
		testAllocs(t, func(i int) pair { return pair{fmt.Sprintf("host %d", i), [4]uint32{uint32(i)}} })
	})
	t.Run("interface", func(t *testing.T) { testAllocs(t, func(i int) any { return fmt.Sprintf("connection %d", i) }) })
}

func testAllocs[K comparable](t *testing.T, key func(int) K) {
	t.Helper()
	const n = 1000
	keys := make([]K, n)
	for i := range keys {
		keys[i] = key(i)
	}
	for _, manual := range []bool{false, true} {
		k := newKeys[K](t, timingwheel.Options{Manual: manual}, func([]K) {})
		h, err := NewHeartbeats(timingwheel.Options{Manual: manual}, time.Hour, func([]K) {})
		require.NoError(t, err)
		t.Cleanup(h.Stop)
		for _, key := range keys {
			k.Set(key, time.Hour)
			h.Beat(key)
		}
		at := k.Now().Add(time.Hour)
		i := 0
		for name, f := range map[string]func(K){
			"Touch":    func(key K) { k.Touch(key, time.Hour) },
			"TouchAt":  func(key K) { k.TouchAt(key, at) },
			"Set":      func(key K) { k.Set(key, time.Hour) },
			"SetAt":    func(key K) { k.SetAt(key, at) },
			"Has":      func(key K) { k.Has(key) },
			"Deadline": func(key K) { k.Deadline(key) },
			"Beat":     func(key K) { h.Beat(key) },
			"Alive":    func(key K) { h.Alive(key) },
		} {
			allocs := testing.AllocsPerRun(n, func() { f(keys[i%n]); i++ })
			assert.Zero(t, allocs, "%s, manual=%v", name, manual)
		}
	}
}

// Neither the sweep nor the reported slice allocates.
func TestDeleteAndExpiryDoNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	const n, perStep, steps = 20_000, 50, 100
	reported := 0
	k := newKeys(t, timingwheel.Options{Manual: true}, func(keys []string) { reported += len(keys) })
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("connection %d", i)
		k.Set(keys[i], time.Duration(i/perStep+1)*time.Millisecond)
	}
	now := k.Now()
	step := func() {
		now = now.Add(time.Millisecond)
		k.Advance(now)
	}
	for range 10 {
		step() // makes the wheel's buffers
	}
	before := reported
	assert.Zero(t, testing.AllocsPerRun(steps, step), "expiry")
	assert.Equal(t, (steps+1)*perStep, reported-before)

	last := n
	assert.Zero(t, testing.AllocsPerRun(steps, func() {
		last--
		if !k.Delete(keys[last]) {
			t.Errorf("%s was not there", keys[last])
		}
	}), "Delete")
}
