package local

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type heapItem struct{ key, n, index int }

func (i *heapItem) less(o *heapItem) bool {
	return cmp.Or(cmp.Compare(i.key, o.key), cmp.Compare(i.n, o.n)) < 0
}
func (i *heapItem) position() *int { return &i.index }

// Items are added, moved and removed at random, and compared with a sorted slice.
func TestHeapAgreesWithSortedSlice(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var h indexedHeap[*heapItem]
	var all []*heapItem
	for step := range 1200 {
		switch grow := step < 600; {
		case len(all) == 0 || random.IntN(4) == 0 != grow:
			item := &heapItem{key: 1 + random.IntN(50), n: step}
			heap.Push(&h, item)
			all = append(all, item)
		case random.IntN(2) == 0:
			item := all[random.IntN(len(all))]
			item.key = 1 + random.IntN(50)
			heap.Fix(&h, item.index)
		default:
			i := random.IntN(len(all))
			heap.Remove(&h, all[i].index)
			all = slices.Delete(all, i, i+1)
		}
		checkHeap(t, h, all)
	}
	slices.SortFunc(all, func(a, b *heapItem) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.n, b.n)) })
	for _, item := range all {
		require.Same(t, item, h[0])
		heap.Remove(&h, item.index)
	}
	assert.Empty(t, h)
}

// checkHeap checks the invariant of a heap and that it holds exactly the given items.
func checkHeap(t *testing.T, h indexedHeap[*heapItem], all []*heapItem) {
	t.Helper()
	require.Equal(t, len(all), len(h))
	for _, item := range all {
		require.Same(t, item, h[item.index])
		require.False(t, item.less(h[max(0, item.index-1)/2]))
	}
}
