// Package timingwheel keeps timers for programs that hold very many of them: idle timeouts of
// connections, timeouts of requests, retries, expiry of cache entries, orders that are not paid.
//
//	tw, err := timingwheel.New(timingwheel.Options{})
//	if err != nil {
//		return err
//	}
//	t := tw.AfterFunc(30*time.Second, func() { conn.Close() })
//	t.Reschedule(30 * time.Second) // a beat: the connection has 30 s again
//	t.Stop()                       // true: the function will never run
//
// A [TimingWheel] runs a function for each timer. [TimingWheel.ScheduleFunc] runs plans again and
// again; package plan has schedulers for them. [Timeouts] has a value for each timer in place of a
// function, and hands expired values to one function in batches. A [DelayQueue] is for consumers
// that take elements at their own pace. In Manual mode ([Options]) the caller drives the clock, for
// event loops, games, simulations and tests.
//
// [TimingWheel.After], NewTimer, NewTicker, Ticks and Sleep, and the contexts of
// [TimingWheel.WithTimeout], are counterparts of those in packages time and context, driven by the
// wheel.
//
// # When not to use it
//
// For a handful of timers use [time.AfterFunc], which brings no dependency. Use it as well if a
// callback has to start closer to its deadline than one tick (1 ms by default). Steps of the wall
// clock move neither kind of timer. Timers end with the process.
//
// # Guarantees
//
// A timer is pending until the goroutine that runs its callback claims it, right before the call.
// Len, Stop, Reschedule and Flush speak of pending timers.
//
//   - A callback never starts before its deadline on the monotonic clock (Flush apart). On a
//     machine that is not overloaded it starts within one tick and the time that it takes to start
//     a goroutine, however far away the deadline was.
//   - For each timer exactly one thing happens: its callback runs once, Stop returned true, or the
//     wheel was stopped. The answers of [Timer.Stop] and [Timer.Reschedule] are exact, also in a
//     race.
//   - A handle of a timer that has fired or was stopped is inert for ever, although the memory is
//     used again. The zero [Timer] is inert as well.
//   - Callbacks run without a lock and may call everything here. With the default executor a
//     callback that blocks delays no other timer, and callbacks that wait for each other all run.
//     Both hold on busy processors, too.
//   - Arming, stopping and rescheduling a timer do not wait for callbacks or for a mass expiry.
//   - A panic in a callback crashes the program unless [Options.OnPanic] is set. [runtime.Goexit]
//     ends that callback and nothing else.
//   - Steps of the wall clock move no timer. Any duration works: zero and negative mean at once,
//     and a timer beyond the clock's 292 years never fires.
//   - While no bucket expires and no callback runs, the wheel has no goroutine, whatever the number
//     of pending timers.
//     Memory of stopped timers is used again; pages that become empty go back to the runtime.
//   - Once [TimingWheel.Stop] has returned no callback starts. [TimingWheel.Shutdown] also waits
//     for callbacks that have started.
//
// In the repository, docs/semantics.md describes every edge.
//
// # Algorithm
//
// Each wheel is a ring of slots (256 by default). A slot of the finest wheel stands for one tick, a
// slot of the next one for a whole turn of the finest, and so on: four wheels of 256 slots and a
// tick of 1 ms span 49 days. A timer goes into the first wheel that reaches its deadline, in O(1).
// When its slot comes up, the timer moves to a finer wheel, until its tick comes. A timer beyond
// the last wheel waits there for several turns.
//
// The wheel does not step from slot to slot. The slots that hold timers stand in a heap by the time
// at which they come up, and one timer of the runtime is set for the first of them. An empty slot
// costs nothing. A Reschedule to a later time only writes the new deadline, and the timer moves
// when its old slot comes up. The source of package timingwheel has a worked example, and
// docs/design.md describes the data structures.
//
// The algorithm is that of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987; the
// heap of slots comes from Apache Kafka.
//
// # Concurrency
//
// All methods may be called from any goroutine at any time, callbacks included, except where they
// say otherwise. A wheel consists of shards ([Options.Shards]), which share nothing that changes. A
// goroutine mostly adds to the same shard. Timers with the same deadline therefore run in no
// particular order. In Manual mode with one shard they run in the order in which they were armed.
//
// Stop, and Reschedule to a later time, take no lock as a rule. Arming, and Reschedule to an
// earlier time, take a short lock, which drivers and workers hold for moments only. Timers more
// than 2^33 ticks ahead (99 days at 1 ms) share one more short lock.
//
// [Timer.Deadline] is the deadline rounded up to a tick, and lateness in [Stats] counts from there.
//
// # Testing
//
// Code that takes a *TimingWheel can be tested without waiting in two ways. With Options.Manual the
// test moves the clock with [TimingWheel.Advance], and callbacks run inside that call, in order. In
// a [testing/synctest] bubble a wheel works as it is: fake time passes at once. A wheel belongs to
// the bubble in which it was made, so make one there; [Default] belongs to none.
package timingwheel
