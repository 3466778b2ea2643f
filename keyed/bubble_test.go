package keyed

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// reports records which keys were reported, and when.
type reports struct {
	mu    sync.Mutex
	begin time.Time
	at    map[string][]time.Duration
}

func newReports() *reports { return &reports{begin: time.Now(), at: map[string][]time.Duration{}} }

func (r *reports) add(keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		r.at[key] = append(r.at[key], time.Since(r.begin))
	}
}

// With the default executor each key expires on time, and no goroutine is left: otherwise the
// bubble would not end.
func TestKeysExpireInSynctestBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReports()
		k, err := New(timingwheel.Options{}, r.add)
		require.NoError(t, err)
		defer k.Stop()
		k.Set("short", time.Second)
		k.Set("long", 100*time.Hour)
		k.Set("touched", time.Minute)
		k.Set("deleted", time.Minute)
		k.Set("replaced", time.Hour)
		time.Sleep(59 * time.Second)
		assert.True(t, k.Touch("touched", time.Minute))
		assert.True(t, k.Delete("deleted"))
		assert.False(t, k.Set("replaced", 2*time.Second))
		time.Sleep(200 * time.Hour)
		synctest.Wait()
		want := map[string]time.Duration{"short": time.Second, "long": 100 * time.Hour, "touched": 119 * time.Second, "replaced": 61 * time.Second}
		assert.Len(t, r.at, len(want))
		for key, at := range want {
			require.Len(t, r.at[key], 1, key)
			assert.GreaterOrEqual(t, r.at[key][0], at, key)
			assert.LessOrEqual(t, r.at[key][0], at+ms, key)
		}
		assert.Zero(t, k.Len())
	})
}

// Hundreds of members beat at different intervals. Each is reported once, one timeout after its
// last beat.
func TestHeartbeatsReportEachSilentMemberOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const members, beats, timeout = 300, 20, 30 * time.Second
		var lastBeat, reported [members]atomic.Int64 // times since begin
		begin := time.Now()
		h, err := NewHeartbeats(timingwheel.Options{}, timeout, func(keys []uint64) {
			for _, key := range keys {
				assert.True(t, reported[key].CompareAndSwap(0, int64(time.Since(begin))), "member %d is reported twice", key)
			}
		})
		require.NoError(t, err)
		defer h.Stop()
		var group sync.WaitGroup
		for key := range uint64(members) {
			group.Go(func() {
				interval := timeout - time.Duration(key%100+1)*100*ms
				for beat := range beats + key%3 {
					assert.Equal(t, beat == 0, h.Beat(key))
					lastBeat[key].Store(int64(time.Since(begin)))
					time.Sleep(interval)
				}
			})
		}
		group.Wait()
		time.Sleep(2 * timeout)
		synctest.Wait()
		assert.Zero(t, h.Len())
		for key := range members {
			late := reported[key].Load() - lastBeat[key].Load() - int64(timeout)
			assert.True(t, late >= 0 && late <= int64(ms), "member %d: %v", key, time.Duration(late))
		}
	})
}

// Shutdown waits for the blocked call.
func TestBlockedExpireDelaysNoOtherKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newReports()
		k, err := New(timingwheel.Options{}, func(keys []string) {
			if slices.Contains(keys, "blocks") {
				<-gate
			}
			r.add(keys)
		})
		require.NoError(t, err)
		k.Set("blocks", time.Second)
		k.Set("other", 2*time.Second)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Len(t, r.at, 1)
		assert.Contains(t, r.at, "other")
		assert.False(t, k.Has("blocks"), "the key is removed before expire runs")
		assert.True(t, k.Set("blocks", time.Hour), "the key can be set again")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, k.Shutdown(ctx), context.DeadlineExceeded)
		close(gate)
		require.NoError(t, k.Shutdown(t.Context()))
		assert.Len(t, r.at["blocks"], 1)
	})
}

// The expire function sets its own keys again, deletes others and stops the set.
func TestExpireMayCallEveryMethod(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]timingwheel.Options{
		"default": {}, "inline": {Executor: timingwheel.Inline}, "goroutines": {Executor: timingwheel.Goroutines}, "one shard": {Shards: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var k *Keys[string]
				runs := 0
				var err error
				k, err = New(opts, func(keys []string) {
					assert.Equal(t, []string{"k"}, keys)
					assert.False(t, k.Has("k"))
					assert.False(t, k.Touch("k", 0))
					assert.False(t, k.Delete("k"))
					if runs++; runs < 5 {
						assert.True(t, k.Set("k", time.Second))
						assert.Equal(t, runs == 1, k.Delete("other"))
						return
					}
					k.Stop()
					assert.False(t, k.Set("k", time.Second))
				})
				require.NoError(t, err)
				k.Set("k", time.Second)
				k.Set("other", 90*time.Second)
				time.Sleep(time.Hour)
				require.NoError(t, k.Shutdown(t.Context()))
				assert.Equal(t, 5, runs)
				assert.Zero(t, k.Len())
			})
		})
	}
}

// A panic or Goexit loses at most the rest of its slice. The lost keys are absent and can be set
// again, and all other keys are reported.
func TestPanicInExpireLosesNoOtherBatch(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newReports()
				var panics []any
				k, err := New(timingwheel.Options{OnPanic: func(v any, _ []byte) { panics = append(panics, v) }}, func(keys []string) {
					if keys[0] == "bad" {
						leave()
					}
					r.add(keys)
				})
				require.NoError(t, err)
				defer k.Stop()
				k.Set("bad", time.Second)
				k.Set("good", 2*time.Second)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				assert.Contains(t, r.at, "good")
				assert.NotContains(t, r.at, "bad")
				assert.Equal(t, name == "panic", slices.Equal(panics, []any{"boom"}))
				assert.Zero(t, k.Len())
				assert.True(t, k.Set("bad", time.Second))
			})
		})
	}
}
