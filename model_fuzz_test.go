package timingwheel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// choices decides what a run of the model does.
type choices interface {
	below(n int) int // from 0 to n-1; 0 when nothing is left, so 0 must be harmless
	bits() int64     // from 0 to math.MaxInt64
	more() bool
}

// seeded makes steps choices from a seed, which a failure prints.
type seeded struct {
	seed  uint64
	steps int
	rng   *rand.Rand
}

func newSeeded(seed uint64, steps int) *seeded {
	return &seeded{seed, steps, rand.New(rand.NewPCG(seed, 0))}
}

func (c *seeded) below(n int) int { return c.rng.IntN(n) }
func (c *seeded) bits() int64     { return c.rng.Int64() }
func (c *seeded) more() bool      { c.steps--; return c.steps >= 0 }
func (c *seeded) String() string  { return fmt.Sprintf("of seed %d", c.seed) }

// scripted takes choices from a fuzz input.
type scripted struct{ rest []byte }

func (c *scripted) below(n int) int {
	if len(c.rest) == 0 {
		return 0
	}
	v := int(c.rest[0]) % n
	c.rest = c.rest[1:]
	return v
}

func (c *scripted) bits() int64 {
	var b [8]byte
	c.rest = c.rest[copy(b[:], c.rest):]
	return int64(binary.LittleEndian.Uint64(b[:]) & math.MaxInt64)
}

func (c *scripted) more() bool     { return len(c.rest) > 0 }
func (c *scripted) String() string { return "of the fuzz input" }

func satAdd(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

func satMul(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// Go makes a model the executor of its wheel: one that mostly keeps the calls, and makes some at once.
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
		s := e.shards[k]
		s.lock()
		defer s.mu.Unlock()
		return s.arm(deadline, v)
	}
	return subject{
		add: func(k int, d time.Duration, id int) Timer {
			if len(e.shards) == 1 {
				return e.after(d, payload(id))
			}
			return on(k, later(e.shards[k].now, int64(d)), payload(id)) // pick would choose by the stack
		},
		addAt: func(k int, at time.Time, id int) Timer {
			if len(e.shards) == 1 {
				return e.at(at, payload(id))
			}
			deadline, _ := e.instant(at)
			return on(k, deadline, payload(id))
		},
		advance: e.advanceTo, next: e.next, len: e.pending, stats: e.stats, stop: e.stop, now: e.clockTime,
		verify: func() error {
			for _, s := range e.shards {
				s.lock()
				err := s.verify()
				s.mu.Unlock()
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
	e, err := newEngineAt(m.options(), batchMax, cfg.origin, expire)
	if err != nil {
		m.failf("%v", err)
	}
	w := &Timeouts[uint64]{engine: e}
	m.sut = subjectOf(e, func(id int) uint64 { return uint64(id) })
	m.sut.takeAll = func() []int {
		var ids []int
		for _, v := range w.RemoveAll() {
			ids = append(ids, int(v))
		}
		return ids
	}
	return m
}

// delay chooses a delay, with a bent for the places where a wheel may go wrong.
func (m *model) delay() time.Duration {
	tick := int64(m.cfg.tick)
	near := func(ns int64) time.Duration { return time.Duration(satAdd(ns, int64(m.pick.below(3)-1))) }
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
		return near(satMul(satAdd(m.edge(), int64(m.pick.below(3)-1)), tick))
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

// edge is the number of ticks of one interval of some level, or of its whole wheel.
func (m *model) edge() int64 {
	n := int64(m.cfg.size)
	for range m.pick.below(m.cfg.levels) {
		n = satMul(n, int64(m.cfg.size))
	}
	return n
}

// target chooses the reading to which the clock moves. Mostly it lies within some laps of the last wheel:
// otherwise timers that never fire would soon take the clock to its end.
func (m *model) target() int64 {
	to := m.anyTarget()
	if m.pick.below(32) == 1 {
		return to
	}
	return min(to, satAdd(m.now, satMul(satMul(m.cfg.span(), int64(m.cfg.tick)), 4)))
}

func (m *model) anyTarget() int64 {
	tick := int64(m.cfg.tick)
	switch m.pick.below(10) {
	case 0:
		return m.now
	case 1:
		return m.now - m.pick.bits()%(m.now+1)
	case 2:
		return satAdd(m.now, m.pick.bits()%(3*tick))
	case 3, 4:
		return satAdd(m.now, satMul(tick, int64(m.pick.below(2*m.cfg.size))))
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
		return satMul(satAdd(m.tickOf(), e-m.tickOf()%e+int64(m.pick.below(3)-1)), tick)
	case 8:
		if len(m.pending) > 0 {
			return satAdd(m.pending[m.pick.below(len(m.pending))].due, m.pick.bits()%tick)
		}
	}
	return satAdd(m.now, satMul(m.cfg.span(), tick)/int64(1+m.pick.below(64)))
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
		m.resetTimer(e, m.delayed(d), func(t Timer) bool { return t.Reset(d) })
	case op < 9:
		at := m.readingNear(d)
		m.resetTimer(e, at, func(t Timer) bool { return t.ResetAt(m.time(at)) })
	default:
		m.checkDeadline(e)
	}
}

// readingNear is a point in time that lies d ahead, or behind where d is negative.
func (m *model) readingNear(d time.Duration) int64 {
	if d < 0 {
		return max(0, m.now+int64(d))
	}
	return m.delayed(d)
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
			m.resetTimer(e, m.delayed(d), func(t Timer) bool { return t.Reset(d) })
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
		m.checkNext()
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
	m.stopWheel()
	m.check()
}

var modelTicks = []time.Duration{
	time.Microsecond, time.Millisecond, time.Second, time.Hour, 1_234_567, 7919 * time.Microsecond,
}

// modelOrigins are first readings of the clock: small, just before some level of the wheel wraps, after 2^48
// ticks, and so large that sums with long delays overflow.
func modelOrigins(c modelConfig) []int64 {
	tick := int64(c.tick)
	lap := satMul(c.span(), tick)
	return []int64{
		0, 1, tick - 1, tick*int64(c.size) - 1, max(0, min(lap, 1<<61)-tick), min(satMul(lap, 1<<16), 1<<62) - 1,
		min(satMul(1<<48, tick), 1<<61+12345), 1 << 61, math.MaxInt64 - 1<<55,
	}
}

// modelChoice is a configuration that the choices make.
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

// forEachModel calls play for a table of all sizes and numbers of levels, with all ticks and origins.
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

// addModelSeeds gives a fuzz target inputs to start from: one for each size, number of levels and tick.
func addModelSeeds(f *testing.F) {
	for size := range 6 {
		for level := range 5 {
			rng := rand.New(rand.NewPCG(uint64(size), uint64(level)))
			data := []byte{byte(size + level), byte(size), byte(level)}
			for range 64 << (level % 4) {
				data = append(data, byte(rng.Uint32()))
			}
			f.Add(data)
		}
	}
}

// fuzzModel bounds the length of inputs: a long one is no better than several short ones.
func fuzzModel(f *testing.F, play func(t *testing.T, c modelConfig, pick choices)) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		pick := &scripted{data[:min(len(data), 4096)]}
		play(t, modelChoice(pick), pick)
	})
}

// FuzzEngine lets an input decide what is done to a TimingWheel, and compares it with the reference.
func FuzzEngine(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) { newWheelModel(t, c, pick).play() })
}

// FuzzTimeouts is FuzzEngine for Timeouts: batches, and RemoveAll in place of Flush.
func FuzzTimeouts(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) { newTimeoutsModel(t, c, pick).play() })
}
