package durable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFIFOKeepsTheOrder(t *testing.T) {
	t.Parallel()
	var f fifo[int]
	in, out := 0, 0
	for round := range 1000 {
		for range round % 7 {
			f.push(in)
			in++
		}
		for range min(f.len(), round%5) {
			require.Equal(t, out, f.first())
			require.Equal(t, out, f.pop())
			out++
		}
		require.Equal(t, in-out, f.len())
		require.LessOrEqual(t, len(f.items), max(64, 2*f.len()+1))
	}
	f.keep(func(i int) bool { return i%2 == 0 })
	for f.len() > 0 {
		require.Zero(t, f.pop()%2)
	}
}

// Items that are deleted before they are first leave little behind, and the other items keep their
// order.
func TestLazyFIFODropsDeletedItems(t *testing.T) {
	t.Parallel()
	var f lazyFIFO[*heldMessage]
	var stay []*heldMessage
	for i := range 10_000 {
		h := &heldMessage{state: heldReady}
		f.push(h)
		if i%1000 == 0 {
			stay = append(stay, h)
		} else {
			h.state = heldGone
			f.removed()
		}
		require.Equal(t, len(stay), f.len())
		require.LessOrEqual(t, f.items.len(), 64)
	}
	for _, want := range stay {
		h, ok := f.pop()
		require.True(t, ok)
		require.Same(t, want, h)
	}
	_, ok := f.pop()
	require.False(t, ok)
	require.Zero(t, f.len())
	require.Zero(t, f.items.len())
}
