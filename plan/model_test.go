package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

// A model of a wheel with random stalls, slow runs and resets drives random chains of wrappers, and holds what they say
// against the rules.

// chain is a random plan and what is known of it.
type chain struct {
	name   string
	s      timingwheel.Scheduler
	calls  *counting // the Scheduler at the bottom
	period time.Duration
	phased bool // runs stand at multiples of the period after origin
	origin time.Time
	jitter time.Duration
	limit  int       // 0: none
	until  time.Time // zero: none
	misfire
	overlap Overlap
}

type misfire struct {
	Misfire
	name string
}

func randomChain(rng *rand.Rand) *chain {
	c := &chain{period: time.Duration(1+rng.IntN(50)) * ms, phased: true, origin: midnight, misfire: misfire{RunOnce, "RunOnce"}}
	switch rng.IntN(4) {
	case 0:
		c.calls, c.name = &counting{Scheduler: FixedRate(c.period)}, "FixedRate"
		c.s = c.calls
	case 1:
		c.calls, c.name = &counting{Scheduler: Aligned(c.period, time.UTC)}, "Aligned"
		c.s, c.origin = nextOnly{c.calls}, midnight.Truncate(c.period)
	case 2:
		c.s, c.name, c.phased = FixedDelay(c.period), "FixedDelay", false
	case 3:
		c.s, c.name, c.phased = Backoff(c.period, 8*c.period), "Backoff", false
	}
	c.name = fmt.Sprintf("%s(%v)", c.name, c.period)
	for range rng.IntN(6) {
		c.wrap(rng)
	}
	return c
}

// nextOnly hides the method Skip.
type nextOnly struct{ c *counting }

func (n nextOnly) Next(t time.Time) time.Time { return n.c.Next(t) }

func (c *chain) wrap(rng *rand.Rand) {
	switch rng.IntN(5) {
	case 0:
		if c.jitter == 0 {
			c.jitter = time.Duration(rng.Int64N(int64(c.period)))
			c.s = Jitter(c.s, c.jitter)
			if !c.until.IsZero() {
				c.until = c.until.Add(c.jitter)
			}
			c.name = fmt.Sprintf("Jitter(%s, %v)", c.name, c.jitter)
		}
	case 1:
		n := 1 + rng.IntN(30)
		if c.limit == 0 || n < c.limit {
			c.limit = n
		}
		c.s = Limit(c.s, n)
		c.name = fmt.Sprintf("Limit(%s, %d)", c.name, n)
	case 2:
		t := midnight.Add(time.Duration(rng.IntN(2000)) * ms)
		c.s = Until(c.s, t)
		if c.until.IsZero() || t.Before(c.until) {
			c.until = t
		}
		c.name = fmt.Sprintf("Until(%s, %v)", c.name, t.Sub(midnight))
	case 3:
		c.misfire = []misfire{{RunOnce, "RunOnce"}, {RunAll, "RunAll"}, {Skip(20 * ms), "Skip"}, {CatchUp(70 * ms), "CatchUp"}}[rng.IntN(4)]
		c.s = WithMisfire(c.s, c.Misfire)
		c.name = fmt.Sprintf("WithMisfire(%s, %s)", c.name, c.misfire.name)
	case 4:
		c.overlap = Overlap(rng.IntN(3))
		c.s = WithOverlap(c.s, c.overlap)
		c.name = fmt.Sprintf("WithOverlap(%s, %d)", c.name, c.overlap)
	}
}

// model is a wheel with one plan.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	c    *chain
	f    timingwheel.Follower
	now  time.Time
	last timingwheel.Run // the run before
	runs int
	mark int // c.calls before the present question
}

func (m *model) ask(r timingwheel.Run) timingwheel.Step {
	if m.c.calls != nil {
		m.mark = m.c.calls.calls
	}
	step := m.f.Follow(r)
	if m.c.calls != nil {
		require.LessOrEqual(m.t, m.c.calls.calls-m.mark, 4, "%s: questions behind one question", m.c.name)
	}
	return step
}

