package timingwheel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type heapTestItem struct{ key, index int }

func (e *heapTestItem) before(o *heapTestItem) bool { return e.key < o.key }
func (e *heapTestItem) setHeapIndex(i int)          { e.index = i }

func heapTestIndex(e *heapTestItem) int { return e.index }

// requireHeap checks H1 to H3.
func requireHeap(t *testing.T, h *minHeap[*heapTestItem]) {
	t.Helper()
	require.NoError(t, h.verify(heapTestIndex))
	for _, e := range h.items[h.len():cap(h.items)] {
		require.Nil(t, e, "H3: a vacated slot keeps an element")
	}
}

func TestMinHeapEmpty(t *testing.T) {
	t.Parallel()
	var h minHeap[*heapTestItem]
	_, ok := h.min()
	require.False(t, ok)
	require.Zero(t, h.len())
	require.NoError(t, h.verify(heapTestIndex))
	require.Panics(t, func() { h.popMin() })
	require.Panics(t, func() { h.remove(0) })
}

func TestMinHeapOrder(t *testing.T) {
	t.Parallel()
	tests := map[string][]int{
		"one":        {1},
		"sorted":     {1, 2, 3, 4, 5, 6, 7, 8, 9},
		"reversed":   {9, 8, 7, 6, 5, 4, 3, 2, 1},
		"equal":      {7, 7, 7, 7, 7, 7},
		"mixed":      {5, -1, 5, 0, 9, 2, 2, -7},
		"right path": {1, 9, 2, 10, 11, 3, 4},
	}
	for name, keys := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h minHeap[*heapTestItem]
			for _, k := range keys {
				h.push(&heapTestItem{key: k})
				requireHeap(t, &h)
			}
			var got []int
			for h.len() > 0 {
				first, ok := h.min()
				require.True(t, ok)
				e := h.popMin()
				require.Same(t, first, e)
				require.Equal(t, -1, e.index)
				requireHeap(t, &h)
				got = append(got, e.key)
			}
			require.Equal(t, slices.Sorted(slices.Values(keys)), got)
		})
	}
}

// Removing from the middle may need the filler to rise, not only to sink.
func TestMinHeapFillerRises(t *testing.T) {
	t.Parallel()
	var h minHeap[*heapTestItem]
	for _, k := range []int{1, 10, 2, 11, 12, 3, 4} {
		h.push(&heapTestItem{key: k})
	}
	require.Equal(t, 11, h.items[3].key)
	h.remove(3)
	require.Equal(t, 4, h.items[1].key)
	requireHeap(t, &h)
}

func TestMinHeapModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var h minHeap[*heapTestItem]
		var model []*heapTestItem
		for range 500 {
			op := rng.IntN(6)
			switch {
			case op < 3 || len(model) == 0:
				e := &heapTestItem{key: rng.IntN(50)}
				h.push(e)
				model = append(model, e)
			case op == 3:
				e := h.popMin()
				smallest := slices.MinFunc(model, func(a, b *heapTestItem) int { return a.key - b.key })
				require.Equal(t, smallest.key, e.key, "seed %d", seed)
				model = slices.Delete(model, slices.Index(model, e), slices.Index(model, e)+1)
			case op == 4:
				i := rng.IntN(len(model))
				require.Same(t, model[i], h.remove(model[i].index), "seed %d", seed)
				require.Equal(t, -1, model[i].index)
				model = slices.Delete(model, i, i+1)
			default:
				e := model[rng.IntN(len(model))]
				e.key = rng.IntN(50)
				h.fix(e.index)
			}
			require.Equal(t, len(model), h.len())
			requireHeap(t, &h)
		}
	}
}

// The memory of a spike is returned (H4), in few steps, and growing again works.
func TestMinHeapShrinksAfterSpike(t *testing.T) {
	t.Parallel()
	const spike = 100_000
	var h minHeap[*heapTestItem]
	for round := range 2 {
		for k := range spike {
			h.push(&heapTestItem{key: k ^ 0x5555})
		}
		moves := 0
		for h.len() > 0 {
			before := cap(h.items)
			h.popMin()
			if cap(h.items) != before {
				moves++
			}
			require.LessOrEqual(t, cap(h.items), max(heapFloor, 4*h.len()+3), "round %d", round)
		}
		require.Less(t, moves, 20)
		requireHeap(t, &h)
	}
}

func TestMinHeapVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	var h minHeap[*heapTestItem]
	for k := range 5 {
		h.push(&heapTestItem{key: k})
	}
	h.items[4].key = -1
	require.ErrorContains(t, h.verify(heapTestIndex), "H1")
	h.items[4].key = 4
	h.items[2].index = 1
	require.ErrorContains(t, h.verify(heapTestIndex), "H2")
}
