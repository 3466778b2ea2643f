package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// A plan has a run every 10 ms and is delayed from 12 to 47: the run of 20 starts at 47, and the
// runs of 30 and 40 have misfired.
func TestMisfirePolicyDecidesMissedRuns(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		policy func(timingwheel.Scheduler) timingwheel.Scheduler
		want   []loggedRun
	}{
		"run once":               {runOnce, []loggedRun{{10, 10}, {20, 47}, {50, 50}, {60, 60}}},
		"run all":                {runAll, []loggedRun{{10, 10}, {20, 47}, {30, 47}, {40, 47}, {50, 50}, {60, 60}}},
		"skip":                   {runOnceMaxLate(2 * ms), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
		"skip, never late":       {runOnceMaxLate(0), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
		"skip, one in time":      {runOnceMaxLate(10 * ms), []loggedRun{{10, 10}, {40, 47}, {50, 50}, {60, 60}}},
		"skip, several in time":  {runOnceMaxLate(20 * ms), []loggedRun{{10, 10}, {30, 47}, {50, 50}, {60, 60}}},
		"skip, all in time":      {runOnceMaxLate(time.Hour), []loggedRun{{10, 10}, {20, 47}, {50, 50}, {60, 60}}},
		"catch up":               {runAllMaxLate(20 * ms), []loggedRun{{10, 10}, {30, 47}, {40, 47}, {50, 50}, {60, 60}}},
		"catch up, none in time": {runAllMaxLate(2 * ms), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := newManualWheel(t)
			d := runLog{start: midnight}
			tw.ScheduleRun(row.policy(timingwheel.Every(10*ms)), d.note)
			for _, at := range []time.Duration{10, 12, 47, 50, 60} {
				advance(tw, at*ms)
			}
			assert.Equal(t, row.want, d.runs)
		})
	}
}

// The clock advances by a week. With RunAll each Advance makes one run, so that no Advance takes
// long. Skipping takes a constant number of calls, however many runs are skipped.
func TestMisfireOfAWeekTakesFewCalls(t *testing.T) {
	t.Parallel()
	week := 7 * day
	for name, row := range map[string]struct {
		policy func(timingwheel.Scheduler) timingwheel.Scheduler
		want   []time.Duration
	}{
		"run once": {runOnce, []time.Duration{time.Second}},
		"skip":     {runOnceMaxLate(0), []time.Duration{week}},
		"run all":  {runAll, []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second}},
		"catch up": {runAllMaxLate(2 * time.Second), []time.Duration{week - 2*time.Second, week - time.Second, week}},
	} {
		tw := newManualWheel(t)
		count := &counting{Every: planner.Every(time.Second)}
		var planned []time.Duration
		tw.ScheduleRun(row.policy(count), func(r *timingwheel.Run) {
			planned = append(planned, r.Planned.Sub(midnight))
		})
		for range 5 {
			ran := len(planned)
			tw.Advance(midnight.Add(week))
			require.LessOrEqual(t, len(planned)-ran, 1, "runs in one Advance")
		}
		require.GreaterOrEqual(t, len(planned), len(row.want), name)
		assert.Equal(t, row.want, planned[:len(row.want)], name)
		assert.LessOrEqual(t, count.calls, 15, "%s: calls to the Scheduler", name)
	}
}

