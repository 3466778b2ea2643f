package durable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Messages that are due and go before anybody takes them leave nothing behind, and those that stay keep their order.
func TestReadyMessagesThatAreGone(t *testing.T) {
	t.Parallel()
	q := &Queue{}
	c := &consumer{q: q, ctx: t.Context(), held: make(map[*held]struct{})}
	c.opts.Prefetch = 1 << 20
	c.parts = []*consumed{{pump: newPump(c, 0)}}
	var stay []*held
	for i := range 10_000 {
		h := &held{state: heldReady}
		c.held[h] = struct{}{}
		c.parts[0].unbegun++
		c.ready.push(h)
		if i%1000 == 0 {
			stay = append(stay, h)
			continue
		}
		require.True(t, c.forget(h))
		require.LessOrEqual(t, c.ready.len(), 64)
	}
	for _, want := range stay {
		h := c.ready.pop()
		for h.state != heldReady {
			h = c.ready.pop()
		}
		require.Same(t, want, h)
	}
}
