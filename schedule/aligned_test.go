package schedule

import (
	"fmt"
	"math"
	"testing"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

const day = 24 * time.Hour

// Each row begins shortly before the clocks are changed. The zone's name distinguishes the two
// passes of a repeated hour.
var changes = []struct {
	zone string
	d    time.Duration
	from string // UTC
	want []string
}{
	// Berlin, March 31 2030: at 02:00 the clocks show 03:00.
	{"Europe/Berlin", 15 * time.Minute, "2030-03-31 00:40", []string{"01:45 CET", "03:00 CEST", "03:15 CEST"}},
	{"Europe/Berlin", 30 * time.Minute, "2030-03-31 00:59", []string{"03:00 CEST", "03:30 CEST"}},
	{"Europe/Berlin", time.Hour, "2030-03-30 23:30", []string{"01:00 CET", "03:00 CEST", "04:00 CEST"}},
	{"Europe/Berlin", 2 * time.Hour, "2030-03-30 22:30", []string{"00:00 CET", "03:00 CEST", "04:00 CEST", "06:00 CEST"}}, // 02:00 is in the gap
	{"Europe/Berlin", 6 * time.Hour, "2030-03-30 22:30", []string{"00:00 CET", "06:00 CEST"}},
	{"Europe/Berlin", day, "2030-03-29 23:30", []string{"31 00:00 CET", "01 00:00 CEST"}},
	// October 27 2030: at 03:00 the clocks show 02:00 again.
	{"Europe/Berlin", 15 * time.Minute, "2030-10-27 00:40", []string{
		"02:45 CEST", "02:00 CET", "02:15 CET", "02:30 CET", "02:45 CET", "03:00 CET",
	}},
	{"Europe/Berlin", 30 * time.Minute, "2030-10-26 23:40", []string{"02:00 CEST", "02:30 CEST", "02:00 CET", "02:30 CET", "03:00 CET"}},
	{"Europe/Berlin", time.Hour, "2030-10-26 23:30", []string{"02:00 CEST", "02:00 CET", "03:00 CET", "04:00 CET"}},
	{"Europe/Berlin", 90 * time.Minute, "2030-10-26 23:00", []string{"01:30 CEST", "03:00 CET", "04:30 CET"}},
	{"Europe/Berlin", 2 * time.Hour, "2030-10-26 21:00", []string{"00:00 CEST", "02:00 CEST", "04:00 CET"}},
	{"Europe/Berlin", 2 * time.Hour, "2030-10-27 01:10", []string{"04:00 CET"}}, // called in the second pass
	{"Europe/Berlin", day, "2030-10-26 21:00", []string{"27 00:00 CEST", "28 00:00 CET"}},
	// New York, March 10 and November 3 2030.
	{"America/New_York", 20 * time.Minute, "2030-03-10 06:30", []string{"01:40 EST", "03:00 EDT", "03:20 EDT"}},
	{"America/New_York", 30 * time.Minute, "2030-11-03 05:10", []string{"01:30 EDT", "01:00 EST", "01:30 EST", "02:00 EST"}},
	{"America/New_York", 12 * time.Hour, "2030-11-02 17:00", []string{"00:00 EDT", "12:00 EST", "00:00 EST"}},
	// Lord Howe sets its clocks forward and back by half an hour: October 6 2030 at 02:00, April 7
	// 2030 at 02:00.
	{"Australia/Lord_Howe", 15 * time.Minute, "2030-10-05 15:10", []string{"01:45 +1030", "02:30 +11", "02:45 +11"}},
	{"Australia/Lord_Howe", time.Hour, "2030-10-05 14:00", []string{"01:00 +1030", "02:30 +11", "03:00 +11"}},
	{"Australia/Lord_Howe", 30 * time.Minute, "2030-04-06 14:10", []string{"01:30 +11", "01:30 +1030", "02:00 +1030"}},
	{"Australia/Lord_Howe", time.Hour, "2030-04-06 13:30", []string{"01:00 +11", "02:00 +1030", "03:00 +1030"}},
	{"Australia/Lord_Howe", 15 * time.Minute, "2030-04-06 14:40", []string{"01:45 +11", "01:30 +1030", "01:45 +1030", "02:00 +1030"}},
	// Havana changes its clocks at midnight: March 10 2030 has no 00:00, and November 3 2030 has
	// two.
	{"America/Havana", day, "2030-03-09 06:00", []string{"10 01:00 CDT", "11 00:00 CDT"}},
	{"America/Havana", time.Hour, "2030-03-10 04:30", []string{"01:00 CDT", "02:00 CDT"}},
	{"America/Havana", day, "2030-11-02 06:00", []string{"03 00:00 CDT", "04 00:00 CST"}},
	{"America/Havana", day, "2030-11-03 05:10", []string{"04 00:00 CST"}}, // called between the two
	{"America/Havana", time.Hour, "2030-11-03 03:30", []string{"00:00 CDT", "00:00 CST", "01:00 CST"}},
	// Samoa skipped December 30 2011.
	{"Pacific/Apia", day, "2011-12-28 12:00", []string{"29 00:00 -10", "31 00:00 +14", "01 00:00 +14"}},
	{"Pacific/Apia", 7 * day, "2011-12-20 12:00", []string{"26 00:00 -10", "02 00:00 +14"}},
	// The last day of a leap year: package time assumes that the years of a zone's rule have 365
	// days and end before this day.
	{"Europe/London", day, "2040-12-29 12:00", []string{"30 00:00 GMT", "31 00:00 GMT", "01 00:00 GMT"}},
	{"Europe/Berlin", 12 * time.Hour, "2040-12-30 20:00", []string{"31 00:00 CET", "31 12:00 CET", "01 00:00 CET"}},
	{"America/New_York", 15 * time.Minute, "2040-12-31 23:40", []string{"18:45 EST", "19:00 EST", "19:15 EST"}},
	{"Australia/Lord_Howe", time.Hour, "2040-12-30 22:30", []string{"10:00 +11", "11:00 +11", "12:00 +11"}},
	// Zones without changes.
	{"UTC", 7 * time.Hour, "0001-01-01 00:00", []string{"01 07:00 UTC", "01 14:00 UTC", "01 21:00 UTC", "02 04:00 UTC"}},
	{"Asia/Kathmandu", 6 * time.Hour, "2030-01-01 00:00", []string{"06:00 +0545", "12:00 +0545", "18:00 +0545"}},
}

func TestAlignedWhenClocksChange(t *testing.T) {
	t.Parallel()
	for _, row := range changes {
		t.Run(fmt.Sprint(row.zone, " ", row.d, " from ", row.from), func(t *testing.T) {
			t.Parallel()
			s := Aligned(row.d, zone(t, row.zone))
			at, err := time.Parse("2006-01-02 15:04", row.from)
			require.NoError(t, err)
			for _, want := range row.want {
				next := s.Next(at)
				require.True(t, next.After(at))
				layout := "15:04 MST"
				if len(want) > 3 && want[2] == ' ' {
					layout = "02 " + layout
				}
				require.Equal(t, want, next.Format(layout))
				at = next
			}
		})
	}
}

// The test compares Aligned with a search minute by minute. A run takes place if the clock, for the
// first time, shows or has skipped a multiple of d. A run also takes place if the clock shows a
// multiple again and d is at most the repeated time.
func TestAlignedAgreesWithSearchByMinute(t *testing.T) {
	t.Parallel()
	steps := []time.Duration{5 * time.Minute, 45 * time.Minute, time.Hour, 90 * time.Minute, 2 * time.Hour, 7 * time.Hour, day}
	for _, row := range changes {
		loc := zone(t, row.zone)
		from, err := time.ParseInLocation("2006-01-02 15:04", row.from, time.UTC)
		require.NoError(t, err)
		to := from.Add(30 * time.Hour)
		for _, d := range steps {
			var runs []time.Time
			s := Aligned(d, loc)
			for at := s.Next(from); !at.After(to); at = s.Next(at) {
				runs = append(runs, at.UTC())
			}
			require.Equal(t, search(loc, d, from, to), runs, "%v in %v from %v", d, loc, from)
		}
	}
}

// search finds the runs in (from, to].
func search(loc *time.Location, d time.Duration, from, to time.Time) (runs []time.Time) {
	reading := func(t time.Time) time.Time {
		_, offset := t.In(loc).Zone()
		return t.Add(time.Duration(offset) * time.Second)
	}
	begin := from.Add(-day)
	highest := reading(begin) // the highest reading that was shown
	back := time.Duration(0)  // by how much the clock was last set back
	for t := begin.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		now := reading(t)
		back = max(back, reading(t.Add(-time.Minute)).Add(time.Minute).Sub(now))
		run := false
		switch {
		case now.After(highest):
			run = now.Truncate(d).After(highest)
			highest = now
		case d <= back:
			run = now.Truncate(d).Equal(now)
		}
		if run && t.After(from) {
			runs = append(runs, t)
		}
	}
	return runs
}

