package main

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endings notes how values have ended.
type endings struct {
	mu    sync.Mutex
	notes map[string]Reason
}

func (e *endings) note(_ int, v string, r Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.notes[v]; ok {
		panic(v + " has ended twice")
	}
	e.notes[v] = r
}

func (e *endings) taken() map[string]Reason {
	e.mu.Lock()
	defer e.mu.Unlock()
	notes := e.notes
	e.notes = make(map[string]Reason)
	return notes
}

// inBubble runs a test of a cache in time that passes at once.
func inBubble(t *testing.T, size int, test func(*testing.T, *Cache[int, string], *endings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &endings{notes: make(map[string]Reason)}
		c, err := New(size, e.note)
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
		assert.Equal(t, "nothing", has(c, 1), "the value is over, whether its timer has fired or not")
		assert.Equal(t, "b", has(c, 2))
		time.Sleep(time.Millisecond) // the timer's tick
		synctest.Wait()
		assert.Equal(t, map[string]Reason{"a": Expired}, e.taken())
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
				assert.Equal(t, map[string]Reason{"a": Replaced}, e.taken())
				assert.Equal(t, 1, c.Pending())
				time.Sleep(ttl - 1)
				assert.Equal(t, "b", has(c, 1))
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Equal(t, "nothing", has(c, 1))
				assert.Equal(t, map[string]Reason{"b": Expired}, e.taken())
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
		assert.False(t, c.Delete(1), "it has expired")
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, map[string]Reason{"a": Deleted, "b": Expired}, e.taken())
	})
}

// What is overdue has expired, whoever comes to take it away before its timer does.
func TestOverdueValueHasExpired(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *Cache[int, string], e *endings) {
		c.Set(1, "a", time.Minute+1) // expires between two ticks
		time.Sleep(time.Minute + 1)
		require.Equal(t, 1, c.Len(), "its timer has been quicker")
		c.Set(1, "b", time.Minute)
		assert.Equal(t, map[string]Reason{"a": Expired}, e.taken())

		time.Sleep(time.Minute)
		require.Equal(t, 1, c.Len(), "its timer has been quicker")
		for i := 2; c.shard(i) != c.shard(1) || len(e.notes) == 0; i++ {
			if c.shard(i) == c.shard(1) {
				c.Set(i, "c", time.Hour)
			}
		}
		assert.Equal(t, map[string]Reason{"b": Expired}, e.taken(), "it was in the way, but not alive")
	})
}

func TestNoTimeToLive(t *testing.T) {
	inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
		c.Set(1, "a", time.Minute)
		c.Set(1, "b", 0)
		c.Set(2, "c", -time.Minute)
		assert.Zero(t, c.Len())
		assert.Zero(t, c.Pending())
		assert.Equal(t, map[string]Reason{"a": Replaced, "b": Expired, "c": Expired}, e.taken())
	})
}

func TestBoundedSize(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *Cache[int, string], e *endings) {
		for i := range 10 * shards {
			c.Set(i, string(rune('A'+i)), time.Minute)
		}
		assert.LessOrEqual(t, c.Len(), shards)
		assert.Equal(t, c.Len(), c.Pending())
		evicted := e.taken()
		assert.Len(t, evicted, 10*shards-c.Len())
		for v, r := range evicted {
			assert.Equal(t, Evicted, r, v)
		}
		last := 10*shards - 1
		assert.NotEqual(t, "nothing", has(c, last), "the last one made room for itself")
	})
}

// A timer that has been claimed cannot be stopped any more. What it finds is not what it was meant
// for.
func TestLateTimerSparesTheNextValue(t *testing.T) {
	inBubble(t, 1000, func(t *testing.T, c *Cache[int, string], e *endings) {
		c.Set(1, "a", time.Minute)
		stale := lease[int]{1, c.shard(1).numbers}
		time.Sleep(time.Hour)
		synctest.Wait()
		c.Set(1, "b", time.Minute)
		c.expire([]lease[int]{stale})
		assert.Equal(t, "b", has(c, 1))
		assert.Equal(t, map[string]Reason{"a": Expired}, e.taken())
	})
}

func TestMapIsGivenBack(t *testing.T) {
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
