package timingwheel

import (
	"math"
	"runtime"
	"sync"
	"time"

	"go.uber.org/atomic"
)

// watchdog measures callbacks. Each worker has a record, in which it notes what it runs and since when: a lock that nobody
// else wants and two readings of the clock for each callback. One timer of the runtime looks at all records. It is set while something
// runs and nobody has been told of it, so an idle wheel has none. Rejected: a timer for each callback, which costs as much
// as the callback's own timer did; looking only at callbacks that return, which misses the worst of them.
type watchdog[T any] struct {
	meter
	after  time.Duration
	pause  time.Duration // at least, between two looks
	wheel  string
	report func(SlowCallback) // nil: slow callbacks are only counted
	looks  bool               // it has a timer
	name   func([]T) uintptr
	run    func([]T)
	slow   tally
	armed  atomic.Bool // the timer is set, or about to be

	mu      sync.Mutex
	timer   *time.Timer
	active  []*watched[T]
	spare   []*watched[T]
	looking int           // looks under way, with their reports
	silent  chan struct{} // closed once there is none; made by Shutdown
}

// spareRecords is how many records are kept for the next workers.
const spareRecords = 64

// pauseFor bounds what looking costs: each look is at all that runs, and where many callbacks take almost SlowAfter there is
// always one that is about to become slow.
func pauseFor(after time.Duration) time.Duration { return max(after/8, time.Millisecond) }

// watched is the record of one worker.
type watched[T any] struct {
	dog  *watchdog[T]
	exec func([]T) // dog.run, measured
	at   int       // in dog.active, under its mu

	mu       sync.Mutex
	running  bool
	counted  bool // among the slow ones
	told     bool // to report
	began    time.Duration
	pc       uintptr
	payloads int
}

func newWatchdog[T any](opts Options, name func([]T) uintptr, run func([]T)) *watchdog[T] {
	return &watchdog[T]{
		meter:  newMeter(),
		after:  opts.SlowAfter,
		pause:  pauseFor(opts.SlowAfter),
		wheel:  opts.Name,
		report: opts.OnSlow,
		looks:  opts.OnSlow != nil && !opts.Manual,
		name:   name,
		run:    run,
	}
}

// join gives a worker its record.
func (d *watchdog[T]) join() *watched[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	var r *watched[T]
	if n := len(d.spare); n > 0 {
		r, d.spare = d.spare[n-1], d.spare[:n-1]
	} else {
		r = &watched[T]{dog: d}
		r.exec = r.measure
	}
	r.at = len(d.active)
	d.active = append(d.active, r)
	return r
}

// leave takes the record back.
func (d *watchdog[T]) leave(r *watched[T]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.active) - 1
	d.active[r.at] = d.active[last]
	d.active[r.at].at = r.at
	d.active[last] = nil
	d.active = d.active[:last]
	if len(d.spare) < spareRecords {
		d.spare = append(d.spare, r)
	}
	if last == 0 && cap(d.active) > spareRecords {
		d.active = nil
	}
}

// measure runs a batch. It is measured as well where a callback panics or exits.
func (r *watched[T]) measure(items []T) {
	r.begin(items)
	defer r.end()
	r.dog.run(items)
}

func (r *watched[T]) begin(items []T) {
	d := r.dog
	pc, now := d.name(items), d.read()
	r.mu.Lock()
	r.running, r.counted, r.told = true, false, false
	r.began, r.pc, r.payloads = now, pc, len(items)
	r.mu.Unlock()
	if d.looks && !d.armed.Load() && d.armed.CompareAndSwap(false, true) {
		d.set(d.after)
	}
}

func (r *watched[T]) end() {
	d := r.dog
	now := d.read()
	r.mu.Lock()
	slow := r.countSlow(now)
	call, pc := r.call(now), r.pc
	r.running = false
	r.mu.Unlock()
	if slow && d.report != nil {
		call.Running = false
		d.report(call.describe(pc))
	}
}

