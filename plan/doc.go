// Package plan makes Schedulers that compose: rates, delays, wall-clock boundaries and backoff, with jitter, an end,
// and policies for runs that were missed.
//
//	s := plan.Aligned(15*time.Minute, time.Local) // :00, :15, :30, :45
//	s = plan.Jitter(s, 10*time.Second)            // not all programs at once
//	s = plan.Limit(s, 100)
//	tw.ScheduleFunc(s, f)
//
// Every function takes or returns a [timingwheel.Scheduler]. So a Schedule of github.com/robfig/cron, or a Scheduler of
// your own, can stand wherever one of this package can.
//
// # What makes the times
//
// [FixedRate], [FixedDelay], [Aligned] and [Backoff] say when runs are to start. [Jitter], [Limit] and [Until] change
// the times of the Scheduler that they wrap, from the inside to the outside: Until(Jitter(s, max), t) plans no run after
// t, Jitter(Until(s, t), max) none after t+max.
//
// # Policies
//
// [WithMisfire] and [WithOverlap] say what becomes of runs whose time has passed. They are the whole plan's, so it does
// not matter where in a chain of wrappers they stand; of two of a kind the outer one counts. A run that is missed has
// either been held up or come due while the run before it was under way:
//
//   - It has misfired if its time had come when that run started: the process was stopped, the machine was busy, or
//     Advance took a large step. [RunOnce], the default, lets the late run stand for all that have misfired.
//   - It overlaps if its time came between that run's start and its end. [SkipIfRunning], the default, leaves it out.
//
// # Values
//
// What these functions return may serve any number of plans at once: each ScheduleFunc begins anew, with a count, a
// backoff and a jitter of its own. Only the method Next, for those who call it themselves, counts its calls in the
// value: it is the one plan of whoever calls it. It may be called from any goroutine.
package plan
