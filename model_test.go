package timingwheel

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// The model: a wheel in Manual mode beside a reference that knows nothing of levels, slots or
// chunks. The reference is a plain list of pending timers with the tick at which each is due,
// sorted when the clock moves. What a step does is decided by choices: a seeded generator
// (TestModel…) or the bytes of a fuzz input (FuzzEngine, FuzzTimeouts). After every step, and in
// every callback, the wheel is compared with the reference and walked by verify.

// modelConfig is a wheel to be modelled.
type modelConfig struct {
	tick         time.Duration
	size, levels int
	shards       int
	origin       int64 // the clock's first reading
	queued       bool  // the model is the executor and keeps calls until a step runs them; else Inline
}

func (c modelConfig) options() Options {
	return Options{
		Tick: c.tick, WheelSize: c.size, Levels: c.levels, Shards: c.shards, Manual: true, Start: modelStart,
	}
}

// span is what the wheels cover before round counts begin, in ticks.
func (c modelConfig) span() int64 {
	n := int64(1)
	for range c.levels {
		n = satMul(n, int64(c.size))
	}
	return n
}

// subject is the wheel under test behind either of its two faces. Payloads and callbacks are ids.
type subject struct {
	add     func(shard int, d time.Duration, id int) Timer
	addAt   func(shard int, at time.Time, id int) Timer
	advance func(now time.Time) int
	next    func() (time.Time, bool)
	flush   func() int   // nil: Timeouts have none
	takeAll func() []int // RemoveAll; nil: a TimingWheel has none
	len     func() int
	stats   func() Stats
	stop    func()
	now     func() time.Time
	verify  func() error

	occupancy       func(step, slots int) Occupancy
	verifyOccupancy func(Occupancy) error
}

// modelTimer is what the reference knows of a timer.
type modelTimer struct {
	id, shard int
	handle    Timer
	due       int64 // the deadline, a reading of the clock
	tick      int64 // at which it is due: rounded up, or the clock's own for what was due when armed
	seq       int   // order of arming
	at        int   // index in pending; -1 when it is not
	collected bool  // an Advance or a Flush has taken it; it runs before that returns
}

type model struct {
	testing.TB
	cfg     modelConfig
	pick    choices
	sut     subject
	calls   []func() // kept calls of the executor
	eager   int      // calls that it made at once
	unwound bool     // by a panic, so that the executor may lack calls until the next Advance
	now     int64
	all     []*modelTimer // by id, the dead as well
	pending []*modelTimer
	seq     int
	due     [][]dueEntry // collected timers of each shard, in order
	loose   bool         // a Flush has collected: its order is not promised
	ran     []int        // how many timers ran, for each Advance or Flush under way
	stopped bool
	quiet   bool // callbacks do nothing
	step    int
	want    Stats

	unchecked int // callbacks since the last check
}

type dueEntry struct {
	e   *modelTimer
	seq int // differs from e.seq once e was armed again
}

// failf ends the test and says how to repeat it.
func (m *model) failf(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\nstep %d, clock %d, %+v, choices %v", fmt.Sprintf(format, args...), m.step, m.now, m.cfg, m.pick)
}

// tickOf is the clock in ticks.
func (m *model) tickOf() int64 { return m.now / int64(m.cfg.tick) }

func (m *model) time(reading int64) time.Time {
	return modelStart.Add(time.Duration(reading - m.cfg.origin))
}

func (m *model) reading(t time.Time) int64 { return m.cfg.origin + int64(t.Sub(modelStart)) }

// armed notes that e is due at the reading, as of now.
func (m *model) armed(e *modelTimer, due int64) {
	tick := int64(m.cfg.tick)
	e.due, e.tick = due, m.tickOf()
	if due > m.now {
		e.tick = due / tick
		if due%tick != 0 {
			e.tick++
		}
	}
	m.seq++
	e.seq = m.seq
	e.collected = false
}

// delayed is the reading d from now.
func (m *model) delayed(d time.Duration) int64 { return satAdd(m.now, max(int64(d), 0)) }

func (m *model) addTimer(shard int, due int64, add func(id int) Timer) {
	e := &modelTimer{id: len(m.all), shard: shard, at: -1}
	m.all = append(m.all, e)
	e.handle = add(e.id)
	if m.stopped {
		if e.handle != (Timer{}) {
			m.failf("a stopped wheel gave a timer")
		}
		return
	}
	m.armed(e, due)
	m.want.Armed++
	e.at = len(m.pending)
	m.pending = append(m.pending, e)
}

// forget takes e off the pending ones.
func (m *model) forget(e *modelTimer) {
	last := m.pending[len(m.pending)-1]
	m.pending[e.at], last.at = last, e.at
	m.pending = m.pending[:len(m.pending)-1]
	e.at, e.collected = -1, false
}

func (m *model) stopTimer(e *modelTimer) {
	pending := e.at >= 0
	if got := e.handle.Stop(); got != pending {
		m.failf("Stop of timer %d: %v", e.id, got)
	}
	if pending {
		m.forget(e)
		m.want.Stopped++
	}
	if e.handle.Stop() {
		m.failf("a second Stop of timer %d: true", e.id)
	}
}

// reschedule moves e to a reading that is now due. The function move calls Reschedule or
// RescheduleAt.
func (m *model) reschedule(e *modelTimer, due int64, move func(Timer) bool) {
	if got := move(e.handle); got != (e.at >= 0) {
		m.failf("Reschedule of timer %d: %v", e.id, got)
	}
	if e.at >= 0 {
		m.armed(e, due)
		m.want.Postponed++
	}
}

