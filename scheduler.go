package timingwheel

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// Scheduler determines when a plan runs. Next returns the time of the first run after t, or the
// zero time if there is none. Any Schedule of github.com/robfig/cron is a Scheduler. Package
// schedule has more.
//
// A plan calls Next without a lock and never concurrently. The first call has the time at which
// [TimingWheel.ScheduleFunc] was called. Each further call comes immediately before a run and has
// the time for which that run was planned. If the result has passed when the run returns, the plan
// calls Next once more with the current time: missed runs are skipped and not replayed. If Next
// panics in ScheduleFunc, the panic goes to its caller. If Next panics later, the plan ends, and
// the panic counts as that of the callback.
type Scheduler interface{ Next(t time.Time) time.Time }

// Every returns a [Scheduler] with a fixed rate: each run is planned a multiple of d after the
// first one, even if runs were late or missed. The first run is d after the plan was made. Every
// panics if d is not positive.
func Every(d time.Duration) Scheduler {
	if d <= 0 {
		panic(fmt.Sprintf("timingwheel: Every: d is %v; it must be positive", d))
	}
	return planner.Every(d)
}

// Run describes one run of a plan, see [TimingWheel.ScheduleRun]. It stays valid when the run has
// ended.
type Run struct {
	N       int       // number of the run, from 1; saturates at math.MaxInt
	Planned time.Time // planned start of the run, or the time to which Reschedule has moved it
	Started time.Time // start of the run; before Planned only after a Flush or a step of the wall clock

	plan Timer
}

// Stop stops the plan of the run and returns true if this call prevented further runs, like
// [Timer.Stop] of the plan's handle. The run's own function may call it, even before ScheduleRun
// has returned the handle. The run itself continues.
func (r *Run) Stop() bool { return r.plan.Stop() }

// ScheduleFunc runs f at the times that s plans, each up to one tick later and never earlier, and
// returns one handle for the whole plan. If the first run is in the past, it starts at once.
// ScheduleFunc returns the zero Timer if s plans no run or the wheel is stopped. It panics if s or
// f is nil.
//
// Runs never overlap, unless a [Scheduler] of package schedule allows it: the next run is armed
// when f has returned, panicked or called runtime.Goexit. Between two runs the plan is pending.
// [Timer.Stop] ends the plan. [Timer.Reschedule] moves the next run, and the plan continues from
// the new time.
func (tw *TimingWheel) ScheduleFunc(s Scheduler, f func()) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleFunc with a nil Scheduler or function")
	}
	c := planner.For(s)
	if planner.Untimed(c) {
		p := &plan{planner: c, f: f}
		return p.start(tw.engine, p.run, f)
	}
	p := &timedPlan{plan: plan{planner: c, f: f}}
	return p.start(tw.engine, p.run, f)
}

// ScheduleRun is like [TimingWheel.ScheduleFunc] and passes a description of the run to f. The
// function can end its own plan with [Run.Stop].
func (tw *TimingWheel) ScheduleRun(s Scheduler, f func(r *Run)) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleRun with a nil Scheduler or function")
	}
	p := &timedPlan{plan: plan{planner: planner.For(s)}, withRun: f}
	return p.start(tw.engine, p.run, f)
}

// plan is a timer that is armed again after each run. It keeps its slot, and so its handle,
// throughout: during a run the slot belongs to no bucket.
type plan struct {
	planner planner.Planner
	f       func()

	// These fields are written before the first run, and then by the runs, one after the other.
	planned time.Time // of the next run
	at      int64     // tick for which planned was armed; a Reschedule changes the tick of the slot
	n       int       // runs that have begun
	timer   Timer
}

// timedPlan is a plan that reads the clock before each run, because its planner or its function
// needs the time. It is a separate type, so most plans of ScheduleFunc save the reading and a word
// of memory.
type timedPlan struct {
	plan
	withRun func(*Run) // nil: f is the function
}

// start arms the first run and returns the plan's handle, or the zero Timer if there is no run. run
// is the payload, which calls f. With Options.Around the payload is run within Around.
func (p *plan) start(e *engine[func()], run func(), f any) Timer {
	date := e.shards[0].wallNow()
	if p.planned = p.planner.First(date); p.planned.IsZero() {
		return Timer{}
	}
	deadline, now := e.Instant(p.planned)
	if now == clock.Unread && !e.Manual {
		now, _ = e.Instant(date)
	}
	if e.around.hook != nil {
		code, inner := codeOf(f), []func(){run}
		run = func() { e.runAround(code, inner) }
	}
	s := e.pick()
	if s.canArm() { // what follows is done under the lock, and so before the first run
		p.timer = s.armFree(deadline, now, arena.Plan)
		s.setPayload(p.timer.index, run)
		p.at = p.tick()
	}
	s.unlockArm()
	return p.timer
}

// run is the payload.
func (p *plan) run() { p.runOnce(p.begin(), nil) }

// run is the payload of a timedPlan.
func (p *timedPlan) run() {
	r := p.begin()
	r.Started = p.timer.ref.shard.wallNow()
	p.runOnce(r, p.withRun)
}

// begin returns the run that begins now, without its time.
func (p *plan) begin() planner.Run {
	s := p.timer.ref.shard
	s.claims.countRun(&s.closed)
	p.takeRescheduled()
	return planner.Run{N: max(p.n+1, p.n), Planned: p.planned}
}

// runOnce performs run r. Before the function starts, runOnce determines whether there is a further
// run, so Stop returns the right answer during the run.
func (p *plan) runOnce(r planner.Run, withRun func(*Run)) {
	step, off := p.before(r)
	switch {
	case off || step.Omit:
		p.arm(step.Next, clock.Unread)
		return
	case step.Overlap:
		p.n = r.N
		p.arm(step.Next, clock.Unread) // from here on the next run may write the fields of the plan
	default:
		p.n = r.N
		defer p.after(step.Next)
	}
	if withRun == nil {
		p.f()
		return
	}
	withRun(&Run{r.N, r.Planned, r.Started, p.timer})
}

