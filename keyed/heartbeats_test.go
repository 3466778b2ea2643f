package keyed

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/survey"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

func TestHeartbeatsReportSilentMembers(t *testing.T) {
	t.Parallel()
	var lost []string
	h, err := NewHeartbeats(timingwheel.Options{Manual: true}, 30*time.Second, func(keys []string) { lost = append(lost, keys...) })
	require.NoError(t, err)
	begin := h.Now()
	at := func(seconds int) { h.Advance(begin.Add(time.Duration(seconds) * time.Second)) }

	assert.Equal(t, 30*time.Second, h.Timeout())
	for _, member := range []string{"a", "b", "c"} {
		assert.True(t, h.Beat(member))
		assert.False(t, h.Beat(member))
	}
	assert.Equal(t, 3, h.Len())
	at(20)
	assert.False(t, h.Beat("a"))
	assert.True(t, h.Touch("b"))
	assert.False(t, h.Touch("d"), "d is not a member")
	deadline, ok := h.Deadline("a")
	assert.True(t, ok)
	assert.True(t, deadline.Equal(begin.Add(50*time.Second)))
	at(30)
	assert.Equal(t, []string{"c"}, lost)
	assert.False(t, h.Alive("c"))
	assert.False(t, h.Touch("c"))
	assert.True(t, h.Alive("a"))
	assert.Len(t, maps.Collect(h.All()), 2)

	assert.True(t, h.Leave("a"))
	assert.False(t, h.Leave("a"))
	assert.False(t, h.Leave("c"))
	next, ok := h.Next()
	assert.True(t, ok)
	assert.False(t, next.After(begin.Add(50*time.Second)))
	at(50)
	assert.Equal(t, []string{"c", "b"}, lost)
	assert.True(t, h.Beat("c"), "a reported member becomes a member again")
	assert.EqualValues(t, 4, h.Stats().Armed, "Beat for a member adds no timer")
	assert.EqualValues(t, 2, h.Stats().Fired)

	require.NoError(t, h.Shutdown(context.Background()))
	assert.False(t, h.Beat("c"))
	assert.False(t, h.Alive("c"))
	assert.Zero(t, h.Len())
	h.Stop()
	at(1000)
	assert.Len(t, lost, 2)
}

// Keys and Heartbeats can be added to the debug page.
var (
	_ wheeldebug.Source = (*Keys[string])(nil)
	_ wheeldebug.Source = (*Heartbeats[string])(nil)
)

func TestSurveyCountsKeys(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	h, err := NewHeartbeats(timingwheel.Options{Manual: true}, ms, func([]string) {})
	require.NoError(t, err)
	t.Cleanup(h.Stop)
	for i := range 3 {
		r.Set(text(i), ms)
		h.Beat(text(i))
	}
	assert.Equal(t, 3, survey.Take(r.Keys).Levels[0].Timers)
	assert.Equal(t, 3, survey.Take(h).Levels[0].Timers)
}
