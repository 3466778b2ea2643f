package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Any text is rejected or has times, each later than the one before, and the same ones from any
// time between them.
func FuzzSeries(f *testing.F) {
	for _, repeat := range []string{
		"@every 10m", "@every 1ms", "@hourly", "@yearly", "0 8 * * *", "*/7 1-5,22 1,15 * 1-5", "0 0 29 2 *", "0 0 31 * 7", "59 23 * 2 0",
		"CRON_TZ=Europe/Berlin 30 2 * * *", "TZ=Australia/Lord_Howe */15 * * * *", "CRON_TZ=America/Havana 0 0 * * *", "CRON_TZ=Local @daily",
	} {
		for _, at := range []int64{0, 1_900_000_000, 1_916_700_000, 4_102_444_800} {
			f.Add(repeat, at)
		}
	}
	f.Fuzz(func(t *testing.T, repeat string, at int64) {
		s, err := parseSeries(repeat)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		now := time.Unix(max(at, -at)%8_000_000_000, 999_999_999) // up to the year 2223
		for range 5 {
			next := s.after(time.Unix(0, 0), now)
			require.True(t, next.After(now), "%v is followed by %v", now, next)
			middle := now.Add(next.Sub(now) / 2)
			require.True(t, next.Equal(s.after(time.Unix(0, 0), middle)), "%v, after %v", next, middle)
			require.Positive(t, s.period(now))
			now = next
		}
	})
}
