package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerFollowsItsClock(t *testing.T) {
	t.Parallel()
	clock := NewClock(t)
	s := Start(t, Options{Clock: clock})
	c := s.Client(t)
	for _, offset := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute, 1_999_999_999, -1_999_999_999, 100 * 365 * 24 * time.Hour, 0} {
		clock.Set(offset)
		before := time.Now()
		got, err := c.Time(t.Context()).Result()
		require.NoError(t, err)
		assert.False(t, got.Before(before.Add(offset).Truncate(time.Microsecond)), "%v: %v", offset, got)
		assert.False(t, got.After(time.Now().Add(offset)), "%v: %v", offset, got)
	}
	clock.Set(time.Hour)
	s.Kill()
	s.Restart()
	got, err := c.Time(t.Context()).Result()
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(time.Hour), got, time.Minute, "a restart keeps the clock")
}
