package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

func TestPlansRunAtTheirTimes(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	require.NoError(t, run(&out, start, start.AddDate(0, 0, 15)))
	assert.Equal(t, 17+11+3, strings.Count(out.String(), "\n"), out.String())
	for _, line := range []string{
		"Sun 2030-03-03 02:30  backup\n", "Sun 2030-03-10 02:30  backup\n",
		"Fri 2030-03-01 09:00  report\n", "Thu 2030-03-14 09:00  report\n",
		"Fri 2030-03-15 00:00  invoice\n",
		"Fri 2030-03-08 14:30  opening\n", "Mon 2030-03-11 13:30  opening\n",
		"Fri 2030-03-01 08:00  reminder 1\n", "Sun 2030-03-03 08:00  reminder 3\n",
		"Tue 2030-03-05 04:00  cleanup\n", "Wed 2030-03-13 12:00  cleanup\n",
	} {
		assert.Contains(t, out.String(), line)
	}
}

// Every cron.Schedule is a timingwheel.Scheduler.
var _ timingwheel.Scheduler = cron.Schedule(nil)

var expressions = []struct {
	when  string
	years int
}{
	{"@every 7h", 3},
	{"@hourly", 1},
	{"@yearly", 30},
	{"*/20 9-17 * * MON-FRI", 1},
	{"0 0 29 2 *", 30},                          // leap days; 2100 is not a leap year
	{"CRON_TZ=America/New_York 30 2 * * *", 2},  // does not exist on a day in March
	{"CRON_TZ=America/New_York 30 1 * * *", 2},  // exists twice on a day in November
	{"CRON_TZ=Asia/Kathmandu 15 10 1 * SUN", 3}, // UTC+05:45
}

// planned returns the runs of a schedule between start and end.
func planned(s cron.Schedule, start, end time.Time) (runs []time.Time) {
	for at := s.Next(start); !at.IsZero() && at.Before(end); at = s.Next(at) {
		runs = append(runs, at.UTC())
	}
	return runs
}

// In Manual mode each schedule runs exactly at its times.
func TestSchedulesOverYears(t *testing.T) {
	t.Parallel()
	start := time.Date(2095, time.June, 5, 13, 14, 15, 0, time.UTC)
	for _, expression := range expressions {
		t.Run(expression.when, func(t *testing.T) {
			t.Parallel()
			end := start.AddDate(expression.years, 0, 0)
			schedule, err := cron.ParseStandard(expression.when)
			require.NoError(t, err)
			tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
			require.NoError(t, err)
			defer tw.Stop()

			var runs []time.Time
			tw.ScheduleFunc(schedule, func() { runs = append(runs, tw.Now().UTC()) })
			for next, ok := tw.Next(); ok && next.Before(end); next, ok = tw.Next() {
				tw.Advance(next)
			}
			want := planned(schedule, start, end)
			require.NotEmpty(t, want)
			assert.Equal(t, want, runs)
		})
	}
}

// A running wheel does the same. In a synctest bubble a year takes no time.
func TestSchedulesOnARunningWheel(t *testing.T) {
	for _, expression := range []string{"0 */6 * * *", "CRON_TZ=America/New_York 30 2 * * *", "@every 33h"} {
		synctest.Test(t, func(t *testing.T) {
			schedule, err := cron.ParseStandard(expression)
			require.NoError(t, err)
			tw, err := timingwheel.New(timingwheel.Options{})
			require.NoError(t, err)

			start := time.Now()
			end := start.AddDate(1, 0, 0).Add(-time.Minute) // not at the time of a run
			var runs []time.Time
			tw.ScheduleFunc(schedule, func() { runs = append(runs, time.Now()) })
			time.Sleep(time.Until(end))
			require.NoError(t, tw.Shutdown(context.Background()))

			want := planned(schedule, start, end)
			require.Equal(t, len(want), len(runs), expression)
			for i, at := range want {
				assert.WithinRange(t, runs[i], at, at.Add(time.Millisecond), expression)
			}
		})
	}
}
