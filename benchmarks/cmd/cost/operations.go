package main

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// population is a set of timers with deadlines between 10 and 70 minutes ahead, each with a closure
// of its own. The deadlines are so far ahead that no timer fires even under an instruction counter.
type population struct {
	tw     *timingwheel.TimingWheel
	timers []timingwheel.Timer
	rng    uint64
	empty  func()
	born   time.Time

	sum     int // sum and elapsed keep the compiler from removing the measured code
	elapsed time.Duration
}

func newPopulation(tw *timingwheel.TimingWheel, n int) *population {
	return &population{tw: tw, timers: make([]timingwheel.Timer, 0, n), rng: 1, empty: func() {}, born: time.Now()}
}

// operations are done on the population, in this order.
var operations = []struct {
	name string
	do   func(p *population)
}{
	{"draw", (*population).draw},
	{"clock", (*population).clock},
	{"armstop", (*population).armStop},
	{"churn", (*population).churn},
	{"later", (*population).rescheduleLater},
	{"earlier", (*population).rescheduleEarlier},
}

// names returns the names of all operations and scenarios.
func names() (names []string) {
	for _, op := range operations {
		names = append(names, op.name)
	}
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// Each op function is a call that is not inlined, so that a profile shows it together with its
// callees. Its caller draws the timer.

//go:noinline
func opAdd(tw *timingwheel.TimingWheel, d time.Duration, f func()) timingwheel.Timer {
	return tw.AfterFunc(d, f)
}

//go:noinline
func opAddLatest(tw *timingwheel.TimingWheel, f func()) timingwheel.Timer {
	return tw.AfterFunc(30*time.Second, f)
}

//go:noinline
func opAddAgain(tw *timingwheel.TimingWheel, d time.Duration, f func()) timingwheel.Timer {
	return tw.AfterFunc(d, f)
}

//go:noinline
func opStopLatest(t timingwheel.Timer) bool { return t.Stop() }

//go:noinline
func opStopRandom(t timingwheel.Timer) bool { return t.Stop() }

//go:noinline
func opRescheduleLater(t timingwheel.Timer) bool { return t.Reschedule(2 * time.Hour) }

//go:noinline
func opRescheduleEarlier(t timingwheel.Timer) bool { return t.Reschedule(50 * time.Second) }

//go:noinline
func opClock(base time.Time) time.Duration { return time.Since(base) }

// draw only draws a random number. Every operation on a random timer contains its time.
func (p *population) draw() { p.sum += p.below(cap(p.timers)) }

func (p *population) clock() { p.elapsed = opClock(p.born) }

func (p *population) add() {
	p.timers = append(p.timers, opAdd(p.tw, p.far(), p.closure()))
}

func (p *population) armStop() { mustBePending(opStopLatest(opAddLatest(p.tw, p.empty))) }

func (p *population) churn() {
	i := p.below(len(p.timers))
	mustBePending(opStopRandom(p.timers[i]))
	p.timers[i] = opAddAgain(p.tw, p.far(), p.empty)
}

func (p *population) rescheduleLater() {
	mustBePending(opRescheduleLater(p.timers[p.below(len(p.timers))]))
}

func (p *population) rescheduleEarlier() {
	mustBePending(opRescheduleEarlier(p.timers[p.below(len(p.timers))]))
}

// mustBePending panics if a timer was not pending: the measured path was then another one.
func mustBePending(pending bool) {
	if !pending {
		panic("a timer was not pending: the preceding operations took too long")
	}
}

func (p *population) closure() func() {
	i := len(p.timers)
	return func() { p.sum += i }
}

// far returns a random delay for a timer of the population.
func (p *population) far() time.Duration {
	return 10*time.Minute + time.Duration(p.below(60*60*1000))*time.Millisecond
}

// below returns a random number from 0 to n-1, by an xorshift generator.
func (p *population) below(n int) int {
	v := p.rng
	v ^= v << 13
	v ^= v >> 7
	v ^= v << 17
	p.rng = v
	return int((v >> 32) * uint64(n) >> 32)
}
