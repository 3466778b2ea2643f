package main

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/schedule"
)

// A plan of package schedule is a cron.Schedule too, so it can run on a cron.Cron.
var _ cron.Schedule = schedule.Limit(timingwheel.Every(time.Hour), 1)

// changes are the runs of parsed expressions when the clocks change. A time in the gap is skipped
// on that day, and a time that exists twice runs twice. On Lord Howe Island the clocks change by
// half an hour, and some runs are wrong. docs/schedules.md compares this table with
// schedule.AlignedAt.
var changes = []struct {
	expression, zone string
	start            string // UTC
	want             []string
}{
	{"30 2 * * *", "Europe/Berlin", "2030-03-29 12:00", []string{"30 02:30 CET", "01 02:30 CEST", "02 02:30 CEST"}},
	{"30 2 * * *", "Europe/Berlin", "2030-10-25 12:00", []string{"26 02:30 CEST", "27 02:30 CEST", "27 02:30 CET", "28 02:30 CET"}},
	{"*/15 * * * *", "Europe/Berlin", "2030-03-31 00:40", []string{"31 01:45 CET", "31 03:00 CEST", "31 03:15 CEST"}},
	{"*/30 * * * *", "Europe/Berlin", "2030-10-27 00:10", []string{"27 02:30 CEST", "27 02:00 CET", "27 02:30 CET", "27 03:00 CET"}},
	{"0 0 * * *", "Europe/Berlin", "2030-10-26 12:00", []string{"27 00:00 CEST", "28 00:00 CET"}},
	{"30 2 * * *", "America/New_York", "2030-03-09 00:00", []string{"09 02:30 EST", "11 02:30 EDT"}},
	{"30 1 * * *", "America/New_York", "2030-11-02 00:00", []string{"02 01:30 EDT", "03 01:30 EDT", "03 01:30 EST", "04 01:30 EST"}},
	{"15 2 * * *", "Australia/Lord_Howe", "2030-10-04 00:00", []string{"05 02:15 +1030", "07 02:15 +11"}},
	{"45 1 * * *", "Australia/Lord_Howe", "2030-04-05 00:00", []string{"06 01:45 +11", "07 01:45 +11", "07 01:45 +1030", "08 01:45 +1030"}},
	{"0 3 * * *", "Australia/Lord_Howe", "2030-10-04 00:00", []string{"05 03:00 +1030", "07 03:00 +11"}},                  // not in the gap
	{"45 1 * * *", "Australia/Lord_Howe", "2030-10-05 00:00", []string{"06 01:45 +1030", "06 02:45 +11", "07 01:45 +11"}}, // a wrong hour
	{"0 0 * * *", "Australia/Lord_Howe", "2030-04-05 00:00", []string{"06 00:00 +11", "07 00:00 +11", "09 00:00 +1030"}},
	{"0 * * * *", "Australia/Lord_Howe", "2030-10-05 13:50", []string{"06 01:00 +1030", "06 03:00 +11"}},
	{"0 * * * *", "Australia/Lord_Howe", "2030-04-06 13:50", []string{"07 01:00 +11", "07 02:00 +1030"}},
	{"0 0 * * *", "America/Havana", "2030-03-08 12:00", []string{"09 00:00 CST", "11 00:00 CDT"}},
	{"0 0 * * *", "America/Havana", "2030-11-02 12:00", []string{"03 00:00 CDT", "03 00:00 CST", "04 00:00 CST"}},
}

// The wheel runs a schedule at these times, also inside wrappers of package schedule.
func TestCronWhenTheClocksChange(t *testing.T) {
	t.Parallel()
	for _, row := range changes {
		t.Run(row.expression+" "+row.start+" "+row.zone, func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(row.zone)
			require.NoError(t, err)
			cronSchedule, err := cron.ParseStandard("CRON_TZ=" + row.zone + " " + row.expression)
			require.NoError(t, err)
			start, err := time.Parse("2006-01-02 15:04", row.start)
			require.NoError(t, err)
			for name, s := range map[string]timingwheel.Scheduler{
				"alone":   cronSchedule,
				"wrapped": schedule.Until(schedule.Jitter(schedule.WithMisfire(cronSchedule, schedule.RunAll), 0), start.AddDate(1, 0, 0)),
				"overlap": schedule.WithOverlap(schedule.Limit(cronSchedule, 100), schedule.Allow),
			} {
				assert.Equal(t, row.want, runs(t, s, start, loc, len(row.want)), name)
			}
		})
	}
}

