package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

// A plan of one run each 10 ms that is held up from 12 to 47: the run of 20 starts at 47, those of 30 and 40 were missed.
func TestMisfirePolicies(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		policy Misfire
		want   []begun
	}{
		"run once":               {RunOnce, []begun{{10, 10}, {20, 47}, {50, 50}, {60, 60}}},
		"zero value":             {Misfire{}, []begun{{10, 10}, {20, 47}, {50, 50}, {60, 60}}},
		"run all":                {RunAll, []begun{{10, 10}, {20, 47}, {30, 47}, {40, 47}, {50, 50}, {60, 60}}},
		"skip":                   {Skip(2 * ms), []begun{{10, 10}, {50, 50}, {60, 60}}},
		"skip at once":           {Skip(0), []begun{{10, 10}, {50, 50}, {60, 60}}},
		"skip, one in time":      {Skip(10 * ms), []begun{{10, 10}, {40, 47}, {50, 50}, {60, 60}}},
		"skip, several in time":  {Skip(20 * ms), []begun{{10, 10}, {30, 47}, {50, 50}, {60, 60}}},
		"skip, all in time":      {Skip(time.Hour), []begun{{10, 10}, {20, 47}, {50, 50}, {60, 60}}},
		"catch up":               {CatchUp(20 * ms), []begun{{10, 10}, {30, 47}, {40, 47}, {50, 50}, {60, 60}}},
		"catch up, none in time": {CatchUp(2 * ms), []begun{{10, 10}, {50, 50}, {60, 60}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := manual(t)
			d := diary{start: midnight}
			tw.ScheduleRun(WithMisfire(FixedRate(10*ms), row.policy), d.note)
			for _, at := range []time.Duration{10, 12, 47, 50, 60} {
				advance(tw, at*ms)
			}
			assert.Equal(t, row.want, d.runs)
		})
	}
}

// In a step of a week each Advance of RunAll runs one run, so that none goes on for long; and what is skipped costs
// nothing, however much it is.
func TestMisfireOfAWeek(t *testing.T) {
	t.Parallel()
	week := 7 * day
	for name, row := range map[string]struct {
		policy Misfire
		want   []time.Duration
	}{
		"run once": {RunOnce, []time.Duration{time.Second}},
		"skip":     {Skip(0), []time.Duration{week}},
		"run all":  {RunAll, []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second}},
		"catch up": {CatchUp(2 * time.Second), []time.Duration{week - 2*time.Second, week - time.Second, week}},
	} {
		tw := manual(t)
		count := &counting{Scheduler: FixedRate(time.Second)}
		var planned []time.Duration
		tw.ScheduleRun(WithMisfire(count, row.policy), func(r timingwheel.Run) {
			planned = append(planned, r.Planned.Sub(midnight))
		})
		for range 5 {
			ran := len(planned)
			tw.Advance(midnight.Add(week))
			require.LessOrEqual(t, len(planned)-ran, 1, "one run in one Advance")
		}
		require.GreaterOrEqual(t, len(planned), len(row.want), name)
		assert.Equal(t, row.want, planned[:len(row.want)], name)
		assert.LessOrEqual(t, count.calls, 15, "%s: questions", name)
	}
}

// counting counts how often it is asked.
type counting struct {
	timingwheel.Scheduler
	calls int
}

func (c *counting) Next(t time.Time) time.Time {
	c.calls++
	return c.Scheduler.Next(t)
}

func (c *counting) Skip(missed, now time.Time) time.Time {
	c.calls++
	return c.Scheduler.(timingwheel.Skipper).Skip(missed, now)
}

// A run each 10 ms; the first takes 35 ms, the others 1 ms.
func TestOverlapPolicies(t *testing.T) {
	for name, row := range map[string]struct {
		plan timingwheel.Scheduler
		want []begun
	}{
		"default":         {FixedRate(10 * ms), []begun{{10, 10}, {50, 50}, {60, 60}}},
		"skip if running": {WithOverlap(FixedRate(10*ms), SkipIfRunning), []begun{{10, 10}, {50, 50}, {60, 60}}},
		"queue one":       {WithOverlap(FixedRate(10*ms), QueueOne), []begun{{10, 10}, {20, 45}, {50, 50}, {60, 60}}},
		"allow": {WithOverlap(FixedRate(10*ms), Allow), []begun{
			{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60},
		}},
		// The policies for misfires do not touch what came due during a run.
		"run all":               {WithMisfire(FixedRate(10*ms), RunAll), []begun{{10, 10}, {50, 50}, {60, 60}}},
		"skip":                  {WithMisfire(FixedRate(10*ms), Skip(5*ms)), []begun{{10, 10}, {50, 50}, {60, 60}}},
		"queue one, run all":    {WithMisfire(WithOverlap(FixedRate(10*ms), QueueOne), RunAll), []begun{{10, 10}, {20, 45}, {50, 50}, {60, 60}}},
		"queue one, skip":       {WithOverlap(WithMisfire(FixedRate(10*ms), Skip(5*ms)), QueueOne), []begun{{10, 10}, {20, 45}, {50, 50}, {60, 60}}},
		"queue one of a limit":  {Limit(WithOverlap(FixedRate(10*ms), QueueOne), 2), []begun{{10, 10}, {20, 45}}},
		"allow with an end":     {Until(WithOverlap(FixedRate(10*ms), Allow), time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)), []begun{{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60}}},
		"allow of a limit":      {WithOverlap(Limit(FixedRate(10*ms), 3), Allow), []begun{{10, 10}, {20, 20}, {30, 30}}},
		"allow of a delay":      {WithOverlap(FixedDelay(10*ms), Allow), []begun{{10, 10}, {55, 55}}},
		"queue one of a delay":  {WithOverlap(FixedDelay(10*ms), QueueOne), []begun{{10, 10}, {55, 55}}},
		"the outer policy wins": {WithOverlap(WithOverlap(FixedRate(10*ms), Allow), SkipIfRunning), []begun{{10, 10}, {50, 50}, {60, 60}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
				d := diary{start: time.Now()}
				tw.ScheduleRun(row.plan, func(r timingwheel.Run) {
					d.note(r)
					if r.N == 1 {
						time.Sleep(35 * ms)
					} else {
						time.Sleep(ms)
					}
				})
				pass(62 * ms)
				assert.Equal(t, row.want, d.runs)
			})
		})
	}
}

