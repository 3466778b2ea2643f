// Package timingwheel provides timers for programs that hold very many of them: connection
// heartbeats, request timeouts, retries, expiry of cache entries. It is a hierarchical timing
// wheel. Arming, stopping and postponing a timer takes constant time, however many timers are
// pending. An idle wheel has no goroutine.
//
//	tw, err := timingwheel.New(timingwheel.Options{}) // ticks of 1 ms
//	if err != nil {
//		return err
//	}
//	defer tw.Stop()
//
//	timeout := tw.AfterFunc(30*time.Second, func() { conn.Close() })
//	…
//	timeout.Stop() // true: the function has not started and never will
//
// # Choosing a call
//
//   - [TimingWheel.AfterFunc] and [TimingWheel.AtFunc] run a function once. The handle is a
//     [Timer], a small value.
//   - A [FuncTimer] runs a function and can be armed again, like the timer of [time.AfterFunc]. It
//     may be a field of a connection. [FuncTimer.Touch] is the operation for heartbeats.
//   - [TimingWheel.ScheduleFunc] runs a function again and again, at the times of a [Scheduler]
//     such as [Every] or a schedule of github.com/robfig/cron. Package schedule has more.
//   - [Timeouts] holds values instead of functions and passes those that have expired to one
//     function, in batches. Package keyed has timeouts by key.
//   - [TimingWheel.After], [TimingWheel.NewChannelTimer] and [TimingWheel.NewTicker] send the time
//     on channels, as in package time. [TimingWheel.Ticks] is an iterator over ticks, and
//     [TimingWheel.Sleep] takes a context.
//   - [TimingWheel.WithTimeout] and [TimingWheel.WithDeadline] make contexts, as in package
//     context.
//   - A [DelayQueue] is for consumers that take elements at their own pace. It needs no wheel.
//
// Package-level functions such as [AfterFunc] and [NewTicker] use the wheel of [Default], which the
// whole process shares.
//
// # Guarantees
//
// A timer is pending from the call that arms it until the goroutine that runs its callback claims
// it, immediately before the callback starts. Len, Stop, Reschedule and Flush apply to pending
// timers, including those that are already due.
//
//   - Never early: a callback does not start before its deadline on the monotonic clock.
//     [TimingWheel.Flush] is the only exception.
//   - Bounded late: on a machine that is not overloaded a callback starts at most one tick after
//     its deadline, plus the time to start a goroutine. Distant deadlines are as precise as near
//     ones.
//   - Exactly once: for each timer exactly one of these happens: its callback runs once, Stop
//     returns true, or the wheel is stopped. The results of Stop and Reschedule are exact, even if
//     they race with the expiry.
//   - Callbacks hold no lock and may call everything in this package. With the default executor a
//     callback that blocks delays no other timer.
//   - Arming, Stop and Reschedule are O(1) amortised and wait for no callback.
//   - A panic in a callback crashes the program unless [Options.OnPanic] is set.
//   - A handle of a timer that has ended never affects another timer, although the wheel reuses the
//     memory.
//
// # Durations and times
//
// A zero or negative duration means at once, and so does a time that has passed. A duration beyond
// the clock's range, at most 292 years, never passes. A time with a monotonic reading is used as it
// is. For a time without one, such as a date, the wall clock is read once, by the call: later steps
// of the wall clock move no timer. While a machine is suspended, Linux's monotonic clock stands
// still, and timers are late by that time. Only the runs of a plan follow the wall clock, if its
// [Scheduler] returns dates.
//
// # Concurrency
//
// All methods may be called from any goroutine at any time, callbacks included, unless their
// documentation says otherwise. Timers with the same deadline run in no particular order, except in
// Manual mode with one shard, where they run in the order of arming and Reschedule.
//
// [TimingWheel.Stop] may be called concurrently with all other calls. On a stopped wheel nothing
// can be armed, and every call returns promptly.
//
// # When not to use it
//
//   - For a handful of timers, use [time.AfterFunc].
//   - For callbacks that must start within less than a tick of their deadline, use
//     [time.AfterFunc]. The tick is 1 ms by default and 50 µs at least.
//   - For timers that must survive the process, use module durable of this repository.
//   - For timers that must follow steps of the wall clock within less than a minute, compare dates
//     with [time.Now]. Plans follow them within a minute, see [Scheduler].
//
// # Testing
//
// A wheel that is made in a testing/synctest bubble uses the bubble's clock. With [Options.Manual]
// a wheel has no goroutine, and a test moves its clock with [TimingWheel.Advance].
//
// # Sources
//
// The algorithm is from Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987. The heap
// of slots, which makes the wheel tickless, is from Apache Kafka. In the repository,
// docs/semantics.md describes every edge case.
package timingwheel
