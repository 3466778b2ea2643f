package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Messages of a stalled partition do not delay others. When the partition continues, its messages
// are first and in order, except those that are gone.
func TestReadyQueueParksMessagesOfStalledPartitions(t *testing.T) {
	t.Parallel()
	var r readyQueue
	slow, fast := &consumerPart{share: share{stalled: true}}, &consumerPart{}
	messages := make([]*heldMessage, 6)
	for i := range messages {
		messages[i] = &heldMessage{part: slow}
		if i == 1 || i == 4 {
			messages[i].part = fast
		}
		r.push(messages[i])
	}
	require.Same(t, messages[1], r.next())
	require.Equal(t, heldParked, messages[0].state)
	require.Equal(t, heldReady, messages[2].state, "it is behind the message that was taken")
	require.Same(t, messages[4], r.next())
	require.Nil(t, r.next())
	require.Equal(t, 4, slow.parked.len())

	gone := func(h *heldMessage) {
		state := h.state
		h.state = heldGone
		r.remove(h, state)
	}
	gone(messages[2])
	last := &heldMessage{part: slow}
	r.push(last)
	gone(messages[3])
	slow.share.stalled = false
	r.unpark(slow)
	require.Zero(t, slow.parked.len())
	for _, want := range []*heldMessage{messages[0], messages[5], last} {
		require.Equal(t, heldReady, want.state)
		require.Same(t, want, r.next())
	}
	require.Nil(t, r.next())
}

// Begun messages and takers are matched in the order of arrival. A taker that has left gets
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