// A plan has a run every 10 ms. The first run takes 35 ms, the others 1 ms.
func TestOverlapPolicyDecidesRunsDuringARun(t *testing.T) {
	for name, row := range map[string]struct {
		plan timingwheel.Scheduler
		want []loggedRun
	}{
		"default":         {timingwheel.Every(10 * ms), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
		"skip if running": {WithOverlap(timingwheel.Every(10*ms), SkipIfRunning), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
		"queue one":       {WithOverlap(timingwheel.Every(10*ms), QueueOne), []loggedRun{{10, 10}, {20, 45}, {50, 50}, {60, 60}}},
		"allow": {WithOverlap(timingwheel.Every(10*ms), Allow), []loggedRun{
			{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60},
		}},
		// The policies for misfires do not affect runs that come due during a run.
		"run all":               {WithMisfire(timingwheel.Every(10*ms), RunAll), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
		"skip":                  {MaxLate(timingwheel.Every(10*ms), 5*ms), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
		"queue one, run all":    {WithMisfire(WithOverlap(timingwheel.Every(10*ms), QueueOne), RunAll), []loggedRun{{10, 10}, {20, 45}, {50, 50}, {60, 60}}},
		"queue one, skip":       {WithOverlap(MaxLate(timingwheel.Every(10*ms), 5*ms), QueueOne), []loggedRun{{10, 10}, {20, 45}, {50, 50}, {60, 60}}},
		"queue one of a limit":  {Limit(WithOverlap(timingwheel.Every(10*ms), QueueOne), 2), []loggedRun{{10, 10}, {20, 45}}},
		"allow with an end":     {Until(WithOverlap(timingwheel.Every(10*ms), Allow), time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)), []loggedRun{{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60}}},
		"allow of a limit":      {WithOverlap(Limit(timingwheel.Every(10*ms), 3), Allow), []loggedRun{{10, 10}, {20, 20}, {30, 30}}},
		"allow of a delay":      {WithOverlap(FixedDelay(10*ms), Allow), []loggedRun{{10, 10}, {55, 55}}},
		"queue one of a delay":  {WithOverlap(FixedDelay(10*ms), QueueOne), []loggedRun{{10, 10}, {55, 55}}},
		"the outer policy wins": {WithOverlap(WithOverlap(timingwheel.Every(10*ms), Allow), SkipIfRunning), []loggedRun{{10, 10}, {50, 50}, {60, 60}}},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
				d := runLog{start: time.Now()}
				tw.ScheduleRun(row.plan, func(r *timingwheel.Run) {
					d.note(r)
					if r.N == 1 {
						time.Sleep(35 * ms)
					} else {
						time.Sleep(ms)
					}
				})
				sleep(62 * ms)
				assert.Equal(t, row.want, d.runs)
			})
		})
	}
}

// One run is queued, however many come due.
func TestQueueOneQueuesOneRunDuringEachLongRun(t *testing.T) {
	runInBubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		d := runLog{start: time.Now()}
		tw.ScheduleRun(WithOverlap(timingwheel.Every(10*ms), QueueOne), func(r *timingwheel.Run) {
			d.note(r)
			time.Sleep(25 * ms)
		})
		sleep(120 * ms)
		// The first run takes from 10 to 35. The second one replaces 20 and 30 and takes from 35 to
		// 60, while 40 and 50 come due, and so on.
		assert.Equal(t, []loggedRun{{10, 10}, {20, 35}, {40, 60}, {70, 85}, {90, 110}}, d.runs)
	})
}

// While RunAll catches up after a stall, runs that come due meanwhile take place too.
func TestRunAllCatchesUpWhileRunsTakeTime(t *testing.T) {
	t.Parallel()
	tw := newManualWheel(t)
	d := runLog{start: midnight}
	tw.ScheduleRun(WithMisfire(timingwheel.Every(10*ms), RunAll), d.note)
	for at := 35 * ms; at < 90*ms; at += 4 * ms { // the plan is behind and makes a run every 4 ms
		tw.Advance(midnight.Add(at))
	}
	assert.Equal(t, []loggedRun{{10, 35}, {20, 39}, {30, 43}, {40, 47}, {50, 51}, {60, 63}, {70, 71}, {80, 83}}, d.runs)
}

// With Allow, which arms the next run before a run begins, the misfire policy still applies.
func TestAllowKeepsMisfirePolicyAfterStall(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		policy func(timingwheel.Scheduler) timingwheel.Scheduler
		want   []loggedRun
	}{
		"run once": {runOnce, []loggedRun{{10, 35}, {40, 40}}},
		"run all":  {runAll, []loggedRun{{10, 35}, {20, 35}, {30, 35}, {40, 40}}},
		"skip":     {runOnceMaxLate(ms), []loggedRun{{40, 40}}},
	} {
		tw := newManualWheel(t)
		d := runLog{start: midnight}
		tw.ScheduleRun(WithOverlap(row.policy(timingwheel.Every(10*ms)), Allow), d.note)
		advance(tw, 35*ms)
		advance(tw, 40*ms)
		assert.Equal(t, row.want, d.runs, name)
	}
}

// A time that has passed moves the next run to the present, so that the run is not too late.
func TestRescheduleOfAPlanWithMaxLateToThePast(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	for name, past := range map[string]time.Time{"zero": {}, "two hours ago": start.Add(time.Hour)} {
		tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
		require.NoError(t, err)
		var planned []time.Duration
		plan := tw.ScheduleRun(MaxLate(timingwheel.Every(day), time.Minute), func(r *timingwheel.Run) {
			planned = append(planned, r.Planned.Sub(start))
		})
		tw.Advance(start.Add(3 * time.Hour))
		require.True(t, plan.RescheduleAt(past), name)
		tw.Advance(start.Add(3*time.Hour + ms))
		require.Equal(t, []time.Duration{3 * time.Hour}, planned, name)
		at, _ := plan.Deadline()
		require.Equal(t, 27*time.Hour, at.Sub(start), name)
		tw.Stop()
	}
}
