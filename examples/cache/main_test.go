package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func small() config {
	cfg := defaults()
	cfg.keys, cfg.size, cfg.ttl, cfg.duration = 1000, 600, 100*time.Millisecond, 500*time.Millisecond
	return cfg
}

// Not in parallel with other tests, because it reads the heap of the process.
func TestRunFindsNoFault(t *testing.T) {
	var out bytes.Buffer
	assert.NoError(t, run(t.Context(), small(), &out))
	assert.Contains(t, out.String(), "PASS")
}

func TestInterruptEndsTheRun(t *testing.T) {
	cfg := small()
	cfg.ttl, cfg.duration = time.Hour, time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
}

// broken is a cache with a fault.
type broken struct {
	*Cache[int, *item]
	get    func(broken, int) (*item, bool)
	set    func(broken, int, *item, time.Duration)
	remove func(broken, int) bool
	first  map[int]*item
}

func (b broken) Get(key int) (*item, bool) {
	if b.get != nil {
		return b.get(b, key)
	}
	return b.Cache.Get(key)
}

func (b broken) Set(key int, v *item, ttl time.Duration) {
	if b.first[key] == nil {
		b.first[key] = v
	}
	if b.set != nil {
		b.set(b, key, v, ttl)
		return
	}
	b.Cache.Set(key, v, ttl)
}

func (b broken) Delete(key int) bool {
	if b.remove != nil {
		return b.remove(b, key)
	}
	return b.Cache.Delete(key)
}

func TestBrokenCachesAreFound(t *testing.T) {
	for name, tt := range map[string]struct {
		broken broken
		fault  string
	}{
		"values never change": {broken{get: func(b broken, key int) (*item, bool) { return b.first[key], b.first[key] != nil }}, "replaced or deleted"},
		"values expire late": {broken{set: func(b broken, key int, v *item, ttl time.Duration) {
			b.Cache.Set(key, v, 2*ttl)
		}}, "had expired"},
		"values expire early": {broken{set: func(b broken, key int, v *item, ttl time.Duration) {
			b.Cache.Set(key, v, ttl/2)
		}}, "early"},
		"values are lost":     {broken{get: func(broken, int) (*item, bool) { return nil, false }}, "before its expiry"},
		"nothing is deleted":  {broken{remove: func(broken, int) bool { return false }}, "not deleted"},
		"anything is deleted": {broken{remove: func(broken, int) bool { return true }}, "there was no value"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoad()
				c, err := New(1<<20, l.recordEnd)
				require.NoError(t, err)
				defer c.Close()
				tt.broken.Cache, tt.broken.first = c, make(map[int]*item)
				w := &worker{load: l, cache: tt.broken, cfg: config{workers: 1, keys: 100, ttl: 2 * time.Second}, rng: newRand(1, 0), known: make(map[int]*item)}
				for range 3000 {
					w.step()
					time.Sleep(10 * time.Millisecond)
				}
				assert.ErrorContains(t, l.faults.Err(), tt.fault)
			})
		})
	}
}

// A worker finds no fault in a correct cache. In a synctest bubble the times are exact.
func TestWorkerFindsNoFaultInACorrectCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoad()
		c, err := New(1<<20, l.recordEnd)
		require.NoError(t, err)
		defer c.Close()
		w := &worker{load: l, cache: c, cfg: config{workers: 1, keys: 100, ttl: 2 * time.Second}, rng: newRand(1, 0), known: make(map[int]*item)}
		for range 3000 {
			w.step()
			time.Sleep(10 * time.Millisecond)
		}
		assert.NoError(t, l.faults.Err())
		for _, n := range []int64{l.hits.Load(), l.misses.Load(), l.ended[Replaced].Load(), l.ended[Deleted].Load(), l.ended[Expired].Load()} {
			assert.Positive(t, n)
		}
		assert.LessOrEqual(t, l.late.At(100), time.Millisecond)
	})
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, cache, []string{"workers", "keys", "size", "ttl", "duration", "seed"})
	programtest.Refuses(t, cache, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-size", "0"}, Want: []string{`"0"`, "-size", "from 1 to 100000000"}},
		{Args: []string{"-ttl", "2h"}, Want: []string{`"2h"`, "-ttl", "from 10ms to 1h"}},
		{Args: []string{"-keys", "3"}, Want: []string{"-keys is 3", "at least -workers, which is 8"}},
	})
}
