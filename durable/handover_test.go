package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Begun messages and takers are matched in order of arrival. A taker that has left gets
// nothing, and a message that is gone reaches no taker.
func TestHandoverIsFair(t *testing.T) {
	t.Parallel()
	var o handover
	now := time.UnixMilli(1_000_000)
	first, second, third := newTaker(), newTaker(), newTaker()
	for _, taker := range []*taker{first, second, third} {
		require.Nil(t, o.take(taker, now))
	}
	o.leave(first, now)
	a, b := &heldMessage{}, &heldMessage{}
	require.Same(t, second, o.give(a, now))
	require.Equal(t, heldTaken, a.state)
	require.Same(t, third, o.give(b, now))
	require.Nil(t, o.give(&heldMessage{}, now), "no taker waits")

	kept := make([]*heldMessage, 3)
	for i := range kept {
		kept[i] = new(heldMessage)
		o.keep(kept[i])
		require.Equal(t, heldBegun, kept[i].state)
	}
	kept[0].state = heldGone
	o.begun.removed()
	require.Equal(t, 2, o.begun.len())
	require.Same(t, kept[1], o.take(first, now))
	require.Same(t, kept[2], o.take(first, now))
	require.Nil(t, o.take(newTaker(), now))
}

func TestHandoverIsIdleSinceTheLastTaker(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	o := handover{used: now}
	later := now.Add(time.Minute)
	assert.Equal(t, time.Minute, o.idle(later))
	waits := newTaker()
	o.take(waits, now)
	assert.Zero(t, o.idle(later), "a taker waits")
	o.leave(waits, later)
	assert.Equal(t, time.Second, o.idle(later.Add(time.Second)))
	o.keep(new(heldMessage))
	o.take(waits, later.Add(time.Minute))
	assert.Zero(t, o.idle(later.Add(time.Minute)))
}
