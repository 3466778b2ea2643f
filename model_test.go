package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// The model compares a wheel in Manual mode with a reference without levels, slots and chunks. The
// reference is a list of pending timers with their ticks, sorted when the clock moves. Choices
// decide each step: from a seeded generator (TestModel…) or the bytes of a fuzz input (FuzzEngine,
// FuzzTimeouts). After every step, and in every callback, the wheel is compared with the reference
// and verified.

// modelConfig is the configuration of a wheel under test.
type modelConfig struct {
	tick         time.Duration
	size, levels int
	shards       int
	origin       int64 // the clock's first reading
	queued       bool  // the model is the executor and queues calls; else Inline
}

func (c modelConfig) options() Options {
	return Options{
		Tick: c.tick, WheelSize: c.size, Levels: c.levels, Shards: c.shards, Manual: true, Start: modelStart,
	}
}

// span returns the number of ticks that the levels cover without rounds.
func (c modelConfig) span() int64 {
	n := int64(1)
	for range c.levels {
		n = satMul(n, int64(c.size))
	}
	return n
}

// subject is the wheel under test, a TimingWheel or a Timeouts. Payloads and callbacks are ids.
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

	initFunc func(ft *FuncTimer, f func()) // nil: Timeouts have no FuncTimers
	sendTo   func(shard int)               // chooses the shard on which a FuncTimer is armed

	verify func() error

	survey       func(step int) survey.Wheel
	verifySurvey func(survey.Wheel) error
}

// modelTimer is a timer of the reference.
type modelTimer struct {
	id, shard int
	handle    Timer
	due       int64      // the deadline, a reading of the clock
	tick      int64      // of the deadline, rounded up; the clock's if it had passed
	seq       int        // order of arming
	at        int        // index in pending; -1 when it is not
	collected bool       // an Advance has taken it; it runs before that returns
	flushed   int        // claims of a Flush whose callbacks have not begun; a FuncTimer may have several
	fn        *modelFunc // of a FuncTimer; else nil
}

type model struct {
	testing.TB
	cfg     modelConfig
	pick    choices
	sut     subject
	calls   []func() // calls that the executor has kept
	eager   int      // calls that it made immediately
	unwound bool     // by a panic, so that the executor may lack calls until the next Advance
	now     int64
	all     []*modelTimer // by id, the dead as well
	pending []*modelTimer
	seq     int
	due     [][]dueEntry // collected timers of each shard, in order
	flushed int          // claims of a Flush whose callbacks have not begun
	ran     []int        // how many timers ran, for each Advance or Flush under way
	stopped bool
	quiet   bool // callbacks do nothing
	funcs   bool // most timers are FuncTimers
	step    int
	want    Stats

	unchecked int // callbacks since the last check
}

type dueEntry struct {
	e   *modelTimer
	seq int // differs from e.seq once e was armed again
}

// failf fails the test and prints how to repeat it.
func (m *model) failf(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\nstep %d, clock %d, %+v, choices %v", fmt.Sprintf(format, args...), m.step, m.now, m.cfg, m.pick)
}

// tickOf returns the clock in ticks.
func (m *model) tickOf() int64 { return m.now / int64(m.cfg.tick) }

func (m *model) time(reading int64) time.Time {
	return modelStart.Add(time.Duration(reading - m.cfg.origin))
}

func (m *model) reading(t time.Time) int64 { return m.cfg.origin + int64(t.Sub(modelStart)) }

// armed records that e was armed now and is due at the reading.
func (m *model) armed(e *modelTimer, due int64) {
	tick := int64(m.cfg.tick)
	e.due, e.tick = due, m.tickOf()
	if due > m.now {
		e.tick = due / tick
		if due%tick != 0 {
			e.tick++
		}
		e.tick = min(e.tick, clock.LastTick)
	}
	m.seq++
	e.seq = m.seq
	e.collected = false
}

// delayed returns the reading d from now.
func (m *model) delayed(d time.Duration) int64 { return clock.Saturated(m.now, max(int64(d), 0)) }

func (m *model) addTimer(shard int, due int64, add func(id int) Timer) {
	e := &modelTimer{id: len(m.all), shard: shard, at: -1}
	m.all = append(m.all, e)
	e.handle = add(e.id)
	if m.stopped {
		if e.handle != (Timer{}) {
			m.failf("a stopped wheel returned a timer")
		}
		return
	}
	m.armed(e, due)
	m.want.Armed++
	e.at = len(m.pending)
	m.pending = append(m.pending, e)
}

