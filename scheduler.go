package timingwheel

import (
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/planner"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// Scheduler determines when a plan runs. Next returns the time of the first run after t, or the
// zero time if there is none. Any Schedule from github.com/robfig/cron is a Scheduler. Package
// schedule provides more.
//
// A plan calls Next without holding a lock and never concurrently. The first call passes the time
// at which [TimingWheel.ScheduleFunc] was called. Each later call is made immediately before a run
// and passes the time for which that run was planned. If the result has passed when the run ends,
// the plan calls Next once more, with the current time: missed runs are skipped and not replayed.
// If the first call panics, the panic reaches the caller of ScheduleFunc. If Next panics later, the
// plan ends, and the panic counts as a panic in the callback.
//
// A result without a monotonic reading, such as one from [time.Date], is a wall-clock time. While
// its run is more than a minute away, the wheel compares its clock with the wall clock every
// minute. If the wall clock was set forward, or the machine was suspended, the run takes place at
// its wall-clock time, or within a minute if that time has already passed. If the wall clock was
// set back, the wait never exceeds the original one, so that no time is planned twice. If it was
// set back by more than three hours and more than ten periods of the plan, the plan instead calls
// Next once more, with the current time.
type Scheduler interface{ Next(t time.Time) time.Time }

// Every returns a [Scheduler] with a fixed rate: each run is planned a multiple of d after the
// first one, even if runs were late or missed. The first run is d after the plan was made. Every
// panics if d is not positive.
func Every(d time.Duration) Scheduler {
	mustBePositive("Every", d)
	return planner.Every(d)
}

func mustBePositive(function string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("timingwheel: %s: d is %v; it must be positive", function, d))
	}
}

// Run describes one run of a plan: see [TimingWheel.ScheduleRun]. It stays valid after the run
// ends.
type Run struct {
	N       int       // number of the run, from 1; saturates at math.MaxInt
	Planned time.Time // planned start of the run, or the time to which Reschedule has moved it
	Started time.Time // actual start of the run; earlier than Planned only after a Flush or a wall-clock step

	plan Timer
}

// Stop stops the run's plan and reports whether this call prevented further runs, like [Timer.Stop]
// on the plan's handle. The run's own function may call it, even before ScheduleRun has returned
// the handle. The run itself continues.
func (r *Run) Stop() bool { return r.plan.Stop() }

// ScheduleFunc runs f at the times that s plans, up to one tick late and never early, and returns
// one handle for the whole plan. If the first run is in the past, it starts immediately.
// ScheduleFunc returns the zero Timer if s plans no run or the wheel is stopped. It panics if s or
// f is nil.
//
// Runs never overlap, unless a [Scheduler] from package schedule allows it: the next run is armed
// only after f has returned, panicked or called runtime.Goexit. Between two runs the plan is
// pending. [Timer.Stop] ends the plan. [Timer.Reschedule] moves the next run, and the plan
// continues from the new time.
func (tw *TimingWheel) ScheduleFunc(s Scheduler, f func()) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleFunc with a nil Scheduler or function")
	}
	return tw.startPlan(&plan{planner: planner.For(s), f: f})
}

// ScheduleRun is like [TimingWheel.ScheduleFunc], but passes f a description of the run. The
// function can end its own plan with [Run.Stop].
func (tw *TimingWheel) ScheduleRun(s Scheduler, f func(r *Run)) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleRun with a nil Scheduler or function")
	}
	return tw.startPlan(&plan{planner: planner.For(s), f: f})
}

// plan is a timer that is armed again after each run. Its handle is a [Timer] whose pageRef
// has no page and refers to the plan.
type plan struct {
	timer  rearmable
	handle pageRef

	// mu is held for a moment only: the planner and the function run without it. Calls to the
	// planner are serial all the same, because a run arms the next one after its last call.
	mu      sync.Mutex
	planner planner.Planner  // nil: there is no further run
	f       any              // a func() or a func(*Run)
	origin  *sampling.Origin // for profiles
	n       int              // runs that have begun
	moved   bool             // Reschedule has set movedTo, and the timer is not armed for it yet
	movedTo int64            // a reading
	pending pendingRun
}

// pendingRun is the next run of a plan. Its timer is armed for the reading deadline. If byWall is
// set, the timer is armed for checkAt, at most clock.Compare ahead, and the plan then looks at the
// wall clock.
type pendingRun struct {
	planned  time.Time     // the zero time if Reschedule has set deadline
	period   time.Duration // from the time of the run before to planned
	byWall   bool          // planned is a time of the wall clock
	flushes  uint32        // the Flushes that had begun when the timer was armed
	deadline int64
	latest   int64 // the first deadline for planned: steps of the wall clock set no later one
	checkAt  int64
}

