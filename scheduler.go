package timingwheel

import (
	"fmt"
	"reflect"
	"time"
)

// Scheduler says when a plan runs: Next returns the run that follows t, or the zero time where there is
// none. Any Schedule of github.com/robfig/cron is a Scheduler.
//
// A plan calls Next without a lock and never concurrently: first with the time of [TimingWheel.ScheduleFunc],
// then, before each run, with the time for which that run was planned. If the result is no longer in
// the future when the run has returned, Next is called once more with that time, so that missed runs
// are skipped and not replayed. Package plan has Schedulers that do other things, and may be put around any.
type Scheduler interface{ Next(time.Time) time.Time }

// Skipper is a Scheduler that knows its way past missed runs. Skip returns the first run after now of those that
// follow missed, or the zero time where there is none; a plan calls it, with a now that is not before missed,
// where it would otherwise call Next with now. So runs keep a phase that Next alone would lose. [Every] is one.
type Skipper interface {
	Scheduler
	Skip(missed, now time.Time) time.Time
}

// Every returns a Scheduler that runs at a fixed rate of one run for each d. It keeps its phase: runs
// stay at multiples of d after the first, also when some were missed. It panics where d is not positive.
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
	return now.Add(d - now.Sub(missed)%d) // a number of d after missed could overflow
}

// skip asks s for the first run after now.
func skip(s Scheduler, missed, now time.Time) time.Time {
	if k, ok := s.(Skipper); ok {
		return k.Skip(missed, now)
	}
	return s.Next(now)
}

// ScheduleFunc runs f at the times that s plans and returns one handle for the whole plan. It returns
// the zero Timer, and never runs f, where s plans no run or the wheel is stopped.
//
// Runs never overlap: the next one is armed when f has returned, panicked or called runtime.Goexit.
// (A [Planner] may decide otherwise.) Stop during a run returns true if and only if there would
// have been a further one. Reschedule moves the next run, and the plan continues from there.
// ScheduleFunc panics if s or f is nil.
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

// plan is a timer that is armed again after each run. It keeps its slot, and so its handle, throughout:
// during a run the slot belongs to no bucket.
type plan struct {
	wheel     *TimingWheel
	scheduler Scheduler
	f         func()

	// Written before the first run and by runs, which follow each other.
	planned     time.Time
	at          int64  // the deadline that planned was armed as; Reschedule changes the node's
	undisturbed uint64 // disturbed of the shard when the run was about to start
	shard       *shard
	index       uint32
	gen         uint32
}

// start arms the first run, if there is one. run is the payload.
func (p *plan) start(run func()) Timer {
	if p.planned.IsZero() {
		return Timer{}
	}
	e := p.wheel.engine
	deadline, _ := e.instant(p.planned)
	sh := e.pick()
	if !sh.manual {
		sh.observe(sh.clock())
	}
	t := sh.arm(deadline, run)
	if t.shard != nil {
		n := sh.nodes.must(t.index)
		p.at = n.deadline
		n.deadline |= planBit
		p.shard, p.index, p.gen = &sh.shard, t.index, t.gen
	}
	sh.mu.Unlock()
	return t
}

// run is the payload. Whether there is a further run is settled before f starts, so that Stop can tell
// during the run.
func (p *plan) run() {
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

// askPast asks for the first run after now of those that follow missed. Else it is as ask.
func (p *plan) askPast(missed, now time.Time) (next time.Time) {
	defer func() { p.settle(next) }()
	return skip(p.scheduler, missed, now)
}

// takeRescheduled adopts the time to which Reschedule has moved the run that is about to start.
func (p *plan) takeRescheduled() {
	s := p.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	n := p.node()
	p.undisturbed = s.disturbed.Load()
	switch {
	case n == nil:
		p.undisturbed-- // settle has to look
	case n.pos == posNone && n.due() != p.at:
		p.planned = p.shard.dateOf(n.due())
	}
}

// settle frees the plan's slot if next is the zero time, unless Reschedule has asked for one more
// run. A run that is about to start is off if Stop or Reschedule has come after its claim. Both
// have then returned true: Stop because the run does not take place, Reschedule because it takes
// place later.
//
// If there is a further run, only Timer.Stop or the Stop of the wheel can put this one off. If
// neither has come to any plan of the shard since takeRescheduled, settle does not take the lock,
// which would make a run 12% more expensive.
func (p *plan) settle(next time.Time) (off bool) {
	s := p.shard
	if !next.IsZero() && s.disturbed.Load() == p.undisturbed {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := p.node()
	switch {
	case n == nil:
		return true
	case !next.IsZero():
		return false
	case n.pos == posRerun:
		return true
	}
	s.release(p.index, n)
	return false
}

// node returns the plan's node, nil where the plan or the wheel was stopped. mu is held.
func (p *plan) node() *node {
	n := p.shard.nodes.at(p.index)
	if n == nil || n.gen != p.gen {
		return nil
	}
	return n
}

// rearm arms the next run at the time that Reschedule has set. Without one it arms the run at next
// or, if next has passed, the first run after now.
func (p *plan) rearm(next time.Time) {
	defer func() { p.arm(next) }() // also where Next panics
	if next.IsZero() {
		return
	}
	if now := p.wheel.today(); !next.After(now) && p.live() {
		missed := next
		next = time.Time{}
		next = p.askPast(missed, now)
	}
}

// arm makes the plan pending again, unless it has ended.
func (p *plan) arm(next time.Time) {
	s := p.shard
	deadline, now := s.instant(next)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := p.node()
	if n == nil {
		return
	}
	if now == 0 && s.pending == 0 && !s.manual {
		now = s.clock() // the run may have taken long
	}
	s.observe(now)
	if n.pos == posRerun {
		deadline = n.due()
		next = p.shard.dateOf(deadline)
	}
	p.planned, p.at = next, deadline
	n.deadline = deadline | planBit
	s.again(p.index, n)
}

// live reports whether the next run is still the scheduler's to plan.
func (p *plan) live() bool {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	n := p.node()
	return n != nil && n.pos != posRerun
}

// again makes a plan pending once more.
func (s *shard) again(i uint32, n *node) {
	s.pending++
	s.counters.armed++
	if s.manual {
		s.stamp(i)
	}
	s.enter(i, n, n.due())
	s.checkLocked()
}
