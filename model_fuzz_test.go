package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Go makes a model the executor of its wheel: one that mostly keeps the calls, and makes some at
// once.
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

// subjectOf makes the part of a subject that both faces share.
func subjectOf[T any](e *engine[T], payload func(id int) T) subject {
	on := func(k int, deadline int64, v T) Timer {
		return armOn(e.shards[k], deadline, v)
	}
	return subject{
		add: func(k int, d time.Duration, id int) Timer {
			if len(e.shards) == 1 {
				return e.after(d, payload(id))
			}
			return on(k, clock.Later(e.shards[k].now.Load(), int64(d)), payload(id)) // pick would choose by the stack
		},
		addAt: func(k int, at time.Time, id int) Timer {
			if len(e.shards) == 1 {
				return e.at(at, payload(id))
			}
			deadline, _ := e.Instant(at)
			return on(k, deadline, payload(id))
		},
		occupancy: e.occupancy, verifyOccupancy: e.verifyOccupancy,
		advance: e.advanceTo, next: e.next, len: e.pending, stats: e.stats, stop: e.stop, now: e.clockTime,
		verify: func() error {
			for _, s := range e.shards {
				s.wheelMu.Lock()
				err := s.verify()
				s.wheelMu.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// newWheelModel models a TimingWheel.
func newWheelModel(tb testing.TB, cfg modelConfig, pick choices) *model {
	m := newModel(tb, cfg, pick)
	tw, err := newWheelAt(m.options(), cfg.origin)
	if err != nil {
		m.failf("%v", err)
	}
	m.sut = subjectOf(tw.engine, func(id int) func() { return func() { m.callback([]int{id}) } })
	m.sut.flush = tw.Flush
	return m
}

// newTimeoutsModel models Timeouts.
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

// act does something that callbacks do as well.
func (m *model) act() {
	var e *modelTimer
	shard := m.pick.below(m.cfg.shards)
	if len(m.pending) > 0 && m.pick.below(8) > 0 {
		e = m.pending[m.pick.below(len(m.pending))]
	} else if len(m.all) > 0 {
		e = m.all[m.pick.below(len(m.all))]
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

// callback is what every timer runs. It may do anything.
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

// rare does what would empty the wheel too often: it is the more rare the larger n is.
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

// play does steps as long as there are choices, and then runs what is left.
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
		switch m.step % 8 { // these bring the wheel up to date, and what may stand beside it shall do so for a while
		case 3:
			m.checkNext()
		case 7:
			m.checkOccupancy()
			m.checkStats()
		}
	}
	m.finish()
}

// burst arms many timers at one instant or side by side, and stops most of them in some order.
func (m *model) burst() {
	n, first, d := m.pick.below(8)*96, len(m.all), m.delay()
	step := time.Duration(m.pick.below(3)) * m.cfg.tick
	shard := m.pick.below(m.cfg.shards)
	for range n {
		m.addTimer(shard, m.delayed(d), func(id int) Timer { return m.sut.add(shard, d, id) })
		d = time.Duration(satAdd(int64(d), int64(step)))
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

// runCalls runs what the executor was given, at most n calls.
func (m *model) runCalls(n int) {
	for ; n > 0 && len(m.calls) > 0; n-- {
		f := m.calls[0]
		m.calls = m.calls[1:]
		_, _, _ = m.run(func() int { f(); return 0 })
	}
	if m.cfg.queued && len(m.calls) == 0 && !m.unwound && m.outstanding() {
		m.failf("the executor has made all its calls, and something is still due")
	}
}

// finish drives the clock by Next alone until nothing is left but timers that no clock reaches.
func (m *model) finish() {
	m.checkStats()
	m.quiet = true
	m.advance(m.now) // hands over what a panic has left
	m.runCalls(len(m.calls))
	budget := 8 + (m.cfg.levels+2)*len(m.pending)
	for ; len(m.pending) > 0 && !m.stopped; budget-- {
		at, _ := m.checkNext()
		if at == math.MaxInt64 {
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
		if satMul(e.tick, int64(m.cfg.tick)) != math.MaxInt64 {
			m.failf("timer %d of tick %d is left", e.id, e.tick)
		}
	}
	m.checkStats()
	m.checkOccupancy()
	m.stopWheel()
	m.check()
	m.checkStats()
	m.checkOccupancy()
}

// forEachModel calls play for a table of all sizes and numbers of levels, with all ticks and
// origins.
func forEachModel(t *testing.T, play func(t *testing.T, c modelConfig, pick choices)) {
	steps := 160
	if testing.Short() {
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

// fuzzModel bounds the length of inputs: a long one is no better than several short ones.
func fuzzModel(f *testing.F, play func(t *testing.T, c modelConfig, pick choices)) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		pick := &scripted{data[:min(len(data), 4096)]}
		play(t, modelChoice(pick), pick)
	})
}

// FuzzEngine lets an input decide what is done to a TimingWheel, and compares it with the
// reference.
func FuzzEngine(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) { newWheelModel(t, c, pick).play() })
}

// FuzzTimeouts is FuzzEngine for Timeouts: batches, and RemoveAll in place of Flush.
func FuzzTimeouts(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) { newTimeoutsModel(t, c, pick).play() })
}