// run lets the plan run up to 100 times.
func (m *model) run() {
	next := m.ask(call(m.now)).Next
	for n := 0; n < 100 && !next.IsZero(); n++ {
		if next.After(m.now) {
			m.now = next
		}
		if m.rng.IntN(8) == 0 { // a stall
			m.now = m.now.Add(time.Duration(m.rng.IntN(200)) * ms)
		}
		next = m.one(next)
	}
}

func (m *model) one(planned time.Time) time.Time {
	r := timingwheel.Run{N: m.runs + 1, Planned: planned, Started: m.now}
	step := m.ask(r)
	if step.Skip {
		late := r.Started.Sub(r.Planned)
		require.True(m.t, m.c.limited, "%s: nothing is left out", m.c.name)
		require.Greater(m.t, late, m.c.grace, "%s: left out", m.c.name)
		return step.Next
	}
	m.runs++
	m.check(r)
	next := step.Next
	if !step.Overlap && !next.IsZero() {
		if m.rng.IntN(4) == 0 {
			m.now = m.now.Add(time.Duration(m.rng.IntN(120)) * ms)
		}
		r.Finished = m.now
		next = m.ask(r).Next
	}
	m.last = r
	return next
}

// check holds a run that takes place against the rules.
func (m *model) check(r timingwheel.Run) {
	c, t := m.c, m.t
	require.False(t, r.Started.Before(r.Planned), "%s: early", c.name)
	if c.limit > 0 {
		require.LessOrEqual(t, r.N, c.limit, c.name)
	}
	if !c.until.IsZero() {
		require.False(t, r.Planned.After(c.until), "%s: after its end", c.name)
	}
	if c.phased {
		require.LessOrEqual(t, r.Planned.Sub(c.origin)%c.period, c.jitter, "%s: out of phase at %v", c.name, r.Planned.Sub(midnight))
	}
	if r.N == 1 {
		return
	}
	require.True(t, r.Planned.After(m.last.Planned), "%s: %v after %v", c.name, r.Planned, m.last.Planned)
	switch {
	case m.last.Finished.IsZero() || c.all:
	case !c.phased:
		require.False(t, r.Planned.Before(m.last.Finished.Add(c.period)), "%s: the pause was too short", c.name)
	case c.overlap == QueueOne:
		require.True(t, r.Planned.After(m.last.Started), "%s: missed before it started", c.name)
	case !c.limited: // else it was due when a run that was left out was
		require.True(t, r.Planned.After(m.last.Finished), "%s: missed", c.name)
	}
}

func TestModelOfRandomChains(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	total := 0
	for range 400 {
		c := randomChain(rng)
		m := &model{t: t, rng: rng, c: c, f: of("", c.s).Plan(), now: midnight}
		m.run()
		total += m.runs
	}
	require.Greater(t, total, 2000, "the test tests nothing")
}

// RunAll loses no run and runs none twice, whatever stalls; and a jitter moves each by no more than it may.
func TestModelRunAllIsComplete(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for range 200 {
		max := time.Duration(rng.IntN(10)) * ms
		f := of("", Jitter(WithMisfire(FixedRate(10*ms), RunAll), max)).Plan()
		now := midnight
		next := f.Follow(call(now)).Next
		for n := 1; n <= 100; n++ {
			nominal := midnight.Add(time.Duration(n) * 10 * ms)
			require.WithinRange(t, next, nominal, nominal.Add(max))
			if next.After(now) {
				now = next
			}
			if rng.IntN(5) == 0 {
				now = now.Add(time.Duration(rng.IntN(300)) * ms)
			}
			r := timingwheel.Run{N: n, Planned: next, Started: now}
			f.Follow(r)
			r.Finished = now
			next = f.Follow(r).Next
		}
	}
}