// forget removes e from the pending timers.
func (m *model) forget(e *modelTimer) {
	last := m.pending[len(m.pending)-1]
	m.pending[e.at], last.at = last, e.at
	m.pending = m.pending[:len(m.pending)-1]
	e.at, e.collected = -1, false
}

func (m *model) stopTimer(e *modelTimer) {
	pending := e.at >= 0
	stop := e.handle.Stop
	if e.fn != nil {
		stop = e.fn.Stop
	}
	if got := stop(); got != pending {
		m.failf("timer %d: Stop: %v", e.id, got)
	}
	if pending {
		m.forget(e)
		m.want.Stopped++
	}
	if stop() {
		m.failf("timer %d: a second Stop: true", e.id)
	}
}

// reschedule moves e to the reading due. The function move calls Reschedule or RescheduleAt.
func (m *model) reschedule(e *modelTimer, due int64, move func(Timer) bool) {
	if got := move(e.handle); got != (e.at >= 0) {
		m.failf("timer %d: Reschedule: %v", e.id, got)
	}
	if e.at >= 0 {
		m.armed(e, due)
		m.want.Postponed++
	}
}

func (m *model) checkDeadline(e *modelTimer) {
	deadline := e.handle.Deadline
	if e.fn != nil {
		deadline = e.fn.Deadline
	}
	at, ok := deadline()
	switch {
	case ok != (e.at >= 0):
		m.failf("Deadline of timer %d: %v", e.id, ok)
	case ok && !at.Equal(m.time(satMul(e.tick, int64(m.cfg.tick)))):
		m.failf("Deadline of timer %d: %v, want tick %d", e.id, at, e.tick)
	}
}

// collect marks the timers that an Advance or a Flush runs, in order, and returns the number of
// newly marked ones.
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

// head returns the collected timer of a shard that has to run next, or nil.
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

// outstanding reports whether a collected or flushed timer has not run.
func (m *model) outstanding() bool {
	if m.flushed > 0 {
		return true
	}
	for k := range m.due {
		if m.head(k) != nil {
			return true
		}
	}
	return false
}

// fired is called with each batch that the wheel runs.
func (m *model) fired(ids []int) {
	if len(ids) == 0 || len(ids) > perCallMax {
		m.failf("a batch of %d", len(ids))
	}
	for _, id := range ids {
		e := m.all[id]
		m.want.Fired++
		if m.runsFlushed(e) {
			e.flushed--
			m.flushed--
			continue
		}
		if e.at < 0 || !e.collected {
			m.failf("timer %d runs: pending %v, collected %v, its tick %d", id, e.at >= 0, e.collected, e.tick)
		}
		m.checkOrder(e)
		m.forget(e)
	}
	if n := len(m.ran); n > 0 {
		m.ran[n-1] += len(ids)
	}
	m.want.Running++
	m.checkSometimes()
}

// runsFlushed reports whether the call of e that has begun comes from a Flush.
func (m *model) runsFlushed(e *modelTimer) bool {
	if e.flushed == 0 || e.at < 0 || e.fn == nil {
		return e.flushed > 0
	}
	_, pending := e.fn.Deadline() // it was armed again after the Flush
	return pending
}

func (m *model) checkOrder(e *modelTimer) {
	if m.cfg.queued {
		return // each call has a timer of its own, and some are made immediately
	}
	if h := m.head(e.shard); h != e {
		m.failf("timer %d (tick %d) runs before %d (tick %d)", e.id, e.tick, h.id, h.tick)
	}
	for k := range m.due {
		if h := m.head(k); h != nil && h.tick < e.tick {
			m.failf("timer %d (tick %d) runs before %d (tick %d) of another shard", e.id, e.tick, h.id, h.tick)
		}
	}
}

// run calls f, an Advance or a Flush, and returns its result and the number of timers that it has
// run itself. ok is false if a callback has panicked.
func (m *model) run(f func() int) (got, ran int, ok bool) {
	m.ran = append(m.ran, 0)
	depth := len(m.ran)
	running := m.want.Running
	defer func() {
		if depth == 1 && recover() != nil { // in a callback the outermost call recovers
			m.want.Running = running
		}
		ran = m.ran[depth-1]
		m.ran = m.ran[:depth-1]
	}()
	got = f()
	return got, ran, true
}

