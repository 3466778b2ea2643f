package timingwheel

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Every kind of callback is named after the user's function.
func TestCallbackNames(t *testing.T) {
	t.Parallel()
	const here = "github.com/timingwheel-go/timingwheel."
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		tw := startWheel(t, Options{OnSlow: log.add, SlowAfter: time.Millisecond})
		s := &napper{time.Second}
		arm := map[string]func(){
			here + "napOneSecond":       func() { tw.AfterFunc(0, napOneSecond) },
			here + "(*napper).sleep":    func() { tw.AfterFunc(0, s.sleep) },
			here + "TestCallbackNames.": func() { tw.AfterFunc(0, func() { time.Sleep(s.d) }) }, // the rest of the name is the compiler's choice
		}
		for name, f := range arm {
			f()
			time.Sleep(time.Minute)
			synctest.Wait()
			calls := log.take()
			require.Len(t, calls, 2)
			require.True(t, strings.HasPrefix(calls[1].Func, name), "%s is not %s", calls[1].Func, name)
		}
		checkPlan := func(name string, plan Timer) {
			time.Sleep(150 * time.Minute)
			synctest.Wait()
			require.True(t, plan.Stop())
			calls := log.take()
			require.Len(t, calls, 4, "two runs")
			for _, c := range calls {
				require.Equal(t, name, c.Func, "a plan is its function")
			}
		}
		for name, f := range map[string]func(){here + "napOneSecond": napOneSecond, here + "(*napper).sleep": s.sleep} {
			checkPlan(name, tw.ScheduleFunc(Every(time.Hour), f))
			checkPlan(name, tw.ScheduleFunc(hourly{Every(time.Hour)}, f))
		}
		checkPlan(here+"napInRun", tw.ScheduleRun(Every(time.Hour), napInRun))
		checkPlan(here+"napInRun", tw.ScheduleRun(hourly{Every(time.Hour)}, napInRun))
	})
}

func napInRun(Run) { napOneSecond() }

// hourly is a Planner.
type hourly struct{ Scheduler }

func (h hourly) Plan() Follower { return &plain{scheduler: h.Scheduler} }

// The compiler makes function values of methods as callee expects it. Where this fails callbacks
// still run, and plans are named after their method.
func TestMethodsAreKnown(t *testing.T) {
	t.Parallel()
	require.True(t, methodsAreKnown())
}
