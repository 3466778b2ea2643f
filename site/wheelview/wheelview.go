// Package wheelview shows a small timing wheel at work. The wheel is a real one in Manual mode,
// with three levels of eight slots and a tick of one second. The site runs this package in the
// browser.
//
// The view asks the wheel where its timers are: a survey of it has the number
// of timers in each slot. A timer can only be in one slot of each level, which its deadline
// determines, so the numbers tell the place of each timer.
package wheelview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// Geometry of the wheel.
const (
	Levels = 3
	Slots  = 8
	bits   = 3 // log2 of Slots
)

// MaxTimers is the largest number of pending timers.
const MaxTimers = 40

// epoch is tick 0.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Wheel is a timing wheel and what is known of its timers. Its methods must not be called at the
// same time.
type Wheel struct {
	tw     *timingwheel.TimingWheel
	tick   int
	last   int // number of the last timer
	timers []*timer
	log    []string
	stops  int // moments at which buckets expired
}

type timer struct {
	id       int
	handle   timingwheel.Timer
	deadline int
	place    place
	beat     int // if positive, the timer is rescheduled by so many ticks when half of them are over
}

// place is a slot of a level. A timer that has just been armed is at no place.
type place struct{ level, slot int }

var nowhere = place{level: -1}

// New returns a wheel without timers at tick 0.
func New() *Wheel {
	tw, err := timingwheel.New(timingwheel.Options{
		Manual: true, Start: epoch, Tick: time.Second, WheelSize: Slots, Levels: Levels,
	})
	if err != nil {
		panic(err) // the options are constants
	}
	return &Wheel{tw: tw}
}

// Arm arms a timer that runs after so many ticks, at least 1, and returns its number. It returns 0
// if MaxTimers are pending.
func (w *Wheel) Arm(delay int) int {
	if len(w.timers) >= MaxTimers {
		w.note("At most %d timers are shown.", MaxTimers)
		return 0
	}
	w.last++
	t := &timer{id: w.last, deadline: w.tick + max(delay, 1), place: nowhere}
	t.handle = w.tw.AfterFunc(ticks(max(delay, 1)), func() { w.fire(t) })
	w.timers = append(w.timers, t)
	w.locate()
	w.note("Timer %d is armed for tick %d: level %d, slot %d.", t.id, t.deadline, t.place.level, t.place.slot)
	return t.id
}

// Stop stops a timer, and reports whether a timer with this number was pending.
func (w *Wheel) Stop(id int) bool {
	t := w.find(id)
	if t == nil || !t.handle.Stop() {
		return false
	}
	w.remove(t)
	w.note("Timer %d is stopped.", id)
	return true
}

// Reschedule moves the deadline of a timer to so many ticks from now, at least 1. It reports
// whether a timer with this number was pending.
func (w *Wheel) Reschedule(id, delay int) bool {
	t := w.find(id)
	if t == nil || !t.handle.Reschedule(ticks(max(delay, 1))) {
		return false
	}
	before := t.place
	t.deadline = w.tick + max(delay, 1)
	w.locate()
	if t.place == before {
		w.note("Timer %d is rescheduled to tick %d. It stays where it is until its bucket expires.", id, t.deadline)
	} else {
		w.note("Timer %d is rescheduled to tick %d and moves to level %d, slot %d.", id, t.deadline, t.place.level, t.place.slot)
	}
	return true
}

// Step advances the clock by so many ticks, one after the other.
func (w *Wheel) Step(n int) {
	for range n {
		w.advance(w.tick + 1)
	}
}

// Skip advances the clock to the next tick at which a bucket expires. It reports whether a timer
// was pending.
func (w *Wheel) Skip() bool {
	at, ok := w.tw.Next()
	if ok {
		w.advance(max(int(at.Sub(epoch)/time.Second), w.tick+1))
	}
	return ok
}

// advance moves the clock to a tick and notes what the wheel did.
func (w *Wheel) advance(tick int) {
	wakeups := w.tw.Stats().Wakeups
	w.tick = tick
	before := make([]place, len(w.timers))
	all := slices.Clone(w.timers)
	for i, t := range all {
		before[i] = t.place
	}
	w.tw.Advance(epoch.Add(ticks(tick)))
	w.locate()
	moved := false
	for i, t := range all {
		if !slices.Contains(w.timers, t) {
			moved = true
			continue
		}
		if t.place != before[i] {
			moved = true
			w.note("Timer %d moves from level %d to level %d, slot %d.", t.id, before[i].level, t.place.level, t.place.slot)
		}
	}
	if moved || w.tw.Stats().Wakeups > wakeups {
		w.stops++
	}
	for _, t := range slices.Clone(w.timers) {
		if t.beat > 0 && t.deadline-w.tick <= t.beat/2 {
			w.Reschedule(t.id, t.beat)
		}
	}
}

// fire is the callback of a timer.
func (w *Wheel) fire(t *timer) {
	w.remove(t)
	if late := w.tick - t.deadline; late > 0 {
		w.note("Timer %d runs at tick %d, %d after its deadline.", t.id, w.tick, late)
		return
	}
	w.note("Timer %d runs at tick %d.", t.id, w.tick)
}

