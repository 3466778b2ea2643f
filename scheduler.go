package timingwheel

import (
	"fmt"
	"reflect"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Scheduler says when a plan runs. Next returns the run that follows t, or the zero time if there
// is none. Any Schedule of github.com/robfig/cron is a Scheduler.
//
// A plan calls Next without a lock and never concurrently: first with the time of the call of
// [TimingWheel.ScheduleFunc], and then, before each run, with the time for which that run was
// planned. If the result has passed when the run returns, the plan calls Next once more, with the
// current time. Missed runs are therefore skipped and not replayed. Package plan has Schedulers
// that behave differently and can wrap any Scheduler.
type Scheduler interface{ Next(time.Time) time.Time }

// Skipper is a Scheduler that can skip missed runs and keep its phase, which Next alone would lose.
// Skip returns the first run after now among those that follow missed, or the zero time if there is
// none. If runs were missed, a plan calls Skip instead of calling Next with the current time. now
// is never before missed. The Scheduler of [Every] is a Skipper.
type Skipper interface {
	Scheduler
	Skip(missed, now time.Time) time.Time
}

// Every returns a Scheduler that runs at a fixed rate of one run for each d. It keeps its phase:
// runs stay at multiples of d after the first, even if some were missed. Every panics if d is not
// positive.
func Every(d time.Duration) Scheduler {
	if d <= 0 {
		panic(fmt.Sprintf("timingwheel: Every(%v): accepted is a positive duration", d))
	}
	return every(d)
}

type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Add(time.Duration(e)) }

func (e every) Skip(missed, now time.Time) time.Time {
	d := time.Duration(e)
	return now.Add(d - now.Sub(missed)%d) // missed plus a multiple of d could overflow
}

// skip asks s for the first run after now.
func skip(s Scheduler, missed, now time.Time) time.Time {
	if k, ok := s.(Skipper); ok {
		return k.Skip(missed, now)
	}
	return s.Next(now)
}

// ScheduleFunc runs f at the times that s plans and returns one handle for the whole plan. It
// returns the zero Timer, and never runs f, if s plans no run or if the wheel is stopped.
//
// Runs never overlap: the next one is armed when f has returned, panicked or called runtime.Goexit.
// (A [Planner] may decide otherwise.) Stop during a run returns true if and only if a further run
// was planned. Reschedule moves the next run, and the plan continues from there. ScheduleFunc
// panics if s or f is nil.
func (tw *TimingWheel) ScheduleFunc(s Scheduler, f func()) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleFunc with a nil Scheduler or function")
	}
	if p, ok := s.(Planner); ok {
		return tw.follow(p.Plan(), func(Run) { f() }, reflect.ValueOf(f).Pointer())
	}
	p := &plan{wheel: tw, scheduler: s, f: f, planned: s.Next(tw.today())}
	return p.start(p.run)
}

// plan is a timer that is armed again after each run. It keeps its slot, and so its handle,
// throughout: during a run the slot belongs to no bucket.
type plan struct {
	wheel     *TimingWheel
	scheduler Scheduler
	f         func()

	// Written before the first run, and then by the runs, one after the other.
	planned time.Time
	at      int64 // the tick for which planned was armed; a Reschedule changes that of the slot
	timer   Timer
}

// start arms the first run, if there is one. run is the payload.
func (p *plan) start(run func()) Timer {
	if p.planned.IsZero() {
		return Timer{}
	}
	e := p.wheel.engine
	deadline, now := e.Instant(p.planned)
	if now == clock.Unread && !e.Manual {
		now = e.Read()
	}
	s := e.pick()
	t := s.armLocked(deadline, now, run, arena.Plan)
	p.timer = t // before the lock is free, and so before the first run
	if t.home != nil {
		p.at = p.tick()
	}
	s.unlockArm()
	return t
}

// run is the payload. Whether there is a further run is settled before f starts, so that Stop can
// tell during the run.
func (p *plan) run() {
	p.timer.home.shard.countRun()
	var next time.Time
	defer func() { p.rearm(next) }()
	p.takeRescheduled()
	var off bool
	if next, off = p.ask(); off {
		return
	}
	p.f()
}

// ask asks for the run that follows the one that is about to start. If there is none, or if the
// Scheduler panics, the plan ends unless Reschedule has asked for one more run. For off see settle.
func (p *plan) ask() (next time.Time, off bool) {
	defer func() { off = p.settle(next) }()
	return p.scheduler.Next(p.planned), false
}

// askPast is like ask, but asks for the first run after now among those that follow missed.
func (p *plan) askPast(missed, now time.Time) (next time.Time) {
	defer func() { p.settle(next) }()
	return skip(p.scheduler, missed, now)
}

