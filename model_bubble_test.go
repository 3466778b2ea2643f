package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The model of a running wheel: drivers, alarms and workers as they are, in a bubble, whose clock
// stands while anything runs. So every callback must run at its deadline rounded up to a tick, to
// the nanosecond.
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

// armed notes that e is due d from now. A timer that was armed before and whose deadline has passed
// within this tick may keep to the end of the tick.
func (m *bubbleModel) armed(e *bubbleTimer, d int64) {
	tick, now := int64(m.opts.Tick), m.now()
	due := satAdd(now, max(d, 0))
	rounded := due / tick
	if due%tick != 0 {
		rounded++
	}
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
		return satAdd(satMul(edge, 1+m.rng.Int64N(3)), near)
	case 6:
		return 1 << m.rng.IntN(60)
	}
	return m.rng.Int64N(int64(time.Hour))
}

// victim is any of the later timers but one that is due now: that may have been claimed, and waits
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

// act does something that callbacks do as well.
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

// burst arms so many timers side by side that their bucket begins to move early, and stops most of
// them.
func (m *bubbleModel) burst() {
	d, step := m.delay(), m.rng.Int64N(3)*int64(m.opts.Tick)/64
	first := len(m.all)
	for range 100 + m.rng.IntN(4*earlyMin) {
		m.add(d)
		d = satAdd(d, step)
	}
	for _, e := range m.all[first:] {
		if m.rng.IntN(4) > 0 && e.handle.Stop() {
			delete(m.pending, e)
		}
	}
}

// check is called while nothing runs: what is pending is due later, and the structure is sound.
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
		s.wheelMu.Lock()
		if err := s.verify(); err != nil {
			m.failf("verify: %v", err)
		}
		s.wheelMu.Unlock()
	}
}

// pause is how long the clock runs until the next step.
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
	seeds := uint64(48)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				m := &bubbleModel{T: t, rng: rng, start: time.Now(), pending: map[*bubbleTimer]bool{}}
				m.opts = Options{
					Tick:      modelTicks[rng.IntN(3)],
					WheelSize: 2 << rng.IntN(10),
					Levels:    1 + rng.IntN(5),
					Shards:    1 + rng.IntN(2),
					Executor:  []Executor{nil, nil, Goroutines, Inline}[seed%4],
				}
				m.origin = rng.Int64N(1<<60) * int64(seed%2)
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