// advance moves the clock and checks that exactly the due timers run.
func (m *model) advance(to int64) {
	if m.stopped {
		if n := m.sut.advance(m.time(to)); n != 0 {
			m.failf("Advance on a stopped wheel: %d", n)
		}
		return
	}
	m.now = max(m.now, min(to, endOf(m.cfg.tick)-1))
	tick := m.tickOf()
	collected := m.collect(func(e *modelTimer) bool { return e.tick <= tick })
	eager, again := m.eager, m.unwound
	m.unwound = true // stays set if a panic unwinds through this call
	got, ran, ok := m.run(func() int { return m.sut.advance(m.time(to)) })
	m.unwound = !ok
	switch {
	case !ok || m.cfg.queued && (again || m.eager > eager): // submitted twice, or changed by callbacks
	case m.cfg.queued && got != collected || !m.cfg.queued && got != ran:
		m.failf("Advance returned %d; %d timers were due, %d ran", got, collected, ran)
	case !m.cfg.queued && m.outstanding():
		m.failf("an Advance to %d has not run all due timers", to)
	}
}

func (m *model) flush() {
	want := len(m.pending)
	for len(m.pending) > 0 {
		e := m.pending[0]
		m.forget(e)
		e.flushed++
		m.flushed++
	}
	again := m.unwound
	m.unwound = true // as in advance
	got, _, ok := m.run(m.sut.flush)
	m.unwound = !ok || again && len(m.ran) > 0 // the call around this one may unwind yet
	if ok && got != want {
		m.failf("Flush: %d, want %d", got, want)
	}
	if ok && !m.cfg.queued && m.outstanding() {
		m.failf("a Flush has not run all pending timers")
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
	for _, e := range m.all {
		e.flushed = 0
	}
	m.flushed = 0
}

// checkNext checks that Next is not after the first deadline, and not before there is work to do.
func (m *model) checkNext() (reading int64, ok bool) {
	at, ok := m.sut.next()
	if ok != (len(m.pending) > 0) {
		m.failf("Next: %v with %d pending", ok, len(m.pending))
	}
	if !ok {
		return 0, false
	}
	first, ready := int64(math.MaxInt64), false
	for _, e := range m.pending {
		first = min(first, e.tick)
		ready = ready || e.collected
	}
	ready = ready || first <= m.tickOf()
	reading = m.reading(at)
	switch tick := int64(m.cfg.tick); {
	case reading > satMul(max(first, m.tickOf()), tick):
		m.failf("Next is %d, the first timer is due at tick %d", reading, first)
	case !ready && reading <= m.now:
		m.failf("Next is %d although no timer is due before tick %d", reading, first)
	}
	return reading, true
}

// checkSometimes calls check after some of many successive callbacks. The check is O(pending), so
// with more pending timers fewer callbacks are checked.
func (m *model) checkSometimes() {
	if m.unchecked++; m.unchecked > len(m.pending)/32 {
		m.check()
	}
}

// check compares the methods of the wheel with the reference.
func (m *model) check() {
	m.unchecked = 0
	if err := m.sut.verify(); err != nil {
		m.failf("verify: %v", err)
	}
	switch {
	case m.sut.len() != len(m.pending):
		m.failf("Len: %d, want %d", m.sut.len(), len(m.pending))
	case !m.stopped && !m.sut.now().Equal(m.time(m.now)):
		m.failf("Now: %v, want %v", m.sut.now(), m.time(m.now))
	}
}

func (m *model) checkStats() {
	st := m.sut.stats()
	m.want.Pending = len(m.pending)
	got := Stats{
		Pending: st.Pending, Armed: st.Armed, Fired: st.Fired, Stopped: st.Stopped, Postponed: st.Postponed,
		Running: st.Running,
	}
	switch {
	case got != m.want:
		m.failf("Stats: %+v, want %+v", got, m.want)
	case !m.stopped && st.Lateness.Count() != st.Fired:
		m.failf("%d latenesses of %d", st.Lateness.Count(), st.Fired)
	}
}

// delay chooses a delay. Boundaries at which a wheel may fail are more likely.
func (m *model) delay() time.Duration {
	tick := int64(m.cfg.tick)
	near := func(ns int64) time.Duration { return time.Duration(clock.Saturated(ns, int64(m.pick.below(3)-1))) }
	switch m.pick.below(12) {
	case 0:
		return 0
	case 1:
		return -time.Duration(m.pick.bits()) - 1
	case 2:
		return time.Duration(m.pick.bits() % (3 * tick))
	case 3, 4:
		return near(satMul(int64(m.pick.below(2*m.cfg.size+2)), tick))
	case 5: // an edge of a level, from now
		return near(satMul(clock.Saturated(m.edge(), int64(m.pick.below(3)-1)), tick))
	case 6: // an edge of a level, on the wheel
		e := m.edge()
		return near(satMul(e-m.tickOf()%e+int64(m.pick.below(3)-1), tick))
	case 7:
		return near(1 << m.pick.below(63))
	case 8: // rounds
		return near(satMul(satMul(m.cfg.span(), tick), 1+int64(m.pick.below(4))))
	case 9:
		return math.MaxInt64 - time.Duration(m.pick.below(2))
	case 10: // the very deadline of another timer
		if len(m.pending) > 0 {
			return time.Duration(m.pending[m.pick.below(len(m.pending))].due - m.now)
		}
	}
	return time.Duration(m.pick.bits() % satMul(satMul(m.cfg.span(), tick), 2))
}

// edge returns the number of ticks of one interval of a level, or of a whole level.
func (m *model) edge() int64 {
	n := int64(m.cfg.size)
	for range m.pick.below(m.cfg.levels) {
		n = satMul(n, int64(m.cfg.size))
	}
	return n
}

// target chooses the reading to which the clock moves, mostly within some laps of the last level.
// Otherwise timers that never fire would soon move the clock to its end.
func (m *model) target() int64 {
	to := m.anyTarget()
	if m.pick.below(32) == 1 {
		return to
	}
	return min(to, clock.Saturated(m.now, satMul(satMul(m.cfg.span(), int64(m.cfg.tick)), 4)))
}

func (m *model) anyTarget() int64 {
	tick := int64(m.cfg.tick)
	switch m.pick.below(10) {
	case 0:
		return m.now
	case 1:
		return m.now - m.pick.bits()%(m.now+1)
	case 2:
		return clock.Saturated(m.now, m.pick.bits()%(3*tick))
	case 3, 4:
		return clock.Saturated(m.now, satMul(tick, int64(m.pick.below(2*m.cfg.size))))
	case 5:
		if at, ok := m.checkNext(); ok {
			return at
		}
	case 6: // just before there is something to do
		if at, ok := m.checkNext(); ok && at > m.now {
			return at - 1
		}
	case 7:
		e := m.edge()
		return satMul(clock.Saturated(m.tickOf(), e-m.tickOf()%e+int64(m.pick.below(3)-1)), tick)
	case 8:
		if len(m.pending) > 0 {
			return clock.Saturated(m.pending[m.pick.below(len(m.pending))].due, m.pick.bits()%tick)
		}
	}
	return clock.Saturated(m.now, satMul(m.cfg.span(), tick)/int64(1+m.pick.below(64)))
}

// readingNear returns the reading d from now, also for a negative d.
func (m *model) readingNear(d time.Duration) int64 {
	if d < 0 {
		return max(0, m.now+int64(d))
	}
	return m.delayed(d)
}

var modelTicks = []time.Duration{
	time.Microsecond, time.Millisecond, time.Second, time.Hour, 1_234_567, 7919 * time.Microsecond,
}

// modelOrigins returns first readings of the clock: small ones, just before a level wraps, after
// 2^43 ticks, and so large that sums with long delays overflow.
func modelOrigins(c modelConfig) []int64 {
	tick := int64(c.tick)
	lap := satMul(c.span(), tick)
	origins := []int64{
		0, 1, tick - 1, tick*int64(c.size) - 1, max(0, min(lap, 1<<61)-tick), min(satMul(lap, 1<<16), 1<<62) - 1,
		min(satMul(1<<43, tick), 1<<61+12345), 1 << 61, math.MaxInt64 - 1<<55,
	}
	for k := range origins {
		origins[k] = within(c.tick, origins[k])
	}
	return origins
}

// modelChoice returns a configuration from choices.
func modelChoice(pick choices) modelConfig {
	c := modelConfig{
		tick:   modelTicks[pick.below(len(modelTicks))],
		size:   2 << pick.below(6),
		levels: 1 + pick.below(5),
		shards: 1 + pick.below(4)/3,
		queued: pick.below(4) == 3,
	}
	origins := modelOrigins(c)
	c.origin = origins[pick.below(len(origins))]
	return c
}

// Go implements Executor. It queues most calls and runs the others immediately.
func (m *model) Go(f func()) {
	if m.pick.below(4) == 3 {
		m.eager++
		f()
		return
	}
	m.calls = append(m.calls, f)
}

func newModel(tb testing.TB, cfg modelConfig, pick choices) *model {
	return &model{TB: tb, cfg: cfg, pick: pick, now: cfg.origin, due: make([][]dueEntry, cfg.shards)}
}

func (m *model) options() Options {
	opts := m.cfg.options()
	if m.cfg.queued {
		opts.Executor = m
	}
	return opts
}

// subjectOf returns the common part of both subjects.
func subjectOf[T any](e *engine, payload func(id int) T) subject {
	on := func(k int, deadline int64, v T) Timer {
		return armOn(e.shards[k], deadline, v)
	}
	return subject{
		add: func(k int, d time.Duration, id int) Timer {
			if len(e.shards) == 1 {
				return armAfter(e, d, payload(id))
			}
			return on(k, clock.Later(e.shards[k].now.Load(), int64(d)), payload(id)) // not by pick
		},
		addAt: func(k int, at time.Time, id int) Timer {
			if len(e.shards) == 1 {
				return armAtTime(e, at, payload(id))
			}
			deadline, _ := e.config.Instant(at)
			return on(k, deadline, payload(id))
		},
		survey: e.survey, verifySurvey: e.verifySurvey,
		advance: e.advanceTo, next: e.next, len: e.pending, stats: e.stats, stop: e.stop, now: e.config.Now,
		verify: func() error {
			for _, s := range e.shards {
				s.owner.mu.Lock()
				err := s.verify()
				s.owner.mu.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// newWheelModel returns the model of a TimingWheel.
func newWheelModel(tb testing.TB, cfg modelConfig, pick choices) *model {
	m := newModel(tb, cfg, pick)
	tw, err := newWheelAt(m.options(), cfg.origin)
	if err != nil {
		m.failf("%v", err)
	}
	m.sut = subjectOf(tw.engine, func(id int) func() { return func() { m.callback([]int{id}) } })
	m.sut.flush = tw.Flush
	m.sut.initFunc = func(ft *FuncTimer, f func()) { ft.InitStopped(tw, f) }
	m.sut.sendTo = func(shard int) { sendTo(tw, uint32(shard)) }
	return m
}

// newTimeoutsModel returns the model of a Timeouts.
func newTimeoutsModel(tb testing.TB, cfg modelConfig, pick choices) *model {
	m := newModel(tb, cfg, pick)
	expire := func(expired []uint64) {
		ids := make([]int, len(expired))
		for i, v := range expired {
			ids[i] = int(v)
		}
		m.callback(ids)
	}
	w, err := newTimeoutsAt(m.options(), cfg.origin, expire)
	if err != nil {
		m.failf("%v", err)
	}
	m.sut = subjectOf(w.engine, func(id int) uint64 { return uint64(id) })
	m.sut.takeAll = func() []int {
		var ids []int
		for _, v := range w.RemoveAll() {
			ids = append(ids, int(v))
		}
		return ids
	}
	return m
}

// act performs an operation that callbacks perform too.
func (m *model) act() {
	var e *modelTimer
	shard := m.pick.below(m.cfg.shards)
	if len(m.pending) > 0 && m.pick.below(8) > 0 {
		e = m.pending[m.pick.below(len(m.pending))]
	} else if len(m.all) > 0 {
		e = m.all[m.pick.below(len(m.all))]
	}
	if e != nil && e.fn != nil {
		m.actOnFunc(e, shard)
		return
	}
	if m.sut.initFunc != nil && (m.funcs && m.pick.below(4) > 0 || m.pick.below(16) == 1) {
		m.actOnFunc(nil, shard)
		return
	}
	op := m.pick.below(10)
	switch d := m.delay(); {
	case e == nil || op < 3:
		m.addTimer(shard, m.delayed(d), func(id int) Timer { return m.sut.add(shard, d, id) })
	case op < 4:
		at := m.readingNear(d)
		m.addTimer(shard, at, func(id int) Timer { return m.sut.addAt(shard, m.time(at), id) })
	case op < 6:
		m.stopTimer(e)
	case op < 8:
		m.reschedule(e, m.delayed(d), func(t Timer) bool { return t.Reschedule(d) })
	case op < 9:
		at := m.readingNear(d)
		m.reschedule(e, at, func(t Timer) bool { return t.RescheduleAt(m.time(at)) })
	default:
		m.checkDeadline(e)
	}
}

// callback is run by every timer and performs any operations.
func (m *model) callback(ids []int) {
	m.fired(ids)
	shard := m.all[ids[0]].shard
	if !m.quiet {
		m.inside(shard)
	}
	m.checkSometimes()
	m.want.Running--
}

func (m *model) inside(shard int) {
	switch m.pick.below(12) {
	case 1:
		m.addTimer(shard, m.now, func(id int) Timer { return m.sut.add(shard, 0, id) })
	case 2:
		if e := m.head(shard); e != nil {
			m.stopTimer(e)
		}
	case 3:
		if e := m.head(shard); e != nil {
			d := m.delay()
			if e.fn != nil {
				m.resetFunc(e, d)
				return
			}
			m.reschedule(e, m.delayed(d), func(t Timer) bool { return t.Reschedule(d) })
		}
	case 4, 5, 6:
		m.act()
	case 7:
		m.rare(8)
	case 8:
		if m.pick.below(4) == 1 {
			panic("of a callback")
		}
	}
}

// rare performs operations that empty the wheel, with a probability that decreases with n.
func (m *model) rare(n int) {
	switch m.pick.below(n * 8) {
	case 1:
		if !m.stopped && m.pick.below(8) == 1 {
			m.stopWheel()
		}
	case 2, 3, 4, 5:
		if m.sut.flush != nil && !m.stopped {
			m.flush()
		} else if m.sut.takeAll != nil {
			m.takeAll()
		}
	}
}

// play performs steps while there are choices, and then runs the remaining timers.
func (m *model) play() {
	for ; m.pick.more(); m.step++ {
		switch m.pick.below(8) {
		case 0, 1:
			m.advance(m.target())
		case 2:
			m.rare(16)
		case 3:
			m.runCalls(1 + m.pick.below(8))
			if m.pick.below(24) == 1 {
				m.burst()
			}
		default:
			m.act()
		}
		m.check()
		// These checks drain the inbox and the removals, so they do not follow every step.
		switch m.step % 8 {
		case 3:
			m.checkNext()
		case 7:
			m.checkSurvey()
			m.checkStats()
		}
	}
	m.finish()
}

// burst arms many timers with one deadline or adjacent ones, and stops most of them in some order.
func (m *model) burst() {
	n, first, d := m.pick.below(8)*96, len(m.all), m.delay()
	step := time.Duration(m.pick.below(3)) * m.cfg.tick
	shard := m.pick.below(m.cfg.shards)
	for range n {
		m.addTimer(shard, m.delayed(d), func(id int) Timer { return m.sut.add(shard, d, id) })
		d = time.Duration(clock.Saturated(int64(d), int64(step)))
	}
	batch := slices.Clone(m.all[first:])
	keep := m.pick.below(4) * 32
	switch m.pick.below(4) {
	case 0:
		keep = n
	case 1:
		slices.Reverse(batch)
	case 2:
		rand.New(rand.NewPCG(uint64(first), uint64(n))).Shuffle(n, func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	}
	for _, e := range batch[min(keep, n):] {
		m.stopTimer(e)
		m.checkSometimes()
	}
}

// runCalls runs at most n queued calls of the executor.
func (m *model) runCalls(n int) {
	for ; n > 0 && len(m.calls) > 0; n-- {
		f := m.calls[0]
		m.calls = m.calls[1:]
		_, _, _ = m.run(func() int { f(); return 0 })
	}
	if m.cfg.queued && len(m.calls) == 0 && !m.unwound && m.outstanding() {
		m.failf("the executor has no call left, but a timer is due")
	}
}

// finish drives the clock by Next alone until only timers are left that no clock reaches.
func (m *model) finish() {
	m.checkStats()
	m.quiet = true
	m.advance(m.now) // hands over what a panic has left
	m.runCalls(len(m.calls))
	budget := 8 + (m.cfg.levels+2)*len(m.pending)
	for ; len(m.pending) > 0 && !m.stopped; budget-- {
		at, _ := m.checkNext()
		if at == endOf(m.cfg.tick) {
			break
		}
		m.advance(at)
		m.runCalls(len(m.calls))
		m.check()
		if budget == 0 {
			m.failf("too many wake-ups for %d timers", len(m.pending))
		}
	}
	for _, e := range m.pending {
		if satMul(e.tick, int64(m.cfg.tick)) != endOf(m.cfg.tick) {
			m.failf("timer %d of tick %d is left", e.id, e.tick)
		}
	}
	m.checkStats()
	m.checkSurvey()
	m.stopWheel()
	m.check()
	m.checkStats()
	m.checkSurvey()
}

// forEachModel calls play for a table of all sizes and numbers of levels, with all ticks and
// origins.
func forEachModel(t *testing.T, play func(t *testing.T, c modelConfig, pick choices)) {
	steps := 160
	if underRace {
		steps = 50
	}
	for size := 2; size <= 64; size *= 2 {
		t.Run(fmt.Sprintf("size=%d", size), func(t *testing.T) {
			t.Parallel()
			for k := range 5 * len(modelTicks) {
				c := modelConfig{tick: modelTicks[k%len(modelTicks)], size: size, levels: 1 + k%5, shards: 1}
				origins := modelOrigins(c)
				for seed := range 2 {
					c.origin, c.queued, c.shards = origins[(k+4*seed)%len(origins)], (k+seed)%5 == 4, 1+(k+seed)%7/6
					play(t, c, newSeeded(uint64(k<<8|seed), steps))
				}
			}
		})
	}
}

func TestModelWheel(t *testing.T) {
	t.Parallel()
	forEachModel(t, func(t *testing.T, c modelConfig, pick choices) { newWheelModel(t, c, pick).play() })
}

func TestModelTimeouts(t *testing.T) {
	t.Parallel()
	forEachModel(t, func(t *testing.T, c modelConfig, pick choices) { newTimeoutsModel(t, c, pick).play() })
}

// fuzzModel limits the length of inputs, because a long input is no better than several short ones.
func fuzzModel(f *testing.F, play func(t *testing.T, c modelConfig, pick choices)) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		pick := &scripted{data[:min(len(data), 4096)]}
		play(t, modelChoice(pick), pick)
	})
}

// FuzzEngine performs the operations of an input on a TimingWheel and compares it with the
// reference.
func FuzzEngine(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) { newWheelModel(t, c, pick).play() })
}

// FuzzTimeouts is FuzzEngine for Timeouts: batches, and RemoveAll in place of Flush.
func FuzzTimeouts(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) { newTimeoutsModel(t, c, pick).play() })
}

