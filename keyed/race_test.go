package keyed

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// executors has options for each way to run expire. Small wheels make concurrent expiries frequent.
var executors = map[string]timingwheel.Options{
	"default":    {Tick: 50 * time.Microsecond, WheelSize: 4},
	"one shard":  {Tick: 50 * time.Microsecond, WheelSize: 4, Shards: 1},
	"inline":     {Tick: 50 * time.Microsecond, WheelSize: 4, Shards: 2, Executor: timingwheel.Inline},
	"goroutines": {Tick: 50 * time.Microsecond, WheelSize: 4, Shards: 2, Executor: timingwheel.Goroutines},
}

// scaled returns the size of a test: n, or a quarter of it if n would take too long.
func scaled(n int) int {
	if underRace || !testscale.Full() {
		return n / 4
	}
	return n
}

// drain waits until no timer is pending and no callback runs.
func drain[K comparable](tb testing.TB, k *Keys[K]) {
	tb.Helper()
	end := time.Now().Add(time.Minute)
	for {
		if st := k.Stats(); st.Pending+st.Running == 0 {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("timers or callbacks are left after a minute: %v", k)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// outcomes counts how often one key was added, reported and deleted.
type outcomes struct {
	added, reported, deleted atomic.Int64
}

// Goroutines set, touch and delete the same few keys with delays of up to three ticks, while the
// keys expire. Each Set that added a key has exactly one end. Calls that replace a deadline add
// none.
func TestRaceEachSetHasOneEnd(t *testing.T) {
	t.Parallel()
	for name, opts := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys, goroutines = 24, 8
			var all [keys]outcomes
			k := newKeys(t, opts, func(batch []uint64) {
				assert.NotEmpty(t, batch)
				for _, key := range batch {
					all[key].reported.Add(1)
				}
			})
			var group sync.WaitGroup
			for range goroutines {
				group.Go(func() {
					for range scaled(20_000) {
						randomCall(k, &all, rand.Uint64N(keys))
					}
				})
			}
			group.Wait()
			for key := range uint64(keys) {
				if k.Set(key, 0) {
					all[key].added.Add(1)
				}
			}
			drain(t, k)
			assert.Zero(t, k.Len())
			for key := range all {
				f := &all[key]
				assert.Equal(t, f.added.Load(), f.reported.Load()+f.deleted.Load(), "key %d: %d deleted", key, f.deleted.Load())
				assert.Positive(t, f.reported.Load(), "key %d never expired", key)
				assert.False(t, k.Has(uint64(key)))
			}
		})
	}
}

func randomCall(k *Keys[uint64], all *[24]outcomes, key uint64) {
	d := rand.N(60 * time.Microsecond)
	switch rand.IntN(10) {
	case 0, 1, 2:
		if k.Set(key, d) {
			all[key].added.Add(1)
		}
	case 3:
		if k.Set(key, 0) {
			all[key].added.Add(1)
		}
	case 4:
		if k.SetAt(key, time.Now().Add(d)) {
			all[key].added.Add(1)
		}
	case 5, 6:
		k.Touch(key, d)
	case 7:
		k.TouchAt(key, time.Now().Add(-d))
	case 8:
		if k.Delete(key) {
			all[key].deleted.Add(1)
		}
	default:
		k.Has(key)
		k.Deadline(key)
		if rand.IntN(50) == 0 {
			for range k.All() {
				k.Len()
			}
		}
		runtime.Gosched()
	}
}

// The expire function sets, touches and deletes keys too, including the keys of its own batch.
func TestRaceExpireCallsEveryMethod(t *testing.T) {
	t.Parallel()
	const keys = 24
	var all [keys]outcomes
	var left atomic.Int64
	left.Store(int64(scaled(40_000)))
	var k *Keys[uint64]
	ready := make(chan struct{})
	k = newKeys(t, executors["default"], func(batch []uint64) {
		<-ready
		for _, key := range batch {
			all[key].reported.Add(1)
			if left.Add(-1) <= 0 {
				continue
			}
			if k.Set(key, rand.N(60*time.Microsecond)) {
				all[key].added.Add(1)
			}
			randomCall(k, &all, rand.Uint64N(keys))
		}
	})
	close(ready)
	for key := range uint64(keys) {
		if k.Set(key, 0) {
			all[key].added.Add(1)
		}
	}
	end := time.Now().Add(time.Minute)
	for left.Load() > 0 && time.Now().Before(end) {
		randomCall(k, &all, rand.Uint64N(keys))
		if key := rand.Uint64N(keys); k.Set(key, 0) { // otherwise all keys might be deleted
			all[key].added.Add(1)
		}
	}
	require.LessOrEqual(t, left.Load(), int64(0))
	drain(t, k)
	for key := range all {
		f := &all[key]
		assert.Equal(t, f.added.Load(), f.reported.Load()+f.deleted.Load(), "key %d", key)
	}
	assert.Zero(t, k.Len())
}