// Run times increase, and are multiples of d unless the clocks were changed.
func TestAlignedKeepsItsPhaseForAYear(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Casablanca", "UTC"} {
		loc := zone(t, name)
		for _, d := range []time.Duration{20 * time.Minute, time.Hour, 6 * time.Hour, day, 7 * day} {
			s := Aligned(d, loc)
			at := time.Date(2029, time.May, 5, 5, 5, 5, 5, loc)
			end := at.AddDate(1, 1, 0)
			for at.Before(end) {
				next := s.Next(at)
				_, offset := next.Zone()
				wall := next.UTC().Add(time.Duration(offset) * time.Second)
				start, _ := next.ZoneBounds()
				multiple := wall.Equal(wall.Truncate(d)) || next.Equal(start)
				if pause := next.Sub(at); pause <= 0 || pause > d+time.Hour || !multiple {
					t.Fatalf("%v in %v: %v follows %v", d, name, next, at)
				}
				at = next
			}
		}
	}
}

// The wall clock is stepped while a run is pending. The run after it is planned by the new wall
// clock.
func TestAlignedAfterStepOfWallClock(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		policy func(timingwheel.Scheduler) timingwheel.Scheduler
		start  time.Time // the wall clock when the run of 12:00 starts
		want   time.Time
	}{
		"on time":               {runOnce, noon, noon.Add(15 * time.Minute)},
		"set back by an hour":   {runOnce, noon.Add(-time.Hour), noon.Add(15 * time.Minute)},
		"set forward by 40 min": {runOnce, noon.Add(40 * time.Minute), noon.Add(45 * time.Minute)},
		"set forward, run all":  {runAll, noon.Add(40 * time.Minute), noon.Add(15 * time.Minute)},
	} {
		c := planner.For(row.policy(Aligned(15*time.Minute, time.UTC)))
		r := planner.Run{N: 1, Planned: noon, Started: row.start}
		next := c.Before(r).Next
		require.Equal(t, noon.Add(15*time.Minute), next, name)
		assert.Equal(t, row.want, ended(c, next, row.start.Add(time.Second)), name)
	}
}