// The model of a running wheel, with drivers, alarms and workers, in a bubble. The clock of a
// bubble stands still while a goroutine runs, so every callback must run exactly at its deadline
// rounded up to a tick.
type bubbleModel struct {
	*testing.T
	opts   Options
	origin int64
	rng    *rand.Rand
	start  time.Time
	tw     *TimingWheel

	mu      sync.Mutex // callbacks run on goroutines of their own
	all     []*bubbleTimer
	pending map[*bubbleTimer]bool
	broken  string // the first thing that was wrong
}

type bubbleTimer struct {
	handle       Timer
	first, last  int64 // when it may run
	flushed      bool
	alreadyArmed bool
}

func (m *bubbleModel) now() int64 { return m.origin + int64(time.Since(m.start)) }

func (m *bubbleModel) failf(format string, args ...any) {
	if m.broken == "" {
		m.broken = fmt.Sprintf(format, args...)
	}
}

// armed records that e is due d from now. If e was armed before and its deadline has passed within
// this tick, it may run at the end of the tick.
func (m *bubbleModel) armed(e *bubbleTimer, d int64) {
	tick, now := int64(m.opts.Tick), m.now()
	due := clock.Saturated(now, max(d, 0))
	rounded := due / tick
	if due%tick != 0 {
		rounded++
	}
	rounded = min(rounded, clock.LastTick)
	e.first, e.last, e.flushed = now, now, false
	if due > now {
		e.first = satMul(rounded, tick)
	}
	if due > now || e.alreadyArmed {
		e.last = satMul(rounded, tick)
	}
	e.alreadyArmed = true
	m.pending[e] = true
}

