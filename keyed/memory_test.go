package keyed

import (
	"runtime"
	"strconv"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// object is the target of a pointer key.
type object struct{ _ [100]byte }

// The garbage collector frees a key that was deleted, reported, or discarded by Stop although the
// set is still in use: no buffer of the wheel or the map refers to it. The same holds if the expire
// function panicked or called Goexit.
func TestRemovedKeysAreCollected(t *testing.T) {
	t.Parallel()
	const n = 700 // several batches
	for name, c := range map[string]struct {
		expire func([]any)
		end    func(k *Keys[any], keys []any)
	}{
		"deleted": {nil, func(k *Keys[any], keys []any) {
			for _, key := range keys {
				k.Delete(key)
			}
		}},
		"touched, then deleted": {nil, func(k *Keys[any], keys []any) {
			for i, key := range keys {
				k.Touch(key, time.Duration(i%3-1)*time.Hour)
				k.Set(key, time.Minute)
				k.Delete(key)
			}
		}},
		"expired":              {nil, expireAllOf},
		"expired in a panic":   {func([]any) { panic("must keep no key") }, expireAllOf},
		"expired, then Goexit": {func([]any) { runtime.Goexit() }, expireAllOf},
		"half deleted while they expire": {nil, func(k *Keys[any], keys []any) {
			for _, key := range keys {
				k.Touch(key, 0)
			}
			for i := range keys {
				k.Delete(keys[len(keys)-1-i])
			}
		}},
		"expired, slice without spare capacity": {func(keys []any) {
			assert.Equal(t, len(keys), cap(keys), "an append would write into the wheel's buffer")
		}, expireAllOf},
		"stopped": {nil, func(k *Keys[any], _ []any) { k.Stop() }},
	} {
		for executor, opts := range executors {
			t.Run(name+"/"+executor, func(t *testing.T) {
				t.Parallel()
				expire := c.expire
				if expire == nil {
					expire = func([]any) {}
				}
				opts.OnPanic = func(any, []byte) {}
				k := newKeys(t, opts, expire)
				refs := fillAndEnd(k, n, c.end)
				require.Eventually(t, func() bool {
					runtime.GC()
					for _, ref := range refs {
						if ref.Value() != nil {
							return false
						}
					}
					return true
				}, time.Minute, 5*ms, "some keys are still reachable")
				assert.Zero(t, k.Len())
				runtime.KeepAlive(k)
			})
		}
	}
}

func expireAllOf(k *Keys[any], keys []any) {
	for _, key := range keys {
		k.Touch(key, 0)
	}
}

// fillAndEnd is a separate function so that its caller holds no key.
//
//go:noinline
func fillAndEnd(k *Keys[any], n int, end func(*Keys[any], []any)) []weak.Pointer[object] {
	keys := make([]any, n)
	refs := make([]weak.Pointer[object], n)
	for i := range keys {
		o := &object{}
		keys[i], refs[i] = o, weak.Make(o)
		k.Set(keys[i], time.Hour)
	}
	end(k, keys)
	return refs
}

// After very many keys have expired together, their memory and the map's is returned although the
// set is still in use.
func TestMemoryIsReturnedAfterExpiry(t *testing.T) {
	// Not parallel: it measures the heap.
	n := scaled(400_000)
	k := newKeys(t, timingwheel.Options{Manual: true}, func([]string) {})
	empty := heapInUse()
	var full uint64
	func() {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		for _, key := range keys {
			k.Set(key, time.Second)
		}
		full = heapInUse() - empty
		runtime.KeepAlive(keys)
	}()
	require.Greater(t, full, uint64(60*n))
	k.Set("left", time.Hour)
	require.Equal(t, n, k.Advance(k.Now().Add(time.Second)))
	left := int64(heapInUse()) - int64(empty)
	assert.Equal(t, 1, k.Len())
	assert.Less(t, left, int64(full/20), "%d bytes were taken by %d keys", full, n)
	assert.True(t, k.Delete("left"))
}
