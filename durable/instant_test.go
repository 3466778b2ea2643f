package durable_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

func TestInstantRoundsUpAndSaturates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    time.Duration
		want driver.Instant
	}{
		{-1, 1000}, {0, 1000}, {1, 1001}, {time.Millisecond, 1001}, {time.Millisecond + 1, 1002}, {time.Second, 2000},
		{math.MaxInt64, 1000 + math.MaxInt64/1_000_000 + 1}, {math.MinInt64, 1000},
	} {
		assert.Equal(t, c.want, driver.Instant(1000).Add(c.d), "%v", c.d)
	}
	assert.Equal(t, driver.Never, driver.Never.Add(time.Second))
	assert.Equal(t, driver.Never, (driver.Never - 5).Add(math.MaxInt64))
	assert.EqualValues(t, 0, driver.InstantOf(time.Time{}), "before 1970")
	assert.EqualValues(t, 5, driver.InstantOf(time.UnixMilli(5)))
	assert.EqualValues(t, 6, driver.InstantOf(time.UnixMilli(5).Add(1)), "rounded up")
	assert.Equal(t, driver.Never, driver.InstantOf(time.Unix(1<<60, 0)))
}

func TestInstantsOfFarTimesDoNotOverflow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at   time.Time
		want driver.Instant
	}{
		"1970":                      {time.Unix(0, 0), 0},
		"a nanosecond later":        {time.Unix(0, 1), 1},
		"a nanosecond earlier":      {time.Unix(0, -1), 0},
		"the zero time":             {time.Time{}, 0},
		"long before the year 1":    {time.Unix(math.MinInt64/1000-1, 0), 0},
		"as long ago as it goes":    {time.Unix(math.MinInt64/2, 0), 0},
		"the last instant":          {driver.Never.Time(), driver.Never},
		"a nanosecond after that":   {driver.Never.Time().Add(1), driver.Never},
		"the farthest time":         {time.Unix(math.MaxInt64/2, 0), driver.Never},
		"a millisecond before that": {driver.Never.Time().Add(-time.Millisecond), driver.Never - 1},
	} {
		assert.Equal(t, c.want, driver.InstantOf(c.at), name)
	}
}

// FuzzInstant adds delays to times. The result is never early, and at most a millisecond late.
func FuzzInstant(f *testing.F) {
	f.Add(int64(0), int64(0))
	f.Add(int64(1_700_000_000_123_456_789), int64(1_800_000_000_000))
	f.Add(int64(math.MinInt64), int64(math.MinInt64))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, at, delay int64) {
		start, d := time.Unix(0, at), time.Duration(delay)
		i := driver.InstantOf(start)
		if at > 0 {
			assert.False(t, i.Time().Before(start))
			assert.True(t, i.Time().Before(start.Add(time.Millisecond)))
		} else {
			assert.Zero(t, i)
		}
		sum := i.Add(d)
		if d <= 0 {
			assert.Equal(t, i, sum)
			return
		}
		assert.False(t, sum.Time().Before(i.Time().Add(d)))
		assert.True(t, sum.Time().Before(i.Time().Add(d).Add(time.Millisecond)))
		assert.Equal(t, driver.Never, (driver.Never - 1).Add(max(d, time.Millisecond)))
		assert.Equal(t, driver.Never, driver.Never.Add(d))
	})
}

func TestCursorOfListNamesItsMessage(t *testing.T) {
	t.Parallel()
	for _, want := range []struct {
		at driver.Instant
		id string
	}{{1, "a"}, {1_700_000_000_123, "a:b: é"}, {driver.Never, "0"}} {
		at, id, err := contract.ParseCursor(contract.FormatCursor(want.at, want.id))
		require.NoError(t, err)
		assert.Equal(t, want.at, at)
		assert.Equal(t, want.id, id)
	}
	at, id, err := contract.ParseCursor("")
	require.NoError(t, err, "the first page")
	assert.Zero(t, at)
	assert.Empty(t, id)
	for _, cursor := range []string{"a", ":", "1:", ":a", "-1:a", "x:a", "1.5:a", "4503599627370497:a", "99999999999999999999:a"} {
		_, _, err := contract.ParseCursor(cursor)
		require.ErrorIs(t, err, driver.ErrInvalid, cursor)
	}
}