func (m *bubbleModel) add(d int64) {
	e := &bubbleTimer{}
	m.all = append(m.all, e)
	m.armed(e, d)
	e.handle = m.tw.AfterFunc(time.Duration(d), func() { m.callback(e) })
}

func (m *bubbleModel) callback(e *bubbleTimer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch now := m.now(); {
	case !m.pending[e]:
		m.failf("a timer runs that is not pending")
	case !e.flushed && (now < e.first || now > e.last):
		m.failf("a timer runs at %d, not from %d to %d", now, e.first, e.last)
	}
	delete(m.pending, e)
	if m.rng.IntN(4) == 0 {
		m.act()
	}
}

func (m *bubbleModel) delay() int64 {
	tick, size := int64(m.opts.Tick), int64(m.opts.WheelSize)
	near := m.rng.Int64N(3) - 1
	switch m.rng.IntN(8) {
	case 0:
		return -m.rng.Int64N(3)
	case 1, 2:
		return m.rng.Int64N(3 * tick)
	case 3, 4:
		return tick*m.rng.Int64N(3*size) + near
	case 5:
		edge := tick
		for range m.rng.IntN(m.opts.Levels + 1) {
			edge = satMul(edge, size)
		}
		return clock.Saturated(satMul(edge, 1+m.rng.Int64N(3)), near)
	case 6:
		return 1 << m.rng.IntN(60)
	}
	return m.rng.Int64N(int64(time.Hour))
}

