package main

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endings records how values have ended.
type endings struct {
	mu      sync.Mutex
	reasons map[string]Reason
}

func (e *endings) record(_ int, v string, r Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.reasons[v]; ok {
		panic(v + " has ended twice")
	}
	e.reasons[v] = r
}

func (e *endings) take() map[string]Reason {
	e.mu.Lock()
	defer e.mu.Unlock()
	reasons := e.reasons
	e.reasons = make(map[string]Reason)
	return reasons
}

// inBubble runs a test of a cache in a synctest bubble.
func inBubble(t *testing.T, size int, test func(*testing.T, *Cache[int, string], *endings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &endings{reasons: make(map[string]Reason)}
		c, err := New(size, e.record)
		require.NoError(t, err)
		test(t, c, e)
		c.Close()
	})
}

func has(c *Cache[int, string], key int) string {
	v, ok := c.Get(key)
	if !ok {
		return "nothing"
	}
	return v
}

func TestValueLivesForItsTime(t *testing.T) {
	inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
		assert.Equal(t, "nothing", has(c, 1))
		c.Set(1, "a", time.Minute)
		c.Set(2, "b", time.Hour)
		time.Sleep(time.Minute - 1)
		assert.Equal(t, "a", has(c, 1))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, "nothing", has(c, 1), "an expired value, whether its timer has fired or not")
		assert.Equal(t, "b", has(c, 2))
		time.Sleep(time.Millisecond) // a tick
		synctest.Wait()
		assert.Equal(t, map[string]Reason{"a": Expired}, e.take())
		assert.Equal(t, 1, c.Len())
		assert.Equal(t, 1, c.Pending())
	})
}

func TestReplacedValue(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"later": time.Hour, "the same": time.Minute, "earlier": time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
				c.Set(1, "a", time.Minute)
				time.Sleep(time.Second)
				c.Set(1, "b", ttl)
				assert.Equal(t, map[string]Reason{"a": Replaced}, e.take())
				assert.Equal(t, 1, c.Pending())
				time.Sleep(ttl - 1)
				assert.Equal(t, "b", has(c, 1))
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Equal(t, "nothing", has(c, 1))
				assert.Equal(t, map[string]Reason{"b": Expired}, e.take())
			})
		})
	}
}

func TestDeletedValue(t *testing.T) {
	inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
		assert.False(t, c.Delete(1))
		c.Set(1, "a", time.Minute)
		assert.True(t, c.Delete(1))
		assert.False(t, c.Delete(1))
		assert.Zero(t, c.Pending())
		c.Set(1, "b", time.Minute)
		time.Sleep(time.Minute)
		assert.False(t, c.Delete(1), "Delete of an expired value")
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, map[string]Reason{"a": Deleted, "b": Expired}, e.take())
	})
}

// A value that is replaced or evicted after its deadline has expired, even if its timer has not
// fired.
func TestOverdueValueHasExpired(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *Cache[int, string], e *endings) {
		c.Set(1, "a", time.Minute+1) // expires between two ticks
		time.Sleep(time.Minute + 1)
		require.Equal(t, 1, c.Len(), "the timer has already fired")
		c.Set(1, "b", time.Minute)
		assert.Equal(t, map[string]Reason{"a": Expired}, e.take())

		time.Sleep(time.Minute)
		require.Equal(t, 1, c.Len(), "the timer has already fired")
		for i := 2; c.shard(i) != c.shard(1) || len(e.reasons) == 0; i++ {
			if c.shard(i) == c.shard(1) {
				c.Set(i, "c", time.Hour)
			}
		}
		assert.Equal(t, map[string]Reason{"b": Expired}, e.take(), "an expired value was evicted")
	})
}

func TestNoTimeToLive(t *testing.T) {
	inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
		c.Set(1, "a", time.Minute)
		c.Set(1, "b", 0)
		c.Set(2, "c", -time.Minute)
		assert.Zero(t, c.Len())
		assert.Zero(t, c.Pending())
		assert.Equal(t, map[string]Reason{"a": Replaced, "b": Expired, "c": Expired}, e.take())
	})
}

func TestBoundedSize(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *Cache[int, string], e *endings) {
		for i := range 10 * shards {
			c.Set(i, string(rune('A'+i)), time.Minute)
		}
		assert.LessOrEqual(t, c.Len(), shards)
		assert.Equal(t, c.Len(), c.Pending())
		evicted := e.take()
		assert.Len(t, evicted, 10*shards-c.Len())
		for v, r := range evicted {
			assert.Equal(t, Evicted, r, v)
		}
		last := 10*shards - 1
		assert.NotEqual(t, "nothing", has(c, last), "the last value")
	})
}

// A claimed timer cannot be stopped. It must not remove a newer value of its key.
func TestClaimedTimerKeepsTheNextValue(t *testing.T) {
	inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
		c.Set(1, "a", time.Minute)
		stale := version[int]{1, c.shard(1).numbers}
		time.Sleep(time.Hour)
		synctest.Wait()
		c.Set(1, "b", time.Minute)
		c.expire([]version[int]{stale})
		assert.Equal(t, "b", has(c, 1))
		assert.Equal(t, map[string]Reason{"a": Expired}, e.take())
	})
}

func TestEmptyMapIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New[int, string](100_000, nil)
		require.NoError(t, err)
		defer c.Close()
		s := c.shard(0)
		for i := range 10_000 {
			c.Set(i, "", time.Duration(i+1)*time.Millisecond)
		}
		s.mu.Lock()
		before := s.entries
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, c.Len())
		assert.NotSame(t, before, s.entries)
		assert.Zero(t, s.most)
	})
}
