// Package timingwheel keeps timers for programs that hold very many of them: timeouts of
// connections and requests, retries, expiry of cache entries. Use [time.AfterFunc] for a handful of
// timers, and for callbacks that must start within less than a tick (by default 1 ms).
//
//	tw, err := timingwheel.New(timingwheel.Options{})
//	…
//	t := tw.AfterFunc(30*time.Second, func() { conn.Close() })
//	t.Stop() // true: the function will never run
//
// A [TimingWheel] runs a function for each timer. A [FuncTimer] can be armed again, as for a
// heartbeat. [Timeouts] hands payloads in batches to one function. [TimingWheel.ScheduleFunc] runs
// plans, and package plan has schedulers for them. A [DelayQueue] is for consumers that take
// elements at their own pace. Timers with a channel, tickers, Sleep and contexts follow packages
// time and context.
//
// # Guarantees
//
// A timer is pending until the goroutine that runs its callback claims it, right before the call.
// Len, Stop, Reschedule and Flush speak of pending timers.
//
//   - A callback never starts before its deadline on the monotonic clock, Flush apart. It starts at
//     most one tick later, unless the machine is overloaded.
//   - For each timer exactly one thing happens: its callback runs once, Stop returned true, or the
//     wheel was stopped. Results are exact, also in a race.
//   - Callbacks run without a lock and may call everything. With the default executor a callback
//     that blocks delays no other timer.
//   - Arming, Stop and Reschedule are O(1) amortised and wait for no callback.
//   - A panic in a callback crashes the program unless [Options.OnPanic] is set.
//   - A wheel on which nothing expires and no callback runs has no goroutine.
//
// # Durations and times
//
// A zero or negative duration, or a time that has passed, means at once. A duration beyond the
// clock's 292 years never passes. A time with a monotonic reading is used as it is. For a time
// without one, the wall clock is read once: later steps of the wall clock move no timer.
//
// # Concurrency
//
// All methods may be called at any time from any goroutine, callbacks included, unless they say
// otherwise. On a stopped wheel nothing is armed, and every call returns at once. Timers with the
// same deadline run in no particular order, but in Manual mode with one shard in the order of
// arming and Reschedule.
//
// # Testing
//
// With [Options.Manual] a test moves the clock by [TimingWheel.Advance]. In a testing/synctest
// bubble a wheel that was made there works as it is.
//
// # Sources
//
// The algorithm is that of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987; the
// heap of slots comes from Apache Kafka. In the repository, docs/semantics.md describes every edge.
package timingwheel