// victim returns a later timer that is not due now. A due one may have been claimed and may wait
// for mu.
func (m *bubbleModel) victim() *bubbleTimer {
	if len(m.all) == 0 {
		return nil
	}
	e := m.all[len(m.all)-1-m.rng.IntN(min(len(m.all), 300))]
	if m.pending[e] && (e.flushed || e.first <= m.now()) {
		return nil
	}
	return e
}

// act performs an operation that callbacks perform too.
func (m *bubbleModel) act() {
	e, op := m.victim(), m.rng.IntN(80)
	switch {
	case op < 30:
		m.add(m.delay())
	case op < 45 && e != nil:
		if got := e.handle.Stop(); got != m.pending[e] {
			m.failf("Stop: %v", got)
		}
		delete(m.pending, e)
	case op < 70 && e != nil:
		d := m.delay()
		if got := e.handle.Reschedule(time.Duration(d)); got != m.pending[e] {
			m.failf("Reschedule: %v", got)
		}
		if m.pending[e] {
			m.armed(e, d)
		}
	case op == 70:
		for e := range m.pending {
			e.flushed = true
		}
		m.tw.Flush()
	}
}

// burst arms enough adjacent timers that their bucket cascades early, and stops most of them.
func (m *bubbleModel) burst() {
	d, step := m.delay(), m.rng.Int64N(3)*int64(m.opts.Tick)/64
	first := len(m.all)
	for range 100 + m.rng.IntN(4*earlyMin) {
		m.add(d)
		d = clock.Saturated(d, step)
	}
	for _, e := range m.all[first:] {
		if m.rng.IntN(4) > 0 && e.handle.Stop() {
			delete(m.pending, e)
		}
	}
}