// The wall clock was ten years ahead and is set right. The wheel then asks for a first run again,
// and every chain of wrappers plans it by the new wall clock.
func TestFirstRunAfterWallClockWasSetBackFar(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, time.March, 1, 12, 1, 0, 0, time.UTC)
	wrong := noon.AddDate(10, 0, 0)
	quarter := func() timingwheel.Scheduler { return Aligned(15*time.Minute, time.UTC) }
	for name, s := range map[string]timingwheel.Scheduler{
		"Aligned":     quarter(),
		"Jitter":      Jitter(quarter(), time.Minute),
		"Limit":       Limit(quarter(), 5),
		"Until":       Until(quarter(), wrong.Add(24*time.Hour)),
		"WithMisfire": WithMisfire(quarter(), RunAll),
		"WithOverlap": WithOverlap(quarter(), QueueOne),
		"MaxLate":     MaxLate(Jitter(Limit(quarter(), 5), time.Minute), time.Hour),
	} {
		c := planner.For(s)
		at := c.First(wrong)
		at = ended(c, c.Before(planner.Run{N: 1, Planned: at, Started: at}).Next, at.Add(time.Second))
		require.True(t, at.After(wrong), name)
		at = c.First(noon)
		assert.True(t, at.After(noon) && at.Sub(noon) < 16*time.Minute, "%s: %v", name, at)
		next := ended(c, c.Before(planner.Run{N: 2, Planned: at, Started: at}).Next, at.Add(time.Second))
		assert.True(t, next.After(at) && next.Sub(at) < 17*time.Minute, "%s: %v after %v", name, next, at)
	}
}