// A plan by the wall clock asks its planner anew if that clock was set back by more than wallStep
// and by more than wallPeriods times the period.
const (
	wallStep    = 3 * time.Hour
	wallPeriods = 10
)

// startPlan arms the first run of p and returns the plan's handle, or the zero Timer if there is no
// run.
func (tw *TimingWheel) startPlan(p *plan) Timer {
	p.handle.shard = tw.engine.shards[0]
	p.timer.init(tw.engine, p.run)
	now := p.now()
	first := p.planner.First(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arm(first, now, now); p.planner == nil {
		return Timer{}
	}
	p.handle.plan = p
	return Timer{ref: &p.handle}
}

// now returns the current time by both clocks.
func (p *plan) now() time.Time { return p.handle.shard.config.Now() }

// runPlan is the code address of the callback of every plan.
var runPlan = codeOf(new(plan).run)

// callee returns the code address of a callback, or 0 for a plan.
func callee(f []func()) uintptr {
	if code := codeOf(f[0]); code != runPlan {
		return code
	}
	return 0
}

// run is the function of the timer.
func (p *plan) run() {
	p.mu.Lock()
	c, f, pending := p.planner, p.f, p.pending
	r := planner.Run{N: max(p.n+1, p.n), Planned: pending.planned, Started: p.now()}
	p.mu.Unlock()
	if c == nil {
		return
	}
	if s := p.handle.shard; r.Planned.IsZero() { // Reschedule has set the deadline
		begin := s.config.ticks.Begin(s.config.ticks.Ceil(pending.deadline))
		reading, _ := s.config.Instant(r.Started)
		r.Planned = r.Started.Add(time.Duration(begin - reading))
	}
	step, ok := p.ask(c, r, pending)
	if !ok {
		return
	}
	if !step.Overlap && !step.Next.IsZero() {
		defer p.end(c, pending, r.Planned, step.Next)
	}
	if e := p.timer.engine(); e.opts.Around != nil {
		r := r // the closure captures this copy, so the outer r does not escape
		new(aroundCall).do(e, codeOf(f), 1, func() { p.call(f, r) })
		return
	}
	p.call(f, r)
}

func (p *plan) call(f any, r planner.Run) {
	switch f := f.(type) {
	case func():
		f()
	case func(*Run):
		f(&Run{r.N, r.Planned, r.Started, Timer{ref: &p.handle}})
	}
}

// ask determines whether run r takes place and whether there is a further run. It returns false if
// r does not take place. If the planner panics, the plan ends, unless Reschedule has set a further
// run.
func (p *plan) ask(c planner.Planner, r planner.Run, pending pendingRun) (step planner.Step, ok bool) {
	waits := false
	defer func() { ok = !waits && p.begin(r, step) }() // also after a panic: then step has no further run
	if waits = pending.byWall && p.wait(c, pending, r.Started); waits {
		return step, false
	}
	answer := c.Before(r)
	if answer.Omit || answer.Overlap {
		answer.Next = p.correct(c, pending, answer.Next, r.Planned, r.Started)
	}
	return answer, true
}

// begin reports whether run r takes place: not if the planner omits it, the wheel is stopped, Stop
// has ended the plan since the timer was claimed, or Reschedule has moved this run, which was the
// last one. If there is no further run, begin ends the plan, so Stop returns false during r.
func (p *plan) begin(r planner.Run, step planner.Step) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := step.Next.IsZero()
	ok := !p.ended() && !step.Omit && !(last && p.moved)
	if ok {
		p.n, p.pending = r.N, pendingRun{}
	}
	if !ok || last || step.Overlap {
		p.arm(step.Next, r.Planned, r.Started) // the next run may begin
	}
	return ok
}

// end arms the next run when the run for the time before has ended. next is the answer of ask.
func (p *plan) end(c planner.Planner, ended pendingRun, before, next time.Time) {
	now := p.now()
	var planned time.Time
	defer func() { // even if the planner panics
		p.mu.Lock()
		defer p.mu.Unlock()
		p.arm(planned, before, now)
	}()
	p.mu.Lock()
	settled := p.ended() || p.moved
	p.mu.Unlock()
	if settled {
		return
	}
	next = c.After(next, now)
	if !next.IsZero() && !next.After(now) {
		next, before = c.Missed(next, now), now
	}
	planned = p.correct(c, ended, next, before, now)
}

