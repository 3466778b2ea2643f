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

// object is what a key points to.
type object struct{ _ [100]byte }

// A key that was deleted, reported, or discarded by Stop is not reachable any more, by whichever
// buffer of the wheel or the map it has gone through, while the set lives on. Neither is one whose
// expire function panicked or left its goroutine.
func TestKeysThatHaveGoneAreCollected(t *testing.T) {
	t.Parallel()
	const n = 700 // some batches
	for name, c := range map[string]struct {
		expire func([]*object)
		end    func(k *Keys[*object], keys []*object)
	}{
		"deleted": {nil, func(k *Keys[*object], keys []*object) {
			for _, key := range keys {
				k.Delete(key)
			}
		}},
		"touched, then deleted": {nil, func(k *Keys[*object], keys []*object) {
			for i, key := range keys {
				k.Touch(key, time.Duration(i%3-1)*time.Hour)
				k.Set(key, time.Minute)
				k.Delete(key)
			}
		}},
		"expired":              {nil, expireAllOf},
		"expired in a panic":   {func([]*object) { panic("it keeps nothing") }, expireAllOf},
		"expired, then Goexit": {func([]*object) { runtime.Goexit() }, expireAllOf},
		"half deleted while they expire": {nil, func(k *Keys[*object], keys []*object) {
			for _, key := range keys {
				k.Touch(key, 0)
			}
			for i := range keys {
				k.Delete(keys[len(keys)-1-i])
			}
		}},
		"expired, with room for nothing more": {func(keys []*object) {
			assert.Equal(t, len(keys), cap(keys), "what is appended would go into the wheel's buffer")
		}, expireAllOf},
		"stopped": {nil, func(k *Keys[*object], _ []*object) { k.Stop() }},
	} {
		for executor, opts := range executors {
			t.Run(name+"/"+executor, func(t *testing.T) {
				t.Parallel()
				expire := c.expire
				if expire == nil {
					expire = func([]*object) {}
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

func expireAllOf(k *Keys[*object], keys []*object) {
	for _, key := range keys {
		k.Touch(key, 0)
	}
}

// fillAndEnd is a function of its own, so that its caller holds no key.
//
//go:noinline
func fillAndEnd(k *Keys[*object], n int, end func(*Keys[*object], []*object)) []weak.Pointer[object] {
	keys := make([]*object, n)
	refs := make([]weak.Pointer[object], n)
	for i := range keys {
		keys[i] = &object{}
		refs[i] = weak.Make(keys[i])
		k.Set(keys[i], time.Hour)
	}
	end(k, keys)
	return refs
}

// Very many keys expire at once, and the memory that they took, the map's included, goes back,
// whereas the set lives on: what is left is next to nothing.
func TestMemoryGoesBack(t *testing.T) {
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
