package timingwheel

import (
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

	mu     sync.Mutex
	timer  *time.Timer
	active []*watched[T]
	spare  []*watched[T]
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
	told     bool // that it is slow
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
	r.running, r.told = true, false
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
	slow, first := r.slowAt(now), !r.told
	call, pc := r.call(now), r.pc
	r.running = false
	r.mu.Unlock()
	if !slow {
		return
	}
	if first {
		d.slow.Add(1)
	}
	if d.report != nil {
		call.Running = false
		d.report(call.describe(pc))
	}
}

// slowAt reports whether it runs and is slow. mu is held.
func (r *watched[T]) slowAt(now time.Duration) bool { return r.running && now-r.began >= r.dog.after }

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

// suspect is a slow callback that is still to be described: that takes longer than a lock should be held.
type suspect struct {
	call SlowCallback
	pc   uintptr
}

// check returns what has become slow since it was called last, and how long until the next may; 0: nothing runs of which
// that is not known.
func (d *watchdog[T]) check() (slow []suspect, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.read()
	for _, r := range d.active {
		r.mu.Lock()
		switch {
		case !r.running || r.told:
		case r.slowAt(now):
			r.told = true
			d.slow.Add(1)
			slow = append(slow, suspect{r.call(now), r.pc})
		case wait == 0:
			wait = r.began + d.after - now
		default:
			wait = min(wait, r.began+d.after-now)
		}
		r.mu.Unlock()
	}
	return slow, wait
}

// untold reports whether something runs that nobody has been told of.
func (d *watchdog[T]) untold() bool {
	return d.count(func(r *watched[T]) bool { return r.running && !r.told }) > 0
}

// slowCalls is how many callbacks have been slow, and how many of them still run. Those are counted here where there is
// no timer that does so.
func (d *watchdog[T]) slowCalls() (all uint64, running int) {
	now := d.read()
	running = d.count(func(r *watched[T]) bool {
		slow := r.slowAt(now)
		if slow && !r.told && !d.looks {
			r.told = true
			d.slow.Add(1)
		}
		return slow
	})
	return d.slow.Load(), running
}

func (d *watchdog[T]) count(is func(*watched[T]) bool) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.active {
		r.mu.Lock()
		if is(r) {
			n++
		}
		r.mu.Unlock()
	}
	return n
}
