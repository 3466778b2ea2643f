package memstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// TestOrdered adds and removes at random, and compares with a sorted slice.
func TestOrdered(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var set ordered
	var all []*entry
	for step := range 5000 {
		if grow := step < 2500; len(all) == 0 || random.IntN(3) == 0 != grow {
			e := &entry{Record: driver.Record{ID: fmt.Sprint(step)}, at: driver.Instant(1 + random.IntN(50))}
			set.add(e)
			all = append(all, e)
		} else {
			i := random.IntN(len(all))
			if random.IntN(2) == 0 {
				i = slices.Index(all, set.first())
			}
			set.remove(all[i])
			require.Nil(t, all[i].set)
			all = slices.Delete(all, i, i+1)
		}
		checkOrdered(t, &set, all)
	}
	for len(all) > 0 {
		first := set.first()
		set.remove(first)
		all = slices.Delete(all, slices.Index(all, first), slices.Index(all, first)+1)
	}
	assert.Nil(t, set.first())
	assert.Zero(t, set.firstAt())
}

func checkOrdered(t *testing.T, set *ordered, all []*entry) {
	t.Helper()
	require.Equal(t, len(all), set.len())
	if len(all) == 0 {
		return
	}
	first, until := all[0], 0
	for _, e := range all {
		if e.before(first) {
			first = e
		}
		if e.at <= 20 {
			until++
		}
		require.Same(t, e, set.heap[e.index])
	}
	require.Same(t, first, set.first())
	require.Equal(t, int64(until), set.until(20))
}

// TestOrderedShrinks gives memory back after a peak.
func TestOrderedShrinks(t *testing.T) {
	t.Parallel()
	var set ordered
	for i := range 100_000 {
		set.add(&entry{at: driver.Instant(i)})
	}
	for set.len() > 10 {
		set.remove(set.first())
	}
	assert.Less(t, cap(set.heap), 2048)
	assert.Equal(t, driver.Instant(99_990), set.firstAt())
}
