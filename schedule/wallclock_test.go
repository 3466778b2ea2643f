package schedule

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// wallTests are tests with a wall clock that they step. The clock belongs to the process, so each
// test runs in a process of its own, where the clocks are compared every 20 ms.
var wallTests = map[string]func(t *testing.T, w *steppedClock){
	"a near run after ten years":          wallNearRunAfterTenYears,
	"a far run after ten years":           wallFarRunAfterTenYears,
	"a correction during a run":           wallCorrectionDuringRun,
	"a correction of a stopped wheel":     wallStoppedWheel,
	"small steps back":                    wallSmallStepsBack,
	"a step forward":                      wallStepForward,
	"a step forward over the run":         wallStepForwardOverTheRun,
	"a step forward and back":             wallStepForwardAndBack,
	"other plans":                         wallOtherPlans,
	"a run that was rescheduled":          wallRescheduled,
	"a flush":                             wallFlush,
	"a flush before a comparison":         wallFlushBeforeComparison,
	"a flush after a comparison is due":   wallFlushAfterComparison,
	"a comparison every minute":           wallComparisons,
	"fake time":                           wallFakeTime,
	"a Scheduler that panics":             wallPanic,
	"a Scheduler that plans no other run": wallEnd,
	"random steps":                        wallRandomSteps,
}

const wallTestEnv = "SCHEDULE_TEST_CHILD"

func TestPlansFollowTheWallClock(t *testing.T) {
	if name := os.Getenv(wallTestEnv); name != "" {
		w := new(steppedClock)
		clock.Now, clock.Compare = func() time.Time { return w.now(t) }, 20*ms
		wallTests[name](t, w)
		return
	}
	t.Parallel()
	for name := range wallTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(os.Args[0], "-test.run=^TestPlansFollowTheWallClock$", "-test.count=1")
			command.Env = append(os.Environ(), wallTestEnv+"="+name)
			output, err := command.CombinedOutput()
			require.NoError(t, err, "%s", output)
		})
	}
}

const tenYears = 87_600 * time.Hour

// steppedClock is a wall clock that is ahead of the real one.
type steppedClock struct {
	shift    atomic.Int64 // how far
	readings atomic.Int64
}

// now returns time.Now with the wall clock stepped and the same monotonic reading. In a time.Time
// with a monotonic reading, bits 30 and up of the wall field count seconds.
func (w *steppedClock) now(t *testing.T) time.Time {
	w.readings.Add(1)
	now := time.Now()
	moved, d := now, time.Duration(w.shift.Load())
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << 30
	require.Zero(t, moved.Sub(now), "the monotonic reading has changed")
	require.Equal(t, d, moved.Round(0).Sub(now.Round(0)), "the wall clock has not moved")
	return moved
}

// set rounds down to whole seconds.
func (w *steppedClock) set(ahead time.Duration) { w.shift.Store(int64(ahead.Truncate(time.Second))) }

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, ms, what)
}

func startWheel(t *testing.T, opts timingwheel.Options) *timingwheel.TimingWheel {
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

// boundaries is [Aligned] in UTC. It records the times that Next is called with.
type boundaries struct {
	d     time.Duration
	mu    sync.Mutex
	asked []time.Time
}

func (b *boundaries) Next(t time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, t)
	return Aligned(b.d, time.UTC).Next(t)
}

func (b *boundaries) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

// planLog is a plan with its runs.
type planLog struct {
	*boundaries
	timingwheel.Timer
	mu   sync.Mutex
	runs []timingwheel.Run
}

func (l *planLog) record(r *timingwheel.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, *r)
}

func (l *planLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

func (l *planLog) last() timingwheel.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[len(l.runs)-1]
}

func startPlan(t *testing.T, tw *timingwheel.TimingWheel, d time.Duration) *planLog {
	l := &planLog{boundaries: &boundaries{d: d}}
	l.Timer = tw.ScheduleRun(l.boundaries, l.record)
	require.NotZero(t, l.Timer)
	return l
}

// distance returns the time until the next run by the monotonic clock.
func (l *planLog) distance(t *testing.T) time.Duration {
	at, ok := l.Deadline()
	require.True(t, ok)
	return time.Until(at)
}

// next returns the next boundary by the wall clock.
func (l *planLog) next() time.Time { return Aligned(l.d, time.UTC).Next(clock.Now()) }