func (m *model) checkDeadline(e *modelTimer) {
	at, ok := e.handle.Deadline()
	switch {
	case ok != (e.at >= 0):
		m.failf("Deadline of timer %d: %v", e.id, ok)
	case ok && !at.Equal(m.time(satMul(e.tick, int64(m.cfg.tick)))):
		m.failf("Deadline of timer %d: %v, want that of tick %d", e.id, at, e.tick)
	}
}

// collect marks what an Advance or a Flush runs, in order, and returns how many are new.
func (m *model) collect(which func(e *modelTimer) bool) int {
	n := 0
	for _, e := range m.pending {
		if !e.collected && which(e) {
			e.collected = true
			m.due[e.shard] = append(m.due[e.shard], dueEntry{e, e.seq})
			n++
		}
	}
	for _, l := range m.due {
		slices.SortFunc(l, func(a, b dueEntry) int {
			if a.e.tick != b.e.tick {
				return int(max(-1, min(1, a.e.tick-b.e.tick)))
			}
			return a.seq - b.seq
		})
	}
	return n
}

// head is the collected timer of a shard that has to run next, nil if there is none.
func (m *model) head(shard int) *modelTimer {
	l := m.due[shard]
	for len(l) > 0 && (!l[0].e.collected || l[0].e.seq != l[0].seq) {
		l = l[1:]
	}
	m.due[shard] = l
	if len(l) == 0 {
		return nil
	}
	return l[0].e
}

// outstanding reports whether anything that was collected has not run.
func (m *model) outstanding() bool {
	for k := range m.due {
		if m.head(k) != nil {
			return true
		}
	}
	return false
}

// fired is told of what the wheel runs, in one batch.
func (m *model) fired(ids []int) {
	if len(ids) == 0 || len(ids) > perCallMax {
		m.failf("a batch of %d", len(ids))
	}
	for _, id := range ids {
		e := m.all[id]
		if e.at < 0 || !e.collected {
			m.failf("timer %d runs: pending %v, collected %v, its tick %d", id, e.at >= 0, e.collected, e.tick)
		}
		if !m.loose {
			m.checkOrder(e)
		}
		m.forget(e)
		m.want.Fired++
	}
	if n := len(m.ran); n > 0 {
		m.ran[n-1] += len(ids)
	}
	m.want.Running++
	m.checkSometimes()
}

func (m *model) checkOrder(e *modelTimer) {
	if h := m.head(e.shard); h != e {
		m.failf("timer %d (tick %d) runs before %d (tick %d)", e.id, e.tick, h.id, h.tick)
	}
	if m.cfg.queued {
		return // the calls are for one shard each, in the order of the queue
	}
	for k := range m.due {
		if h := m.head(k); h != nil && h.tick < e.tick {
			m.failf("timer %d (tick %d) runs before %d (tick %d) of another shard", e.id, e.tick, h.id, h.tick)
		}
	}
}

// run calls f, an Advance or a Flush, and returns its result and how many timers it has run itself;
// ok is false where a callback has panicked.
func (m *model) run(f func() int) (got, ran int, ok bool) {
	m.ran = append(m.ran, 0)
	depth := len(m.ran)
	running := m.want.Running
	defer func() {
		if depth == 1 && recover() != nil { // inside a callback the panic goes on to the outermost call
			m.want.Running = running
		}
		ran = m.ran[depth-1]
		m.ran = m.ran[:depth-1]
	}()
	got = f()
	return got, ran, true
}

// advance moves the clock and checks that exactly what is due runs: nothing later, nothing less.
func (m *model) advance(to int64) {
	if m.stopped {
		if n := m.sut.advance(m.time(to)); n != 0 {
			m.failf("Advance of a stopped wheel: %d", n)
		}
		return
	}
	m.now = max(m.now, min(to, math.MaxInt64-1))
	if m.loose && !m.outstanding() {
		m.loose = false
	}
	tick := m.tickOf()
	collected := m.collect(func(e *modelTimer) bool { return e.tick <= tick })
	eager, again := m.eager, m.unwound
	m.unwound = true // also where a panic passes through here, to whoever has run the callback that called this
	got, ran, ok := m.run(func() int { return m.sut.advance(m.time(to)) })
	m.unwound = !ok
	switch {
	case !ok || m.cfg.queued && (again || m.eager > eager): // handed over twice, or changed by callbacks meanwhile
	case m.cfg.queued && got != collected || !m.cfg.queued && got != ran:
		m.failf("Advance: %d; it had %d to collect and ran %d", got, collected, ran)
	case !m.cfg.queued && m.outstanding():
		m.failf("an Advance to %d has left what was due", to)
	}
}

func (m *model) flush() {
	want := len(m.pending)
	m.loose = true
	m.collect(func(*modelTimer) bool { return true })
	again := m.unwound
	m.unwound = true // as in advance
	got, _, ok := m.run(m.sut.flush)
	m.unwound = !ok || again && len(m.ran) > 0 // the call around this one may unwind yet
	if ok && got != want {
		m.failf("Flush: %d, want %d", got, want)
	}
	if ok && !m.cfg.queued && m.outstanding() {
		m.failf("a Flush has left something")
	}
}

func (m *model) takeAll() {
	var want []int
	for len(m.pending) > 0 {
		want = append(want, m.pending[0].id)
		m.forget(m.pending[0])
	}
	m.want.Stopped += uint64(len(want))
	got := m.sut.takeAll()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.failf("RemoveAll: %v, want %v", got, want)
	}
}

func (m *model) stopWheel() {
	m.sut.stop()
	m.stopped = true
	for len(m.pending) > 0 {
		m.forget(m.pending[0])
	}
}