// One run in a queue, however many came due.
func TestQueueOneWhereEachRunIsLong(t *testing.T) {
	bubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		d := diary{start: time.Now()}
		tw.ScheduleRun(WithOverlap(FixedRate(10*ms), QueueOne), func(r timingwheel.Run) {
			d.note(r)
			time.Sleep(25 * ms)
		})
		pass(120 * ms)
		// 10-35, then at once for 20 and 30; 40 and 50 come due in 35-60; and so on.
		assert.Equal(t, []begun{{10, 10}, {20, 35}, {40, 60}, {70, 85}, {90, 110}}, d.runs)
	})
}

// While RunAll makes up for a stall, runs that come due during the others are made up for as well.
func TestRunAllCatchesUpWhileRunsTakeTime(t *testing.T) {
	t.Parallel()
	tw := manual(t)
	d := diary{start: midnight}
	tw.ScheduleRun(WithMisfire(FixedRate(10*ms), RunAll), d.note)
	for at := 35 * ms; at < 90*ms; at += 4 * ms { // behind, and a run each 4 ms
		tw.Advance(midnight.Add(at))
	}
	assert.Equal(t, []begun{{10, 35}, {20, 39}, {30, 43}, {40, 47}, {50, 51}, {60, 63}, {70, 71}, {80, 83}}, d.runs)
}

// A held-up plan whose runs are armed before they begin.
func TestAllowAfterAStall(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		policy Misfire
		want   []begun
	}{
		"run once": {RunOnce, []begun{{10, 35}, {40, 40}}},
		"run all":  {RunAll, []begun{{10, 35}, {20, 35}, {30, 35}, {40, 40}}},
		"skip":     {Skip(ms), []begun{{40, 40}}},
	} {
		tw := manual(t)
		d := diary{start: midnight}
		tw.ScheduleRun(WithOverlap(WithMisfire(FixedRate(10*ms), row.policy), Allow), d.note)
		advance(tw, 35*ms)
		advance(tw, 40*ms)
		assert.Equal(t, row.want, d.runs, name)
	}
}

func TestPoliciesLeaveAForeignPlannerAlone(t *testing.T) {
	bubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		d := diary{start: time.Now()}
		s := WithMisfire(WithOverlap(Limit(asap{}, 3), Allow), Skip(0))
		tw.ScheduleRun(s, func(r timingwheel.Run) {
			d.note(r)
			time.Sleep(5 * ms)
		})
		pass(30 * ms)
		assert.Equal(t, []int{3, 8, 13}, d.started(), "each at once after the other")
	})
}

// asap is a Planner whose runs follow each other without a pause, the first after 3 ms.
type asap struct{}

func (asap) Next(time.Time) time.Time { panic("Next of a Planner") }

func (a asap) Plan() timingwheel.Follower { return a }

func (asap) Follow(r timingwheel.Run) timingwheel.Step {
	if r.N == 0 {
		return timingwheel.Step{Next: r.Started.Add(3 * ms)}
	}
	return timingwheel.Step{Next: r.Started}
}

// A foreign Follower leaves out runs: they do not count for a limit around it, the one at the limit included.
func TestLimitOfAPlannerThatLeavesOutRuns(t *testing.T) {
	t.Parallel()
	tw := manual(t)
	d := diary{start: midnight}
	plan := tw.ScheduleRun(Limit(everyOther{}, 2), d.note)
	for at := 10 * ms; at <= 100*ms; at += 10 * ms {
		advance(tw, at)
	}
	assert.Equal(t, []int{20, 40}, d.started())
	assert.False(t, plan.Stop())
}

// everyOther is a Planner with a run each 10 ms that leaves out every other one, the first to begin with.
type everyOther struct {
	timingwheel.Scheduler
	ended *[]int // of which runs it was told that they have ended; nil: nobody asks
}

func (e everyOther) Plan() timingwheel.Follower { return e }

func (e everyOther) Follow(r timingwheel.Run) timingwheel.Step {
	if e.ended != nil && r.N > 0 && !r.Finished.IsZero() {
		*e.ended = append(*e.ended, int(r.Planned.Sub(midnight)/ms))
	}
	return timingwheel.Step{
		Next: r.Planned.Add(10 * ms),
		Skip: r.N > 0 && r.Finished.IsZero() && r.Planned.Sub(midnight)%(20*ms) != 0,
	}
}