// Each key is set once and is deleted, touched or set for an hour at about the time it expires. The
// key must be reported exactly if the call returned that it came too late. No key is early.
func TestRaceResultsAreExact(t *testing.T) {
	t.Parallel()
	for name, opts := range executors {
		for _, call := range []string{"Delete", "Touch", "Set"} {
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				raceAnswers(t, opts, call)
			})
		}
	}
}

func raceAnswers(t *testing.T, opts timingwheel.Options, call string) {
	const goroutines, each = 2, 400
	rounds := scaled(8)
	n := rounds * goroutines * each
	due := make([]time.Time, n)
	reported := make([]atomic.Int32, n)
	k := newKeys(t, opts, func(batch []string) {
		now := time.Now()
		for _, key := range batch {
			i, err := strconv.Atoi(key)
			assert.NoError(t, err)
			reported[i].Add(1)
			if now.Before(due[i]) {
				t.Errorf("key %s is early by %v", key, due[i].Sub(now))
			}
		}
	})
	answers := make([]bool, n) // whether the call was in time
	calls := map[string]func(string) bool{
		"Delete": k.Delete,
		"Touch":  func(key string) bool { return k.Touch(key, time.Hour) },
		"Set":    func(key string) bool { return !k.Set(key, time.Hour) },
	}
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for round := range rounds {
				mine := rand.Perm(each)
				for i := range mine {
					mine[i] += (round*goroutines + g) * each
				}
				for _, i := range mine {
					d := rand.N(2 * ms)
					due[i] = time.Now().Add(d)
					k.Set(strconv.Itoa(i), d)
				}
				time.Sleep(rand.N(2 * ms))
				for _, i := range mine {
					answers[i] = calls[call](strconv.Itoa(i))
				}
			}
		})
	}
	group.Wait()
	rest := 0 // keys whose deadline is now an hour away
	for _, prevented := range answers {
		if prevented && call == "Touch" || call == "Set" {
			rest++
		}
	}
	require.Eventually(t, func() bool { return k.Len() == rest && k.Stats().Running == 0 }, time.Minute, ms)
	yes := 0
	for i, prevented := range answers {
		want := int32(1)
		if prevented {
			want, yes = 0, yes+1
		}
		if got := reported[i].Load(); got != want {
			t.Fatalf("key %d: %s was in time: %v, and it was reported %d times", i, call, prevented, got)
		}
	}
	t.Logf("%s was in time for %d of %d", call, yes, n)
}

// Stop comes during all other calls. Each Set has at most one end, at most one Set for each key has
// none, and no key is reported after Shutdown.
func TestRaceStopReportsNothingAfterShutdown(t *testing.T) {
	t.Parallel()
	for name, opts := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range scaled(120) {
				raceStop(t, opts)
			}
		})
	}
}

func raceStop(t *testing.T, opts timingwheel.Options) {
	const keys, goroutines = 24, 4
	var all [keys]outcomes
	var over atomic.Bool
	k := newKeys(t, opts, func(batch []uint64) {
		if over.Load() {
			t.Error("a key is reported after Shutdown")
		}
		for _, key := range batch {
			all[key].reported.Add(1)
		}
	})
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range 300 {
				randomCall(k, &all, rand.Uint64N(keys))
			}
		})
	}
	for range 2 {
		group.Go(func() {
			time.Sleep(rand.N(400 * time.Microsecond))
			assert.NoError(t, k.Shutdown(context.Background()))
			over.Store(true)
			assert.Zero(t, k.Len())
			assert.False(t, k.Set(0, 0))
			assert.False(t, k.Has(0))
		})
	}
	group.Wait()
	for key := range all {
		f := &all[key]
		dropped := f.added.Load() - f.reported.Load() - f.deleted.Load()
		assert.True(t, dropped == 0 || dropped == 1, "key %d: %d were dropped", key, dropped)
	}
}

// Many keys are added and removed, so that the map grows and shrinks during the calls.
func TestRaceWhileMapGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	n := scaled(40_000)
	reported := make([]atomic.Int32, n)
	k := newKeys(t, timingwheel.Options{}, func(batch []uint64) {
		for _, key := range batch {
			reported[key].Add(1)
		}
	})
	const goroutines, rounds = 4, 3
	deleted := make([]int32, n)
	for range rounds {
		var group sync.WaitGroup
		for g := range goroutines {
			group.Go(func() {
				for i := g; i < n; i += goroutines {
					d := rand.N(10 * ms)
					if i/goroutines%8 == 0 {
						d = time.Hour // deleted before it expires, even on a slow machine
					}
					if !k.Set(uint64(i), d) {
						t.Errorf("key %d was there already", i)
					}
				}
				for i := g; i < n; i += 2 * goroutines {
					if k.Delete(uint64(i)) {
						deleted[i]++
					}
				}
			})
		}
		group.Wait()
		drain(t, k)
		require.Zero(t, k.Len())
	}
	total := int32(0)
	for i := range n {
		if got := reported[i].Load() + deleted[i]; got != rounds {
			t.Fatalf("key %d had %d ends", i, got)
		}
		total += deleted[i]
	}
	assert.Positive(t, total)
}