// untilNext is the distance that the wall clock shows.
func (l *planLog) untilNext() time.Duration { return l.next().Sub(clock.Now()) }

func (l *planLog) requireDistance(t *testing.T, want time.Duration) {
	t.Helper()
	require.InDelta(t, float64(want), float64(l.distance(t)), float64(time.Minute))
}

func (l *planLog) awaitDistance(t *testing.T, what string, atMost time.Duration) {
	t.Helper()
	await(t, what, func() bool { return l.distance(t) <= atMost })
}

// pause waits for several comparisons of the clocks.
func pause() { time.Sleep(10 * clock.Compare) }

// The clock is ten years ahead when the plan starts and is corrected while a run is near. The run
// takes place, and the next run is planned by the corrected clock.
func wallNearRunAfterTenYears(t *testing.T, w *steppedClock) {
	for _, shards := range []int{1, 4} {
		for _, timed := range []bool{false, true} {
			tw := startWheel(t, timingwheel.Options{Shards: shards})
			w.set(tenYears)
			b := &boundaries{d: 10 * ms}
			var runs atomic.Int64
			run := func() { runs.Add(1) }
			plan := timingwheel.Timer{}
			if timed {
				plan = tw.ScheduleRun(b, func(*timingwheel.Run) { run() })
			} else {
				plan = tw.ScheduleFunc(b, run)
			}
			await(t, "runs", func() bool { return runs.Load() > 5 })
			w.set(0)
			before := runs.Load()
			await(t, "runs after the correction", func() bool { return runs.Load() > before+10 })
			require.True(t, plan.Stop())
			b.mu.Lock()
			require.Less(t, time.Since(b.asked[len(b.asked)-1]).Abs(), time.Hour)
			b.mu.Unlock()
		}
	}
}

// The clock is corrected while a run waits for longer than until the next comparison.
func wallFarRunAfterTenYears(t *testing.T, w *steppedClock) {
	for _, d := range []time.Duration{time.Hour, day} {
		tw := startWheel(t, timingwheel.Options{})
		w.set(tenYears)
		p := startPlan(t, tw, d)
		pause()
		require.Equal(t, 1, p.calls())
		w.set(0)
		await(t, "Next is called once more", func() bool { return p.calls() == 2 })
		require.Less(t, time.Since(p.asked[1]).Abs(), time.Hour, "with the current time")
		await(t, "the run is armed", func() bool { _, ok := p.Deadline(); return ok })
		p.requireDistance(t, p.untilNext())
		pause()
		require.Zero(t, p.count())
		require.Equal(t, 2, p.calls())
		await(t, "the timer is pending", func() bool { return tw.Len() == 1 })
		require.True(t, p.Stop())
		require.Zero(t, tw.Len())
	}
}

func wallCorrectionDuringRun(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	w.set(tenYears)
	b := &boundaries{d: 2 * time.Second} // longer than between two comparisons
	running, end := make(chan *timingwheel.Run), make(chan struct{})
	plan := tw.ScheduleRun(b, func(r *timingwheel.Run) {
		running <- r
		<-end
	})
	r := <-running
	require.Greater(t, time.Until(r.Planned.Round(0)), tenYears-time.Hour)
	w.set(0)
	pause()
	_, pending := plan.Deadline()
	require.False(t, pending)
	end <- struct{}{}
	r = <-running
	require.Less(t, time.Until(r.Planned).Abs(), time.Hour)
	require.Equal(t, 2, r.N)
	require.True(t, plan.Stop())
	end <- struct{}{}
}

func wallStoppedWheel(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	w.set(tenYears)
	p := startPlan(t, tw, time.Hour)
	tw.Stop()
	w.set(0)
	pause()
	require.Equal(t, 1, p.calls())
	require.False(t, p.Stop())
	require.Zero(t, tw.ScheduleFunc(&boundaries{d: time.Hour}, func() {}))
	w.requireNoComparison(t)
}

