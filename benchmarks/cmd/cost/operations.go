package main

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// population is timers with deadlines between ten minutes and seventy ahead, each with a closure of its own: so far
// that none fires under a counter of instructions.
type population struct {
	tw     *timingwheel.TimingWheel
	timers []timingwheel.Timer
	rng    uint64
	none   func()
	born   time.Time

	sum     int // these keep the compiler from dropping what is measured
	elapsed time.Duration
}

func newPopulation(tw *timingwheel.TimingWheel, n int) *population {
	return &population{tw: tw, timers: make([]timingwheel.Timer, 0, n), rng: 1, none: func() {}, born: time.Now()}
}

// operations are what is done to the population, by name.
var operations = []struct {
	name string
	do   func(p *population)
}{
	{"nothing", (*population).nothing},
	{"clock", (*population).clock},
	{"latest", (*population).addStop},
	{"churn", (*population).churn},
	{"later", (*population).postpone},
	{"earlier", (*population).hasten},
}

// names are those of all operations and rounds.
func names() (names []string) {
	for _, op := range operations {
		names = append(names, op.name)
	}
	for _, r := range rounds {
		names = append(names, r.name)
	}
	return names
}

// Each operation is a call that is not inlined, so that a profile shows it with all that it calls. The functions
// around them draw the victim.

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

// nothing is what the others have in common: drawing a victim.
func (p *population) nothing() { p.sum += p.below(cap(p.timers)) }

func (p *population) clock() { p.elapsed = opClock(p.born) }

func (p *population) add() {
	p.timers = append(p.timers, opAdd(p.tw, p.far(), p.closure()))
}

func (p *population) addStop() { must(opStopLatest(opAddLatest(p.tw, p.none))) }

func (p *population) churn() {
	i := p.below(len(p.timers))
	must(opStopRandom(p.timers[i]))
	p.timers[i] = opAddAgain(p.tw, p.far(), p.none)
}

func (p *population) postpone() { must(opRescheduleLater(p.timers[p.below(len(p.timers))])) }

func (p *population) hasten() { must(opRescheduleEarlier(p.timers[p.below(len(p.timers))])) }

// must panics where a timer was not pending: then something else was measured.
func must(pending bool) {
	if !pending {
		panic("a timer was not pending: the operations before took too long")
	}
}

func (p *population) closure() func() {
	i := len(p.timers)
	return func() { p.sum += i }
}

// far is a deadline of the population.
func (p *population) far() time.Duration {
	return 10*time.Minute + time.Duration(p.below(60*60*1000))*time.Millisecond
}

// below is a random number from 0 to n-1, by an xorshift generator.
func (p *population) below(n int) int {
	v := p.rng
	v ^= v << 13
	v ^= v >> 7
	v ^= v << 17
	p.rng = v
	return int((v >> 32) * uint64(n) >> 32)
}