// before asks the planner about run r, which is about to start. If there is no further run, or if
// the planner panics, the plan ends unless Reschedule has set a further run. endUnless explains
// off.
func (p *plan) before(r planner.Run) (step planner.Step, off bool) {
	answered := false
	defer func() {
		off = p.endUnless(step.Next)
		if !answered {
			p.arm(time.Time{}, clock.Unread)
		}
	}()
	step = p.planner.Before(r)
	answered = true
	return step, false
}

// after arms the next run when a run has ended: at the time that Reschedule has set, or else at the
// time that the planner plans. planned is the answer of before.
func (p *plan) after(planned time.Time) {
	var next time.Time
	now := int64(clock.Unread)
	defer func() { // even if the planner panics
		if next.IsZero() {
			p.endUnless(next)
		}
		p.arm(next, now)
	}()
	if planned.IsZero() || !p.live() {
		return
	}
	s := p.timer.ref.shard
	finished := s.wallNow()
	if !s.Manual {
		now, _ = s.Instant(finished)
	}
	if planned = p.planner.After(planned, finished); !planned.IsZero() && !planned.After(finished) {
		planned = p.planner.Missed(planned, finished)
	}
	next = planned
}

// takeRescheduled adopts the time to which Reschedule has moved the run that is about to start.
func (p *plan) takeRescheduled() {
	_, w, running := p.running()
	if !running || w.Has(arena.Moved) {
		return
	}
	if tick := w.Tick(); tick != p.at {
		p.planned = p.dateOf(tick)
	}
}

// running returns the plan's slot while a run is under way. It returns false if the plan or the
// wheel was stopped.
func (p *plan) running() (*arena.Page, arena.Word, bool) {
	s := p.timer.ref.shard
	pg := p.timer.ref.page.Load()
	if pg == nil || s.closed.Load() {
		return nil, 0, false
	}
	w := pg.Load(p.timer.index)
	return pg, w, w.Gen() == p.timer.gen && w.Kind() == arena.Running
}

// tick returns the tick of the plan's slot, or the tick of the last arming if the plan was stopped.
func (p *plan) tick() int64 {
	s := p.timer.ref.shard
	pg := p.timer.ref.page.Load()
	if pg == nil {
		return p.at
	}
	w := pg.Load(p.timer.index)
	armed := w.Kind() == arena.Staged || w.Kind() == arena.Placed || w.Kind() == arena.Running
	if !armed || w.Gen() != p.timer.gen || s.closed.Load() {
		return p.at
	}
	return w.Tick()
}

func (p *plan) dateOf(tick int64) time.Time {
	s := p.timer.ref.shard
	return s.DateOf(s.ticks.Begin(tick))
}

// endUnless ends the plan if next is the zero time, unless Reschedule has set a further run. off
// means that the run that is about to start does not take place, because since its claim Stop has
// ended the plan, or Reschedule has moved this run, which was the last one.
func (p *plan) endUnless(next time.Time) (off bool) {
	for {
		pg, w, running := p.running()
		switch {
		case !running:
			return true
		case !next.IsZero():
			return false
		case w.Has(arena.Moved):
			return true
		}
		if pg.Swap(p.timer.index, w, w.With(arena.Dead)|arena.Moved) {
			return false
		}
	}
}

// arm makes the plan pending again, or releases its slot if the plan has ended. It is called once
// for each run. now is a reading of the clock after the end of the run, or clock.Unread.
func (p *plan) arm(next time.Time, now int64) {
	s := p.timer.ref.shard
	deadline, read := s.Instant(next)
	now = max(now, read)
	if now == clock.Unread && !s.Manual {
		now = s.Read() // the run may have taken long
	}
	for {
		pg, w, running := p.running()
		if !running {
			p.remove()
			return
		}
		if w.Has(arena.Moved) {
			next = p.dateOf(p.tick())
			deadline, _ = s.Instant(next)
		}
		if p.rearm(cell{s, pg, p.timer.index}, w, deadline, now, next) {
			return
		}
	}
}

// remove releases the slot of a plan that has ended during its run. Only arm calls it, and each run
// calls arm once.
func (p *plan) remove() {
	s, i := p.timer.ref.shard, p.timer.index
	pg := p.timer.ref.page.Load()
	if pg == nil || s.closed.Load() {
		return
	}
	if w := pg.Load(i); w.Gen() == p.timer.gen && w.Kind() == arena.Dead {
		cell{s, pg, i}.remove(w)
	}
}

// live reports whether the Scheduler still determines the next run: neither the plan nor the wheel
// was stopped, and Reschedule has not set the next run.
func (p *plan) live() bool {
	_, w, running := p.running()
	return running && !w.Has(arena.Moved)
}

// rearm makes a plan pending after a run. c is the plan's slot, and next is the time of the next
// run. rearm returns false if the word has changed. On a stopped wheel it arms nothing and returns
// true.
func (p *plan) rearm(c cell, w arena.Word, deadline, now int64, next time.Time) bool {
	s := c.shard
	s.armMu.Lock()
	if s.closed.Load() {
		s.armMu.Unlock()
		return true
	}
	tick, ok := c.stageAgain(w, deadline, s.noteReading(now))
	if !ok {
		s.armMu.Unlock()
		return false
	}
	p.planned, p.at = next, tick // under the lock, and so before the run
	s.inbox.armed++
	s.unlockArm()
	return true
}
