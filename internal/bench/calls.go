package bench

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Operation is the call that BusyCalls measures.
type Operation int

const (
	Reschedule Operation = iota // Reset sets a random timer to a minute from now
	Rearm                       // Stop on a random timer, and After for a new one
	Restart                     // Stop on a random timer that can be armed again, and Reset
	Hasten                      // Reset on a random timer, in half of the calls to an earlier deadline
	Nothing                     // a computation without locks that takes as long as a Rearm on an idle machine
)

// Calls determines the calls that BusyCalls makes.
type Calls struct {
	Operation Operation
	Callers   int // number of calling goroutines
	Rate      int // timers per second that expire meanwhile
}

const (
	callInterval    = 200 * time.Microsecond // between two calls of one caller
	tooLong         = time.Millisecond       // a call that takes longer is a long call
	timersPerCaller = 1_000                  // timers that each caller may stop and reset
	youngSlice      = 9 * time.Millisecond   // a call counts if it begins this early in a time slice
	sliceMax        = 20 * time.Millisecond  // a time slice ends by then if another goroutine waits
)

// BusyCalls measures the duration of single calls while c.N timers expire, k.Rate per second.
//
// The figures are meant to show calls that wait for a lock whose holder was preempted, or for a
// goroutine that expires timers. On a busy machine a call may also be long because its own
// goroutine was preempted during the call, which happens to any code. The age of the caller's time
// slice distinguishes the two cases: the scheduler lets a goroutine run for at least 10 ms if the
// goroutine does not block. A call that begins in the first 9 ms of a slice ends long before the
// end of the slice, unless the call waits. Only such calls count. The callers also make calls later
// in a slice, because a caller that is preempted inside the library may delay other callers, whose
// waiting counts.
//
// A caller reads the clock continuously between two calls. A gap of more than a millisecond between
// two readings shows that another goroutine had the processor, and that a new slice began at the
// end of the gap. After a long call, and after 20 ms without a gap, the age of the slice is
// unknown, so the caller yields.
//
// Two other causes can delay a call that counts: the operating system may run another thread, and
// the garbage collector may stop the world. Both delay any code. The operation Nothing measures the
// extent: it is the same loop with the same timers, around a computation of the same duration that
// takes no lock.
//
// The callers continue until the last of the c.N timers has expired. Calls before the first timer
// is due do not count. The figures are the share of long calls, the 99.9th percentile, the longest
// call, the number of calls that count, and the number of timers that expired per second. An
// implementation that cannot keep up with the rate leaves its callers little time, which shows in
// the number of calls.
func BusyCalls[H any](open Open[H], c Config, k Calls) ([]Figure, error) {
	length := time.Duration(0)
	if k.Operation == Nothing {
		var err error
		if length, err = quietRearm(open); err != nil {
			return nil, err
		}
	}
	span := durationOf(c.N, k.Rate)
	f, err := startFlow(open, c, plan{offsets: atRandom(c.N, span), span: span, far: k.Callers * timersPerCaller})
	if err != nil {
		return nil, err
	}
	clock := func() time.Duration { return time.Since(f.begin) }
	more := func() bool { return f.Left() > 0 && clock() < span+c.Grace }
	callers := make([]caller, k.Callers)
	var running sync.WaitGroup
	for i := range callers {
		callers[i] = caller{clock: clock, yield: runtime.Gosched}
		o := f.callerTimers(i)
		operation := o.operation(k.Operation, length)
		running.Go(func() { callers[i].repeat(operation, more) })
	}
	running.Wait()
	expired := float64(c.N-f.Left()) / clock().Seconds()
	mistakes := f.end(c.Grace)
	return append(append(callFigures(callers), Figure{expired, "expiries/s"}), mistakes...), nil
}

func callFigures(callers []caller) []Figure {
	var all []time.Duration
	for i := range callers {
		all = append(all, callers[i].took...)
	}
	slices.Sort(all)
	short, _ := slices.BinarySearch(all, tooLong+1)
	return []Figure{
		{100 * float64(len(all)-short) / float64(len(all)), "over-1ms-%"},
		milliseconds(Quantile(all, 0.999), "p99.9-ms"),
		milliseconds(Quantile(all, 1), "worst-ms"),
		{float64(len(all)), "calls"},
	}
}