// If the clock is set back by at most three hours, or by at most ten periods, the run that waits
// keeps its distance, and the next run is planned after it.
func wallSmallStepsBack(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	ahead := time.Duration((70-time.Now().Second())%60) * time.Second // no minute ends during the test
	for _, row := range []struct{ d, back time.Duration }{
		{time.Minute, 3*time.Hour - time.Minute}, {day, 10*day - time.Minute}, {day, time.Second},
	} {
		w.set(ahead + row.back)
		p := startPlan(t, tw, row.d)
		// The distance of the first run is less than the period.
		await(t, "a flush that meets no comparison", func() bool { return tw.Flush() == 1 })
		await(t, "a run", func() bool { return p.count() > 0 }) // two if a flush has met a comparison
		await(t, "the next run is armed", func() bool { return tw.Len() == 1 && tw.Stats().Running == 0 })
		at, _ := p.Deadline()
		w.set(ahead)
		pause()
		now, ok := p.Deadline()
		require.True(t, ok)
		require.Equal(t, at, now, "%+v", row)
		require.Equal(t, p.count()+1, p.calls())
		require.True(t, p.Stop())
	}
	w.set(ahead + 3*time.Hour - time.Minute)
	p := startPlan(t, tw, time.Second)
	await(t, "a run", func() bool { return p.count() == 1 })
	w.set(ahead)
	await(t, "the run that waited", func() bool { return p.count() == 2 })
	p.requireDistance(t, 3*time.Hour-time.Minute)
	require.Equal(t, p.runs[0].Planned.Add(time.Second), p.runs[1].Planned)
}

// A step forward, or a suspension, which stops the monotonic clock only, moves the run, so that it
// takes place when the wall clock shows its time.
func wallStepForward(t *testing.T, w *steppedClock) {
	for _, shards := range []int{1, 4} {
		tw := startWheel(t, timingwheel.Options{Shards: shards})
		w.set(0)
		p := startPlan(t, tw, day)
		planned := p.next()
		w.set(p.untilNext() - 3*time.Second) // whole seconds, so up to a second less
		p.awaitDistance(t, "the run is moved", 5*time.Second)
		await(t, "the timer is pending", func() bool { return tw.Len() == 1 }) // not during a look at the clock
		await(t, "the run", func() bool { return p.count() == 1 })
		r := p.last()
		require.Equal(t, planned, r.Planned)
		require.False(t, r.Started.Round(0).Before(planned), "early by the wall clock: %v", r.Started)
		require.Less(t, r.Started.Round(0).Sub(planned), time.Minute)
		await(t, "the next run is armed", func() bool { _, ok := p.Deadline(); return ok })
		p.requireDistance(t, day)
		require.Equal(t, 2, p.calls())
	}
}

// The clock is set to a time after the run.
func wallStepForwardOverTheRun(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	p := startPlan(t, tw, time.Hour)
	planned := p.next()
	w.set(tenYears)
	await(t, "the run", func() bool { return p.count() == 1 })
	require.Equal(t, planned, p.last().Planned)
	await(t, "the next run is armed", func() bool { _, ok := p.Deadline(); return ok })
	p.requireDistance(t, p.untilNext())
	pause()
	require.Equal(t, 1, p.count(), "missed runs are not replayed")
	w.set(0)
	await(t, "Next is called with the current time", func() bool { return p.calls() == 4 })
	p.requireDistance(t, p.untilNext())
}

// A step forward that is taken back leaves the run where it was.
func wallStepForwardAndBack(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	p := startPlan(t, tw, 30*day)
	distance := p.distance(t)
	forward := (distance / 2).Truncate(time.Second)
	w.set(forward)
	p.awaitDistance(t, "the run is moved", distance/2+time.Minute)
	p.requireDistance(t, distance-forward)
	w.set(0)
	await(t, "the run is moved back", func() bool { return p.distance(t) > distance-time.Minute })
	w.set(-time.Hour)
	pause()
	p.requireDistance(t, distance)
	require.Equal(t, 1, p.calls())
	require.Zero(t, p.count())
}

// Plans whose times have a monotonic reading, and timers, do not follow the wall clock.
func wallOtherPlans(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	timers := []timingwheel.Timer{
		tw.ScheduleFunc(timingwheel.Every(time.Hour), func() { t.Error("early") }),
		tw.AtFunc(clock.Now().Round(0).Add(time.Hour), func() { t.Error("early") }),
		tw.AfterFunc(time.Hour, func() { t.Error("early") }),
	}
	for _, shift := range []time.Duration{tenYears, -tenYears, 0} {
		w.set(shift)
		pause()
		for _, timer := range timers {
			at, ok := timer.Deadline()
			require.True(t, ok)
			require.InDelta(t, float64(time.Hour), float64(time.Until(at)), float64(time.Minute))
		}
	}
	w.requireNoComparison(t)
}

