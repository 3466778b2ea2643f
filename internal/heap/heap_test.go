package heap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type testItem struct{ key, index int }

func (e *testItem) Before(o *testItem) bool { return e.key < o.key }
func (e *testItem) SetHeapIndex(i int)      { e.index = i }

func testIndex(e *testItem) int { return e.index }

// requireHeap checks H1 to H3.
func requireHeap(t *testing.T, h *Heap[*testItem]) {
	t.Helper()
	require.NoError(t, h.verify(testIndex))
	for _, e := range h.items[h.Len():cap(h.items)] {
		require.Nil(t, e, "H3: a vacated slot keeps an element")
	}
}

func TestEmptyHeapHasNoMin(t *testing.T) {
	t.Parallel()
	var h Heap[*testItem]
	_, ok := h.Min()
	require.False(t, ok)
	require.Zero(t, h.Len())
	require.NoError(t, h.verify(testIndex))
	require.Panics(t, func() { h.Remove(0) })
	require.Panics(t, func() { h.Remove(0) })
}

func TestHeapPopsInOrder(t *testing.T) {
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
			var h Heap[*testItem]
			for _, k := range keys {
				h.Push(&testItem{key: k})
				requireHeap(t, &h)
			}
			var got []int
			for h.Len() > 0 {
				first, ok := h.Min()
				require.True(t, ok)
				e := h.Remove(0)
				require.Same(t, first, e)
				require.Equal(t, -1, e.index)
				requireHeap(t, &h)
				got = append(got, e.key)
			}
			require.Equal(t, slices.Sorted(slices.Values(keys)), got)
		})
	}
}

// When an element in the middle is removed, its replacement may have to move up.
func TestRemoveMovesReplacementUp(t *testing.T) {
	t.Parallel()
	var h Heap[*testItem]
	for _, k := range []int{1, 10, 2, 11, 12, 3, 4} {
		h.Push(&testItem{key: k})
	}
	require.Equal(t, 11, h.items[3].key)
	h.Remove(3)
	require.Equal(t, 4, h.items[1].key)
	requireHeap(t, &h)
}

func TestHeapModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var h Heap[*testItem]
		var model []*testItem
		for range 500 {
			op := rng.IntN(6)
			switch {
			case op < 3 || len(model) == 0:
				e := &testItem{key: rng.IntN(50)}
				h.Push(e)
				model = append(model, e)
			case op == 3:
				e := h.Remove(0)
				smallest := slices.MinFunc(model, func(a, b *testItem) int { return a.key - b.key })
				require.Equal(t, smallest.key, e.key, "seed %d", seed)
				model = slices.Delete(model, slices.Index(model, e), slices.Index(model, e)+1)
			case op == 4:
				i := rng.IntN(len(model))
				require.Same(t, model[i], h.Remove(model[i].index), "seed %d", seed)
				require.Equal(t, -1, model[i].index)
				model = slices.Delete(model, i, i+1)
			default:
				e := model[rng.IntN(len(model))]
				e.key = rng.IntN(50)
				h.Fix(e.index)
			}
			require.Equal(t, len(model), h.Len())
			requireHeap(t, &h)
		}
	}
}

// After a spike the backing array shrinks in few steps (H4), and the heap can grow again.
func TestHeapShrinksAfterSpike(t *testing.T) {
	t.Parallel()
	const spike = 100_000
	var h Heap[*testItem]
	for round := range 2 {
		for k := range spike {
			h.Push(&testItem{key: k ^ 0x5555})
		}
		moves := 0
		for h.Len() > 0 {
			before := cap(h.items)
			h.Remove(0)
			if cap(h.items) != before {
				moves++
			}
			require.LessOrEqual(t, cap(h.items), max(minCap, 4*h.Len()+3), "round %d", round)
		}
		require.Less(t, moves, 20)
		requireHeap(t, &h)
	}
}

// verify checks H1 and H2. indexOf returns the index with which SetHeapIndex was last called. O(n).
func (h *Heap[E]) verify(indexOf func(E) int) error {
	for i, e := range h.items {
		if parent := (i - 1) / 2; i > 0 && e.Before(h.items[parent]) {
			return fmt.Errorf("H1: item %d is before its parent %d", i, parent)
		}
		if got := indexOf(e); got != i {
			return fmt.Errorf("H2: item %d has the index %d", i, got)
		}
	}
	return nil
}

func TestHeapVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	var h Heap[*testItem]
	for k := range 5 {
		h.Push(&testItem{key: k})
	}
	h.items[4].key = -1
	require.ErrorContains(t, h.verify(testIndex), "H1")
	h.items[4].key = 4
	h.items[2].index = 1
	require.ErrorContains(t, h.verify(testIndex), "H2")
}