// caller is the state of a goroutine that makes calls.
type caller struct {
	clock func() time.Duration // the time since the first timer was due
	yield func()
	took  []time.Duration // durations of the calls that count
}

// repeat makes a call every callInterval while more returns true, and at least until one call has
// counted.
//
// No call begins within callInterval after the beginning of a slice. A gap may also mean that the
// operating system ran another thread. The time slice has often ended by then, and the scheduler
// preempts the goroutine at the next function that it enters. This function must be the clock and
// not the operation: without this pause 0.2 to 3% of the calls to Nothing took longer than 100 ms
// on a machine with other load, and with it none did.
func (c *caller) repeat(operation func(), more func() bool) {
	c.yield() // begins a new time slice
	now := c.clock()
	slice, next := now, now+callInterval // the beginnings of the slice and of the next call
	for more() || len(c.took) == 0 {
		for now < next {
			before := now
			now = c.clock()
			if now-before > tooLong {
				slice, next = now, now+callInterval
			}
		}
		next = now + callInterval
		operation()
		end := c.clock()
		if now >= 0 && now-slice < youngSlice {
			c.took = append(c.took, end-now)
		}
		if end-now > tooLong || end-slice > sliceMax {
			c.yield()
			end = c.clock()
			slice, next = end, end+callInterval
		}
		now = end
	}
}

// callerTimers has the far timers of one caller.
type callerTimers[H any] struct {
	timers  Timers[H]
	handles []H
	id      uint64 // id of timers that Rearm arms
	fire    func() // callback of timers that Rearm arms
	random  *rand.Rand
}

func (f *flow[H]) callerTimers(caller int) callerTimers[H] {
	id := uint64(len(f.offsets))
	far := f.handles[len(f.offsets)+caller*timersPerCaller:][:timersPerCaller]
	return callerTimers[H]{f.timers, far, id, func() { f.fire(id) }, rand.New(rand.NewPCG(4, uint64(caller)))}
}

// operation returns a function that makes one call to the operation. Nothing takes length.
func (o *callerTimers[H]) operation(what Operation, length time.Duration) func() {
	switch what {
	case Reschedule:
		return func() { o.timers.Reset(*o.pick(), farAhead) }
	case Restart:
		return func() {
			h := *o.pick()
			o.timers.Stop(h)
			o.timers.Reset(h, farAhead)
		}
	case Hasten:
		return func() { o.timers.Reset(*o.pick(), farAhead-time.Duration(o.random.Int64N(int64(farAhead/2)))) }
	case Rearm:
		return func() {
			h := o.pick()
			o.timers.Stop(*h)
			*h = o.timers.After(farAhead, o.id, o.fire)
		}
	default:
		return func() {
			for begin := time.Now(); time.Since(begin) < length; {
				o.pick()
			}
		}
	}
}

// pick returns a random handle.
func (o *callerTimers[H]) pick() *H { return &o.handles[o.random.IntN(len(o.handles))] }

// quietRearm returns the median duration of a Rearm while the processors are idle and no timer
// expires.
func quietRearm[H any](open Open[H]) (time.Duration, error) {
	timers, err := open(farAhead+time.Second, func(uint64) {})
	if err != nil {
		return 0, err
	}
	defer timers.Close()
	o := callerTimers[H]{timers, make([]H, timersPerCaller), 0, func() {}, rand.New(rand.NewPCG(4, 0))}
	for i := range o.handles {
		o.handles[i] = timers.After(farAhead, o.id, o.fire)
	}
	rearm := o.operation(Rearm, 0)
	took := make([]time.Duration, timersPerCaller)
	for i := range took {
		begin := time.Now()
		rearm()
		took[i] = time.Since(begin)
	}
	for _, h := range o.handles {
		timers.Stop(h)
	}
	slices.Sort(took)
	return Quantile(took, 0.5), nil
}
