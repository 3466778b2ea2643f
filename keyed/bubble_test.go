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

// reports is what was reported, and when.
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

// In a bubble, with the default executor: each key expires when it should, and no goroutine is
// left, or the bubble would not end.
func TestInABubble(t *testing.T) {
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

// Hundreds of members beat at their own pace; those who fall silent are reported, each once, and
// nobody else.
func TestHeartbeatsInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const members, beats, timeout = 300, 20, 30 * time.Second
		var silent, reported [members]atomic.Int64 // when it beat for the last time; when it was reported
		begin := time.Now()
		h, err := NewHeartbeats(timingwheel.Options{}, timeout, func(keys []int) {
			for _, key := range keys {
				assert.True(t, reported[key].CompareAndSwap(0, int64(time.Since(begin))), "member %d is reported twice", key)
			}
		})
		require.NoError(t, err)
		defer h.Stop()
		var group sync.WaitGroup
		for key := range members {
			group.Go(func() {
				pace := timeout - time.Duration(key%100+1)*100*ms
				for beat := range beats + key%3 {
					assert.Equal(t, beat == 0, h.Beat(key))
					silent[key].Store(int64(time.Since(begin)))
					time.Sleep(pace)
				}
			})
		}
		group.Wait()
		time.Sleep(2 * timeout)
		synctest.Wait()
		assert.Zero(t, h.Len())
		for key := range members {
			late := reported[key].Load() - silent[key].Load() - int64(timeout)
			assert.True(t, late >= 0 && late <= int64(ms), "member %d: %v", key, time.Duration(late))
		}
	})
}

// A call of expire that blocks delays no other key, and Shutdown waits for it.
func TestBlockedExpire(t *testing.T) {
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
		assert.False(t, k.Has("blocks"), "it has been taken out")
		assert.True(t, k.Set("blocks", time.Hour), "and can be set again")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, k.Shutdown(ctx), context.DeadlineExceeded)
		close(gate)
		require.NoError(t, k.Shutdown(t.Context()))
		assert.Len(t, r.at["blocks"], 1)
	})
}

// The expire function calls everything: it sets its own keys again, deletes others and stops the
// wheel.
func TestFromExpire(t *testing.T) {
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

// A panic, or a Goexit, loses the rest of its slice at most: those keys are gone and can be set
// again, and all others are reported.
func TestPanicInExpire(t *testing.T) {
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