// wait looks at the wall clock at checkAt. It reports whether the planned time is still ahead on
// that clock, and then arms the timer again.
func (p *plan) wait(c planner.Planner, r pendingRun, now time.Time) bool {
	reading, _ := p.handle.shard.config.Instant(now)
	if reading < r.checkAt || r.flushes != p.flushes() {
		return false // a Flush has claimed the timer
	}
	next := p.correct(c, r, r.planned, r.planned.Add(-r.period), now)
	if next.Equal(r.planned) && (reading >= r.latest || !r.planned.After(now)) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arm(next, now, now)
	p.timer.engine().funcTimers.planWaits.Add(1)
	return true
}

// correct returns next, which follows the run planned for before. If the wall clock was set back
// far since run r was armed, correct returns a first run as of now instead.
func (p *plan) correct(c planner.Planner, r pendingRun, next, before, now time.Time) time.Time {
	if next.IsZero() || !r.byWall {
		return next
	}
	reading, _ := p.handle.shard.config.Instant(now)
	back := r.planned.Sub(now) - time.Duration(r.latest-reading)
	if back <= wallStep || back/wallPeriods <= next.Sub(before) {
		return next
	}
	return c.First(now)
}

// arm arms the timer for next, which follows the run planned for before, or for the time that
// Reschedule has set. If there is neither, or if the wheel is stopped, arm ends the plan. now is a
// reading of both clocks. mu is held.
func (p *plan) arm(next, before, now time.Time) {
	s, first, r := p.handle.shard, p.handle.plan == nil, &p.pending // startPlan sets handle.plan later
	switch {
	case !first && p.ended(): // if the wheel is stopped, the first run counts in Stats.Rejected
		return
	case p.moved:
		*r = pendingRun{deadline: p.movedTo}
		p.moved = false
	case next.IsZero():
		p.finish()
		return
	default:
		deadline, _ := s.config.Instant(next)
		if !next.Equal(r.planned) {
			*r = pendingRun{planned: next, period: next.Sub(before), latest: deadline}
			// In Manual mode and in a bubble there is only one clock.
			r.byWall = !clock.IsMonotonic(next) && s.config.Manual == nil && clock.IsMonotonic(s.config.Base)
		}
		r.deadline = min(deadline, r.latest)
	}
	reading, _ := s.config.Instant(now)
	r.checkAt = r.deadline
	if r.byWall {
		r.checkAt = min(r.deadline, clock.Later(reading, int64(clock.Compare)))
	}
	p.timer.resetTo(r.checkAt, reading, 0)
	r.flushes = p.flushes()
	if h, _ := p.timer.handle(); first {
		p.origin = h.origin()
	} else {
		h.sampleAs(p.origin)
	}
	p.ended() // if the wheel was stopped meanwhile
}

// flushes returns the number of Flushes that have begun.
func (p *plan) flushes() uint32 { return p.timer.engine().funcTimers.flushes.Load() }

// finish ends the plan. mu is held.
func (p *plan) finish() {
	p.planner, p.f, p.pending = nil, nil, pendingRun{}
}

// stop is [Timer.Stop].
func (p *plan) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended() {
		return false
	}
	p.finish()
	p.timer.stop()
	return true
}

// reschedule is Timer.rescheduleTo.
func (p *plan) reschedule(deadline, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended() {
		return false
	}
	s, next := p.handle.shard, p.pending
	if now == clock.Unread {
		now = s.config.Read()
	}
	deadline = max(deadline, now)
	if s.config.ticks.Ceil(deadline) != s.config.ticks.Ceil(next.deadline) { // else only a Flush is undone
		next = pendingRun{deadline: deadline, checkAt: deadline}
	}
	if moved, _ := p.timer.try(func(h Timer) bool { return h.move(next.checkAt, now, true) }); !moved {
		p.moved, p.movedTo = true, deadline
		return true
	}
	next.flushes = p.flushes()
	p.pending = next
	return true
}

// ended reports whether there is no further run, because the plan has ended or the wheel was
// stopped. In both cases the plan no longer refers to its function. mu is held.
func (p *plan) ended() bool {
	if p.handle.shard.closed.Load() {
		p.finish()
	}
	return p.planner == nil
}

// next is [Timer.Deadline].
func (p *plan) next() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.handle.shard; !p.ended() && p.pending.byWall {
		return s.config.TimeAt(s.config.ticks.Begin(s.config.ticks.Ceil(p.pending.deadline))), true
	}
	h, _ := p.timer.handle()
	return h.Deadline()
}