// runs returns the first n runs of a plan on a wheel whose clock begins at start.
func runs(t *testing.T, s timingwheel.Scheduler, start time.Time, loc *time.Location, n int) (runs []string) {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Tick: time.Second})
	require.NoError(t, err)
	defer tw.Stop()
	tw.ScheduleRun(schedule.Limit(s, n), func(r *timingwheel.Run) {
		assert.True(t, r.Started.Equal(r.Planned), "%v at %v", r.Planned, r.Started)
		runs = append(runs, r.Started.In(loc).Format("02 15:04 MST"))
	})
	for next, ok := tw.Next(); ok; next, ok = tw.Next() {
		tw.Advance(next)
	}
	return runs
}

// A plan with a run each second is a week late. No policy iterates over the 604,800 missed runs.
func TestCronAfterAWeek(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	week := 7 * 24 * time.Hour
	for name, row := range map[string]struct {
		policy  schedule.Misfire
		maxLate time.Duration
		want    []time.Duration
	}{
		"run once":           {schedule.RunOnce, math.MaxInt64, []time.Duration{time.Second}},
		"run once, not late": {schedule.RunOnce, 500 * time.Millisecond, []time.Duration{week}},
		"run all, not late":  {schedule.RunAll, 2 * time.Second, []time.Duration{week - 2*time.Second, week - time.Second, week}},
	} {
		cronSchedule, err := cron.ParseStandard("@every 1s")
		require.NoError(t, err)
		counter := &counter{Schedule: cronSchedule}
		tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
		require.NoError(t, err)
		var ran []time.Duration
		s := schedule.MaxLate(schedule.WithMisfire(counter, row.policy), row.maxLate)
		tw.ScheduleRun(s, func(r *timingwheel.Run) { ran = append(ran, r.Planned.Sub(start)) })
		for tw.Advance(start.Add(week)) > 0 {
		}
		assert.Equal(t, row.want, ran, name)
		assert.Less(t, counter.calls, 12, name)
		tw.Stop()
	}
}

// counter counts the calls to Next.
type counter struct {
	cron.Schedule
	calls int
}

func (c *counter) Next(t time.Time) time.Time {
	c.calls++
	return c.Schedule.Next(t)
}

// Jitter spreads the runs of a cron expression and does not accumulate.
func TestCronWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronSchedule, err := cron.ParseStandard("CRON_TZ=America/New_York 30 1 * * *")
		require.NoError(t, err)
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		start := time.Now()
		end := start.AddDate(1, 0, 0)
		var runs []time.Time
		tw.ScheduleFunc(schedule.Until(schedule.Jitter(cronSchedule, time.Minute), end), func() { runs = append(runs, time.Now()) })
		time.Sleep(time.Until(end.Add(time.Hour)))
		require.NoError(t, tw.Shutdown(context.Background()))
		want := planned(cronSchedule, start, end)
		require.Equal(t, len(want), len(runs))
		late := 0
		for i, at := range want {
			require.WithinRange(t, runs[i], at, at.Add(time.Minute+time.Millisecond))
			if runs[i].After(at.Add(time.Second)) {
				late++
			}
		}
		assert.Greater(t, late, len(want)/2, "runs with a jitter of more than a second")
	})
}

// A cron.Cron runs a plan of package schedule.
func TestPlanOnACron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cron.New()
		start := time.Now()
		var mu sync.Mutex // each job runs on its own goroutine
		var ran []time.Duration
		c.Schedule(schedule.Limit(schedule.Backoff(time.Minute, 4*time.Minute), 4), cron.FuncJob(func() {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, time.Since(start))
		}))
		c.Start()
		time.Sleep(time.Hour)
		<-c.Stop().Done()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []time.Duration{time.Minute, 3 * time.Minute, 7 * time.Minute, 11 * time.Minute}, ran)
	})
}