// Reschedule sets a time of the monotonic clock. After the run the plan follows the wall clock
// again.
func wallRescheduled(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	for _, d := range []time.Duration{5 * time.Hour, 20 * time.Hour} {
		w.set(0)
		p := startPlan(t, tw, day)
		require.True(t, p.Reschedule(d))
		for _, shift := range []time.Duration{tenYears, -tenYears} {
			w.set(shift)
			pause()
			p.requireDistance(t, d)
		}
		require.Equal(t, 1, p.calls())
		w.set(0)
		require.True(t, p.Reschedule(time.Millisecond))
		await(t, "the run", func() bool { return p.count() == 1 })
		require.Less(t, p.last().Started.Sub(p.last().Planned), time.Minute)
		await(t, "the next run is armed", func() bool { _, ok := p.Deadline(); return ok })
		p.requireDistance(t, p.untilNext())
		w.set(p.untilNext() - time.Hour)
		p.awaitDistance(t, "the run is moved", time.Hour+time.Minute)
		require.True(t, p.Stop())
	}
	// The other order: first a step, then Reschedule.
	w.set(0)
	p := startPlan(t, tw, day)
	w.set(p.untilNext() - 2*time.Hour)
	p.awaitDistance(t, "the run is moved", 2*time.Hour+time.Minute)
	require.True(t, p.Reschedule(time.Minute))
	w.set(0)
	pause()
	require.LessOrEqual(t, p.distance(t), time.Minute)
	require.Zero(t, p.count())
}

func wallFlush(t *testing.T, w *steppedClock) {
	clock.Compare = time.Second // meets few flushes
	tw := startWheel(t, timingwheel.Options{})
	p := startPlan(t, tw, day)
	for range 50 {
		before := p.count()
		await(t, "a flush that meets no comparison", func() bool { return tw.Flush() == 1 })
		await(t, "the run", func() bool { return p.count() > before }) // two if a flush has met a comparison
		await(t, "the next run is armed", func() bool { return tw.Len() == 1 && tw.Stats().Running == 0 })
	}
	runs := p.count()
	require.Equal(t, p.runs[0].Planned.Add(time.Duration(runs-1)*p.d), p.last().Planned)
	w.set(time.Duration(runs)*p.d + p.untilNext() - time.Hour)
	p.awaitDistance(t, "the run is moved", time.Hour+time.Minute)
	require.Equal(t, runs+1, p.calls())
}

// waitingCalls is an executor whose calls wait until run.
type waitingCalls struct {
	mu    sync.Mutex
	calls []func()
}

func (w *waitingCalls) Go(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, f)
}

func (w *waitingCalls) run() {
	w.mu.Lock()
	calls := w.calls
	w.calls = nil
	w.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// The call to a flushed plan's function waits until the clocks would have been compared. The run
// takes place.
func wallFlushBeforeComparison(t *testing.T, _ *steppedClock) {
	calls := new(waitingCalls)
	tw := startWheel(t, timingwheel.Options{Executor: calls})
	p := startPlan(t, tw, day)
	require.Equal(t, 1, tw.Flush())
	pause()
	await(t, "the run", func() bool { calls.run(); return p.count() == 1 })
	p.requireDistance(t, p.untilNext()+day)
}

// The clocks are to be compared, but the call for it waits. A Flush makes the run take place.
func wallFlushAfterComparison(t *testing.T, _ *steppedClock) {
	calls := new(waitingCalls)
	tw := startWheel(t, timingwheel.Options{Executor: calls})
	p := startPlan(t, tw, day)
	pause()
	require.Equal(t, 1, tw.Flush())
	await(t, "the run", func() bool { calls.run(); return p.count() == 1 })
	p.requireDistance(t, p.untilNext()+day)
}

// The clocks are compared once per period while a run is far ahead, and not otherwise.
func wallComparisons(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	plan := tw.ScheduleFunc(&boundaries{d: 1e6 * time.Hour}, func() {})
	start, readings, wakeups := time.Now(), w.readings.Load(), tw.Stats().Wakeups
	pause()
	require.Greater(t, w.readings.Load(), readings)
	checks := int64(time.Since(start)/clock.Compare) + 1
	require.LessOrEqual(t, w.readings.Load()-readings, 3*checks)
	require.LessOrEqual(t, tw.Stats().Wakeups-wakeups, uint64(3*checks), "an alarm may ring twice on a busy machine")
	await(t, "a look at the clock counts as no run", func() bool {
		st := tw.Stats()
		return st.Fired == 0 && st.Armed == 1
	})
	require.True(t, plan.Stop())
	w.requireNoComparison(t)
}

// requireNoComparison checks that no comparison follows the next one.
func (w *steppedClock) requireNoComparison(t *testing.T) {
	t.Helper()
	await(t, "comparisons end", func() bool {
		readings := w.readings.Load()
		pause()
		return w.readings.Load() == readings
	})
}

// In Manual mode and in a bubble there is only one clock, so nothing is compared. A plan of dates
// then costs no wake-up.
func wallFakeTime(t *testing.T, _ *steppedClock) {
	readings := 0
	clock.Now = func() time.Time {
		readings++
		return time.Now()
	}
	manual := startWheel(t, timingwheel.Options{Manual: true})
	require.NotZero(t, manual.ScheduleFunc(&boundaries{d: time.Hour}, func() {}))
	pause()
	require.Equal(t, 1, readings, "by New")
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		runs := 0
		tw.ScheduleFunc(&boundaries{d: day}, func() { runs++ })
		time.Sleep(10 * day)
		synctest.Wait()
		require.Equal(t, 10, runs)
		require.Less(t, readings, 100)
	})
}