// A daily run at 02:30 takes place once a day, even on days that have no 02:30 or two.
func TestAlignedAtRunsOnceADay(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		zone, from string
		d, offset  time.Duration
		want       []string
	}{
		{"Europe/Berlin", "2030-03-29 12:00", day, 150 * time.Minute, []string{"30 02:30 CET", "31 03:00 CEST", "01 02:30 CEST"}},
		{"Europe/Berlin", "2030-10-25 12:00", day, 150 * time.Minute, []string{"26 02:30 CEST", "27 02:30 CEST", "28 02:30 CET"}},
		{"Europe/Berlin", "2030-10-27 00:10", time.Hour, 30 * time.Minute, []string{"27 02:30 CEST", "27 02:30 CET", "27 03:30 CET"}},
		{"America/New_York", "2030-03-09 00:00", day, 150 * time.Minute, []string{"09 02:30 EST", "10 03:00 EDT", "11 02:30 EDT"}},
		{"Australia/Lord_Howe", "2030-04-05 00:00", day, 105 * time.Minute, []string{"06 01:45 +11", "07 01:45 +11", "08 01:45 +1030"}},
		{"Australia/Lord_Howe", "2030-10-04 00:00", day, 3 * time.Hour, []string{"05 03:00 +1030", "06 03:00 +11", "07 03:00 +11"}},
		{"UTC", "2030-03-01 00:00", 7 * day, 4*day + 9*time.Hour, []string{"01 09:00 UTC", "08 09:00 UTC"}}, // Fridays
	} {
		at, err := time.Parse("2006-01-02 15:04", row.from)
		require.NoError(t, err)
		s := AlignedAt(row.d, row.offset, zone(t, row.zone))
		for _, want := range row.want {
			at = s.Next(at)
			assert.Equal(t, want, at.Format("02 15:04 MST"), "%s from %s", row.zone, row.from)
		}
	}
}

// Intervals of centuries neither overflow nor take a long search.
func TestAlignedWithHugeIntervals(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Europe/Berlin"} {
		for _, offset := range []time.Duration{0, 1, math.MaxInt64 / 2, math.MaxInt64 - 1} {
			s := AlignedAt(math.MaxInt64, offset, zone(t, name))
			first := s.Next(midnight)
			second := s.Next(first)
			assert.True(t, first.After(midnight), "%s, %v: %v", name, offset, first)
			assert.True(t, second.After(first), "%s, %v: %v", name, offset, second)
			assert.InDelta(t, float64(math.MaxInt64), second.Sub(first), float64(day), "%s, %v: %v", name, offset, second)
		}
	}
}

func TestAlignedTakesNoMonotonicReading(t *testing.T) {
	t.Parallel()
	next := Aligned(time.Hour, time.UTC).Next(time.Now())
	assert.Equal(t, next.Round(0), next, "the wheel must convert the wall-clock time")
	assert.Equal(t, time.UTC, next.Location())
}

func BenchmarkAlignedNext(b *testing.B) {
	for _, name := range []string{"UTC", "Europe/Berlin"} {
		b.Run(name, func(b *testing.B) {
			s := Aligned(15*time.Minute, zone(b, name))
			at := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				at = s.Next(at)
			}
		})
	}
}