// check is called while no goroutine runs. It checks that pending timers are due later, and
// verifies the wheel.
func (m *bubbleModel) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := range m.pending {
		if e.flushed || e.last <= m.now() {
			m.failf("a timer has not run until %d, due from %d to %d", m.now(), e.first, e.last)
		}
	}
	if n := m.tw.Len(); n != len(m.pending) {
		m.failf("Len: %d, want %d", n, len(m.pending))
	}
	for _, s := range m.tw.engine.shards {
		s.owner.mu.Lock()
		if err := s.verify(); err != nil {
			m.failf("verify: %v", err)
		}
		s.owner.mu.Unlock()
	}
}

// pause returns the time until the next step.
func (m *bubbleModel) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.rng.IntN(6) {
	case 0:
		return 1 << m.rng.IntN(45)
	case 1:
		return 0
	case 2:
		if e := m.victim(); e != nil && m.pending[e] && e.first < m.now()+1<<50 {
			return time.Duration(max(0, e.first-m.now()+m.rng.Int64N(3)-1))
		}
	}
	return time.Duration(m.rng.Int64N(3 * int64(m.opts.Tick)))
}

func (m *bubbleModel) play(steps int) {
	for step := range steps {
		m.mu.Lock()
		for range 1 + m.rng.IntN(4) {
			m.act()
		}
		if m.rng.IntN(40) == 0 {
			m.burst()
		}
		m.mu.Unlock()
		time.Sleep(m.pause())
		synctest.Wait()
		m.check()
		if m.broken != "" {
			m.Fatalf("step %d, clock %d, %+v from %d: %s", step, m.now(), m.opts, m.origin, m.broken)
		}
	}
}

func TestModelOfARunningWheel(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(48) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				m := &bubbleModel{T: t, rng: rng, start: time.Now(), pending: map[*bubbleTimer]bool{}}
				m.opts = Options{
					Tick:      max(minTick, modelTicks[rng.IntN(3)]),
					WheelSize: 2 << rng.IntN(10),
					Levels:    1 + rng.IntN(5),
					Shards:    1 + rng.IntN(2),
					Executor:  []Executor{nil, nil, Goroutines, Inline}[seed%4],
				}
				m.origin = rng.Int64N(min(1<<60, endOf(m.opts.Tick)/2)) * int64(seed%2)
				var err error
				m.tw, err = newWheelAt(m.opts, m.origin)
				if err != nil {
					t.Fatal(err)
				}
				defer m.tw.Stop()
				m.play(200)
			})
		})
	}
}