// countSlow reports whether it runs and is slow, and counts it where nobody has. mu is held.
func (r *watched[T]) countSlow(now time.Duration) bool {
	slow := r.running && now-r.began >= r.dog.after
	if slow && !r.counted {
		r.counted = true
		r.dog.slow.Add(1)
	}
	return slow
}

// call is what there is to report, but for the function. mu is held.
func (r *watched[T]) call(now time.Duration) SlowCallback {
	return SlowCallback{Wheel: r.dog.wheel, Took: now - r.began, Running: r.running, Payloads: r.payloads}
}

// set lets the timer go off, after a pause at least.
func (d *watchdog[T]) set(wait time.Duration) {
	wait = max(wait, d.pause)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, d.look)
		return
	}
	d.timer.Reset(wait)
}

// look reports what has become slow, and sets the timer for what may become so next. Whoever begins while it does
// that finds armed set, and is seen, or finds it cleared and sets the timer.
func (d *watchdog[T]) look() {
	d.beginLook()
	defer d.endLook()
	slow, wait := d.check()
	if wait == 0 {
		d.armed.Store(false)
		if d.untold() && d.armed.CompareAndSwap(false, true) {
			wait = d.after
		}
	}
	if wait > 0 {
		d.set(wait)
	}
	for _, c := range slow {
		d.report(c.call.describe(c.pc))
	}
}

func (d *watchdog[T]) beginLook() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looking++
}

func (d *watchdog[T]) endLook() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looking--
	if d.looking == 0 && d.silent != nil {
		close(d.silent)
		d.silent = nil
	}
}

// silence returns a channel that is closed when nothing is being reported; nil if nothing is. Once nothing runs any more,
// looks that begin later find nothing to report.
func (d *watchdog[T]) silence() <-chan struct{} {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looking > 0 && d.silent == nil {
		d.silent = make(chan struct{})
	}
	return d.silent
}

// suspect is a slow callback that is still to be described: that takes longer than a lock should be held.
type suspect struct {
	call SlowCallback
	pc   uintptr
}

// check returns what has become slow since it was called last, and how long until the next may; 0: nothing runs of which
// that is not known.
func (d *watchdog[T]) check() (slow []suspect, wait time.Duration) {
	now := d.read()
	d.each(quantum, func(r *watched[T]) {
		switch {
		case !r.running || r.told:
		case r.countSlow(now):
			r.told = true
			slow = append(slow, suspect{r.call(now), r.pc})
		default:
			left := d.after - (now - r.began)
			if wait == 0 {
				wait = left
			}
			wait = min(wait, left)
		}
	})
	return slow, wait
}

// untold reports whether something runs that nobody has been told of.
func (d *watchdog[T]) untold() (found bool) {
	d.each(quantum, func(r *watched[T]) { found = found || r.running && !r.told })
	return found
}

// slowCalls is how many callbacks have been slow, and how many of them still run, at one moment.
func (d *watchdog[T]) slowCalls() (all uint64, running int) {
	now := d.read()
	d.each(math.MaxInt, func(r *watched[T]) {
		if r.countSlow(now) {
			running++
		}
	})
	return d.slow.Load(), running
}

// each calls f for each record, with its lock held. Between portions mu is free, as who waits for that holds the lock of a
// shard. It goes from the last to the first: leave fills gaps with the last, so what is moved meanwhile is met again, and
// none is missed but those of workers that have come meanwhile.
func (d *watchdog[T]) each(portion int, f func(*watched[T])) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, left := len(d.active)-1, portion; k >= 0; k, left = k-1, left-1 {
		if left == 0 {
			left = portion
			d.mu.Unlock()
			runtime.Gosched()
			d.mu.Lock()
			k = min(k, len(d.active)-1)
			if k < 0 {
				return
			}
		}
		r := d.active[k]
		r.mu.Lock()
		f(r)
		r.mu.Unlock()
	}
}