// takeRescheduled adopts the time to which Reschedule has moved the run that is about to start.
func (p *plan) takeRescheduled() {
	_, w, running := p.running()
	if !running || w.Has(arena.Moved) {
		return
	}
	if !w.Has(arena.Far) && w.Bits() == arena.LowBits(p.at) {
		return // also if the clock has leapt so far that the word says another tick now
	}
	if tick := p.tick(); tick != p.at {
		p.planned = p.dateOf(tick)
	}
}

// running returns the plan's slot while a run is under way. It returns false if the plan or the
// wheel was stopped.
func (p *plan) running() (*arena.Page, arena.Word, bool) {
	s := p.timer.home.shard
	pg := p.timer.home.page.Load()
	if pg == nil || s.closed.Load() {
		return nil, 0, false
	}
	w := pg.Load(p.timer.index)
	return pg, w, w.Gen() == p.timer.gen && w.Kind() == arena.Running
}

// tick returns the tick of the plan's slot, or that of the last arming if the plan was stopped.
func (p *plan) tick() int64 {
	s := p.timer.home.shard
	pg := p.timer.home.page.Load()
	if pg == nil {
		return p.at
	}
	for {
		w := pg.Load(p.timer.index)
		armed := w.Kind() == arena.Staged || w.Kind() == arena.Placed || w.Kind() == arena.Running
		if !armed || w.Gen() != p.timer.gen || s.closed.Load() {
			return p.at
		}
		tick, ok := s.decode(w, s.ticks.Floor(s.now.Load()))
		if ok && pg.Load(p.timer.index) == w { // else the clock may have left the word behind
			return tick
		}
	}
}

func (p *plan) dateOf(tick int64) time.Time {
	s := p.timer.home.shard
	return s.DateOf(s.ticks.Begin(tick))
}

// settle ends the plan if next is the zero time, unless Reschedule has asked for one more run. off
// means that a run that is about to start does not take place: since its claim Stop has ended the
// plan, or Reschedule has moved this run, the last one.
func (p *plan) settle(next time.Time) (off bool) {
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
		if p.timer.home.shard.replace(pg, p.timer.index, w, (w.With(arena.Dead)|arena.Moved)&^arena.Far) {
			return false
		}
	}
}

// rearm arms the next run: at the time that Reschedule has set, or at next, or, if next has passed,
// at the first run after now.
func (p *plan) rearm(next time.Time) {
	defer func() { p.arm(next) }() // also if Next panics
	if next.IsZero() {
		return
	}
	if now := p.wheel.today(); !next.After(now) && p.live() {
		missed := next
		next = time.Time{}
		next = p.askPast(missed, now)
	}
}

// bury gives back the slot of a plan that has ended during its run. Only arm calls it, and each run
// calls arm once.
func (p *plan) bury() {
	s, i := p.timer.home.shard, p.timer.index
	pg := p.timer.home.page.Load()
	if pg == nil || s.closed.Load() {
		return
	}
	if w := pg.Load(i); w.Gen() == p.timer.gen && w.Kind() == arena.Dead {
		cell{s, pg, i}.bury(w)
	}
}

// arm makes the plan pending again, or buries it if it has ended. It is called once for each run.
func (p *plan) arm(next time.Time) {
	s := p.timer.home.shard
	deadline, now := s.Instant(next)
	if now == clock.Unread && !s.Manual {
		now = s.Read() // the run may have taken long
	}
	for {
		pg, w, running := p.running()
		if !running {
			p.bury()
			return
		}
		if w.Has(arena.Moved) {
			next = p.dateOf(p.tick())
			deadline, _ = s.Instant(next)
		}
		if p.again(cell{s, pg, p.timer.index}, w, deadline, now, next) {
			return
		}
	}
}

// live reports whether the Scheduler still decides the next run: the plan was not stopped, and
// Reschedule has not set the next run.
func (p *plan) live() bool {
	_, w, running := p.running()
	return running && !w.Has(arena.Moved)
}

// again makes a running plan pending once more, whose slot is c and whose next run is next. It
// returns false if the word has changed. On a stopped wheel it arms nothing and returns true.
func (p *plan) again(c cell, w arena.Word, deadline, now int64, next time.Time) bool {
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
	p.planned, p.at = next, tick // before the lock is free, and so before the run
	s.inbox.armed++
	s.unlockArm()
	return true
}

// Run is one run of a plan.
//
// Its times come from the clock by which plans are made: the current time with both clocks, or in
// Manual mode the time of the wheel's clock. Planned has a monotonic reading if the time that was
// planned has one.
type Run struct {
	// N counts the runs from 1, up to math.MaxInt. When a [Follower] is asked for the first run, N
	// is 0 and all three times are the time of that call.
	N        int
	Planned  time.Time // when the run was to start, as planned or as moved by Reschedule
	Started  time.Time // never before Planned, apart from a Flush and from steps of the wall clock
	Finished time.Time // zero: the run is about to start
}