// schedulerFunc is a Scheduler.
type schedulerFunc func(time.Time) time.Time

func (f schedulerFunc) Next(t time.Time) time.Time { return f(t) }

// If the Scheduler panics when it is asked once more, the plan ends as after every other panic.
func wallPanic(t *testing.T, w *steppedClock) {
	panics := make(chan any, 1)
	tw := startWheel(t, timingwheel.Options{OnPanic: func(value any, _ []byte) { panics <- value }})
	w.set(tenYears)
	calls := 0
	plan := tw.ScheduleFunc(schedulerFunc(func(now time.Time) time.Time {
		if calls++; calls > 1 {
			panic("no calendar")
		}
		return now.Round(0).Add(time.Hour)
	}), func() { t.Error("run") })
	w.set(0)
	require.Equal(t, "no calendar", <-panics)
	await(t, "the plan ends", func() bool { return tw.Len() == 0 })
	require.False(t, plan.Stop())
}

func wallEnd(t *testing.T, w *steppedClock) {
	tw := startWheel(t, timingwheel.Options{})
	w.set(tenYears)
	var calls atomic.Int64
	plan := tw.ScheduleFunc(schedulerFunc(func(now time.Time) time.Time {
		if calls.Add(1) > 1 {
			return time.Time{}
		}
		return now.Round(0).Add(time.Hour)
	}), func() { t.Error("run") })
	w.set(0)
	await(t, "Next is called once more", func() bool { return calls.Load() == 2 })
	await(t, "the plan ends", func() bool { return !plan.Stop() && tw.Len() == 0 })
}

// The wall clock is stepped while plans run, are rescheduled and are stopped. Each plan keeps one
// pending run, and no run comes after Stop returned true.
func wallRandomSteps(t *testing.T, w *steppedClock) {
	clock.Compare = ms
	tw := startWheel(t, timingwheel.Options{Shards: 2})
	var wg sync.WaitGroup
	end := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(rand.N(3 * ms)):
				steps := []time.Duration{0, time.Second, time.Hour, 5 * time.Hour, day, tenYears}
				w.set(steps[rand.IntN(len(steps))])
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				periods := []time.Duration{ms, 10 * ms, time.Second, time.Hour, day}
				var stopped atomic.Bool
				var running, late atomic.Int32
				plan := tw.ScheduleFunc(&boundaries{d: periods[rand.IntN(len(periods))]}, func() {
					if running.Add(1) != 1 {
						t.Error("runs overlap")
					}
					if rand.IntN(4) == 0 {
						time.Sleep(rand.N(ms))
					}
					running.Add(-1)
					if stopped.Load() && late.Add(1) > 1 { // one may have been under way
						t.Error("runs after Stop")
					}
				})
				for range rand.IntN(5) {
					time.Sleep(rand.N(2 * ms))
					if rand.IntN(3) == 0 {
						plan.Reschedule(rand.N(time.Second))
					}
				}
				if !plan.Stop() {
					t.Error("a plan has ended")
				}
				stopped.Store(true)
			}
		})
	}
	time.Sleep(2 * time.Second)
	close(end)
	wg.Wait()
	require.Zero(t, tw.Len())
	w.requireNoComparison(t)
}