// Reset stops all timers and moves the clock to tick 0 of a new wheel.
func (w *Wheel) Reset() {
	w.tw.Stop()
	*w = *New()
}

// Presets are the names of the examples that Preset accepts.
var Presets = []string{"cascade", "rounds", "heartbeat", "crowd"}

// Preset begins an example. It reports whether there is one with this name.
func (w *Wheel) Preset(name string) bool {
	if !slices.Contains(Presets, name) {
		return false
	}
	w.Reset()
	switch name {
	case "cascade": // the example of the package's documentation
		w.Step(5)
		w.Arm(213 - 5)
	case "rounds":
		w.Step(5)
		w.Arm(213 - 5)
		w.Arm(1237 - 5)
	case "heartbeat":
		w.find(w.Arm(12)).beat = 12
		w.Arm(12)
	case "crowd":
		for i := range 24 {
			w.Arm(1 + i*i%97 + i)
		}
	}
	return true
}

func (w *Wheel) find(id int) *timer {
	for _, t := range w.timers {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (w *Wheel) remove(t *timer) {
	w.timers = slices.DeleteFunc(w.timers, func(other *timer) bool { return other == t })
}

const keptLines = 200

func (w *Wheel) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.tick)+fmt.Sprintf(format, args...))
	if len(w.log) > keptLines {
		w.log = slices.Delete(w.log, 0, len(w.log)-keptLines)
	}
}

// counts are the numbers of timers by level and slot.
type counts [Levels][Slots]int

// read asks the wheel for the numbers of its timers.
func (w *Wheel) read() (n counts, hands [Levels]int) {
	for level, l := range survey.Take(w.tw).Levels {
		hands[level] = l.Hand
		for i, timers := range l.Cells {
			n[level][(l.Hand+i)%Slots] += timers
		}
	}
	return n, hands
}

// locate finds the place of each timer from the numbers of timers in the slots. A timer stays where
// it was if the numbers allow that. Otherwise it is at the finest level that they allow.
func (w *Wheel) locate() {
	left, _ := w.read()
	if !locate(w.timers, &left) {
		panic(fmt.Sprintf("wheelview: the places of %d timers do not fit to the numbers %v", len(w.timers), left))
	}
}

func locate(timers []*timer, left *counts) bool {
	if len(timers) == 0 {
		return *left == counts{}
	}
	t := timers[0]
	was := t.place
	for _, p := range t.candidates() {
		if left[p.level][p.slot] == 0 {
			continue
		}
		left[p.level][p.slot]--
		t.place = p
		if locate(timers[1:], left) {
			return true
		}
		left[p.level][p.slot]++
	}
	t.place = was
	return false
}

// candidates returns the places where a timer may be, the likeliest first.
func (t *timer) candidates() (all []place) {
	if t.place != nowhere {
		all = append(all, t.place)
	}
	for level := range Levels {
		if p := (place{level, t.deadline >> (level * bits) % Slots}); p != t.place {
			all = append(all, p)
		}
	}
	return all
}

// View is what the page draws.
type View struct {
	Tick   int      `json:"tick"`
	Levels []Level  `json:"levels"`
	Timers []Timer  `json:"timers"`
	Next   int      `json:"next"` // the tick at which the next bucket expires, or -1
	Stops  int      `json:"stops"`
	Log    []string `json:"log"`
}

// Level is a ring of slots.
type Level struct {
	Interval int     `json:"interval"` // ticks of a slot
	Hand     int     `json:"hand"`     // the slot of the current tick
	Slots    [][]int `json:"slots"`    // numbers of the timers in each slot
}

// Timer is a pending timer.
type Timer struct {
	ID       int `json:"id"`
	Deadline int `json:"deadline"`
	Level    int `json:"level"`
	Slot     int `json:"slot"`
	Rounds   int `json:"rounds"` // whole turns of the last level that the timer still waits
}

// View returns the state of the wheel.
func (w *Wheel) View() View {
	_, hands := w.read()
	v := View{Tick: w.tick, Next: -1, Stops: w.stops, Log: append([]string{}, w.log...), Timers: []Timer{}}
	for level := range Levels {
		slots := make([][]int, Slots)
		for i := range slots {
			slots[i] = []int{}
		}
		v.Levels = append(v.Levels, Level{Interval: 1 << (level * bits), Hand: hands[level], Slots: slots})
	}
	for _, t := range w.timers {
		v.Levels[t.place.level].Slots[t.place.slot] = append(v.Levels[t.place.level].Slots[t.place.slot], t.id)
		shown := Timer{ID: t.id, Deadline: t.deadline, Level: t.place.level, Slot: t.place.slot}
		if t.place.level == Levels-1 {
			const shift = (Levels - 1) * bits
			shown.Rounds = (t.deadline>>shift - w.tick>>shift) / Slots
		}
		v.Timers = append(v.Timers, shown)
	}
	slices.SortFunc(v.Timers, func(a, b Timer) int {
		return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.ID, b.ID))
	})
	if at, ok := w.tw.Next(); ok {
		v.Next = int(at.Sub(epoch) / time.Second)
	}
	return v
}

func ticks(n int) time.Duration { return time.Duration(n) * time.Second }