// Step is the answer of a [Follower] about a run.
type Step struct {
	// Next is the time of the run that follows, or the zero time if there is none. If Next is not
	// in the future, it is used as it is, and the run starts at once.
	Next time.Time

	// Skip says that the run that is about to start does not take place. Next is armed instead, and
	// that run gets the same number.
	Skip bool

	// Overlap says that Next is armed before the run that is about to start begins, so runs may
	// overlap. The Follower is not asked after such a run.
	Overlap bool
}

// Follower decides how one plan goes on, run by run. It is asked
//
//   - when the plan begins, with a Run whose N is 0: for the first run;
//   - when a run is about to start: whether there is a further run. Stop returns this answer during
//     the run;
//   - when that run has ended by return, panic or runtime.Goexit: for the final time of the further
//     run. It is not asked this time if there is no further run, if the run was skipped or may
//     overlap with the next, or if Stop or Reschedule has already decided.
//
// Follow is called without a lock and never concurrently, so a Follower needs no lock for its
// state. If Follow panics, the plan ends, and a run for which it was asked does not take place.
type Follower interface{ Follow(r Run) Step }

// Planner is a Scheduler that decides by more than the planned time of a run. Plan is called once
// for each plan and returns the Follower that decides. Next is then not called. The wrappers of
// package plan are Planners.
type Planner interface {
	Scheduler
	Plan() Follower
}

// ScheduleRun is like ScheduleFunc, but passes f its run, so that f knows for which time the run
// was planned. Finished is the zero time there.
func (tw *TimingWheel) ScheduleRun(s Scheduler, f func(r Run)) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleRun with a nil Scheduler or function")
	}
	if p, ok := s.(Planner); ok {
		return tw.follow(p.Plan(), f, reflect.ValueOf(f).Pointer())
	}
	return tw.follow(&plain{scheduler: s}, f, reflect.ValueOf(f).Pointer())
}

// ScheduleRun calls [TimingWheel.ScheduleRun] on [Default].
func ScheduleRun(s Scheduler, f func(r Run)) Timer { return Default().ScheduleRun(s, f) }

// plain is the Follower of a Scheduler that is no Planner: missed runs are skipped.
type plain struct {
	scheduler Scheduler
	next      time.Time
}

func (p *plain) Follow(r Run) Step {
	switch {
	case r.N == 0:
		p.next = p.scheduler.Next(r.Started)
	case r.Finished.IsZero():
		p.next = p.scheduler.Next(r.Planned)
	case !p.next.After(r.Finished):
		p.next = skip(p.scheduler, p.next, r.Finished)
	}
	return Step{Next: p.next}
}

// followed is a plan with a Follower. It is a type of its own, so that plans without one stay
// small.
type followed struct {
	plan
	follower Follower
	f        func(Run)
	callee   uintptr // the code of the user's function, which is f or called by f
	n        int     // runs that have begun
}

func (tw *TimingWheel) follow(follower Follower, f func(Run), callee uintptr) Timer {
	if follower == nil {
		panic("timingwheel: a Planner whose Plan is a nil Follower")
	}
	now := tw.today()
	first := follower.Follow(Run{Planned: now, Started: now, Finished: now}).Next
	p := &followed{plan: plan{wheel: tw, planned: first}, follower: follower, f: f, callee: callee}
	return p.start(p.run)
}

// run is the payload.
func (p *followed) run() {
	p.timer.home.shard.countRun()
	r, step, off := p.begin()
	switch {
	case off || step.Skip:
		p.arm(step.Next)
	case step.Overlap:
		p.n = r.N
		p.arm(step.Next) // from here on the next run may own all fields but f
		p.f(r)
	default:
		p.n = r.N
		defer p.finish(r, step.Next)
		p.f(r)
	}
}

// begin asks about the run that is about to start.
func (p *followed) begin() (r Run, step Step, off bool) {
	asked := false
	defer func() {
		if !asked {
			p.arm(time.Time{}) // Follow has unwound; Reschedule may have set one more run
		}
	}()
	p.takeRescheduled()
	r = Run{N: max(p.n+1, p.n), Planned: p.planned, Started: p.wheel.today()}
	step, off = p.ask(r)
	asked = true
	return r, step, off
}

// ask asks about the run. If there is no further run, the plan ends unless Reschedule has asked for
// one more. For off see settle.
func (p *followed) ask(r Run) (step Step, off bool) {
	defer func() { off = p.settle(step.Next) }()
	return p.follower.Follow(r), false
}

// finish arms the run that follows r: at the time that Reschedule has set, or else at the
// Follower's.
func (p *followed) finish(r Run, next time.Time) {
	defer func() { p.arm(next) }() // also if Follow panics
	if next.IsZero() || !p.live() {
		return
	}
	next = time.Time{}
	r.Finished = p.wheel.today()
	step, _ := p.ask(r)
	next = step.Next
}
