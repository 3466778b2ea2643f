package durable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Messages that are ready and go before a taker comes leave nothing behind, and those that stay keep
// their order.
func TestReadyMessagesThatAreGone(t *testing.T) {
	t.Parallel()
	opts := ConsumerOptions{Prefetch: 1 << 20}
	d := &dispatcher{ctx: t.Context(), opts: &opts}
	d.admission.opts = &opts
	d.leases.held = make(map[*held]struct{})
	part := &consumerPart{share: share{wake: func() {}}}
	var stay []*held
	for i := range 10_000 {
		h := &held{state: heldReady, part: part}
		d.leases.held[h] = struct{}{}
		d.admission.claimed(&part.share, 0)
		d.ready.push(h)
		if i%1000 == 0 {
			stay = append(stay, h)
			continue
		}
		require.True(t, d.forget(h))
		require.LessOrEqual(t, d.ready.len(), 64)
	}
	for _, want := range stay {
		h := d.ready.pop()
		for h.state != heldReady {
			h = d.ready.pop()
		}
		require.Same(t, want, h)
	}
}
