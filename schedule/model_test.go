package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// A model of a wheel with random stalls and slow runs drives random chains of wrappers and checks
// their results against the documented rules.

// chain is a random plan and its parameters.
type chain struct {
	name   string
	s      timingwheel.Scheduler
	calls  *int // calls to the innermost Scheduler; nil: not counted
	period time.Duration
	phased bool // runs are planned at multiples of the period after origin
	origin time.Time
	jitter time.Duration
	limit  int       // 0: none
	until  time.Time // zero: none
	misfire
	overlap Overlap
}

type misfire struct {
	all     bool
	maxLate time.Duration
}

var lateness = []misfire{{false, math.MaxInt64}, {true, math.MaxInt64}, {false, 20 * ms}, {true, 70 * ms}}

func randomChain(rng *rand.Rand) *chain {
	c := &chain{period: time.Duration(1+rng.IntN(50)) * ms, phased: true, origin: midnight, misfire: lateness[0]}
	switch rng.IntN(4) {
	case 0:
		rate := &counting{Every: planner.Every(c.period)}
		c.s, c.calls, c.name = rate, &rate.calls, "Every"
	case 1:
		dates := &countingNext{Scheduler: Aligned(c.period, time.UTC)}
		c.s, c.calls, c.name = dates, &dates.calls, "Aligned"
		c.origin = midnight.Truncate(c.period)
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

// countingNext counts the calls to a Scheduler.
type countingNext struct {
	timingwheel.Scheduler
	calls int
}

func (c *countingNext) Next(t time.Time) time.Time {
	c.calls++
	return c.Scheduler.Next(t)
}

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
		c.misfire = lateness[rng.IntN(4)]
		policy := RunOnce
		if c.all {
			policy = RunAll
		}
		c.s = MaxLate(WithMisfire(c.s, policy), c.maxLate)
		c.name = fmt.Sprintf("MaxLate(WithMisfire(%s, %v), %v)", c.name, policy, c.maxLate)
	case 4:
		c.overlap = Overlap(rng.IntN(3))
		c.s = WithOverlap(c.s, c.overlap)
		c.name = fmt.Sprintf("WithOverlap(%s, %v)", c.name, c.overlap)
	}
}

// model is a wheel with one plan.
type model struct {
	t   *testing.T
	rng *rand.Rand
	c   *chain
	planner.Planner
	now  time.Time
	last planner.Run // the previous run
	end  time.Time   // of the previous run; zero: the next run was armed before that run
	runs int
}

// ask calls a method of the planner and checks the number of calls to the innermost Scheduler.
func ask[A any](m *model, question func() A) A {
	if m.c.calls == nil {
		return question()
	}
	before := *m.c.calls
	answer := question()
	require.LessOrEqual(m.t, *m.c.calls-before, 4, "%s: calls to the Scheduler for one call to the planner", m.c.name)
	return answer
}

// run lets the plan run up to 100 times.
func (m *model) run() {
	next := ask(m, func() time.Time { return m.First(m.now) })
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
	r := planner.Run{N: m.runs + 1, Planned: planned, Started: m.now}
	step := ask(m, func() planner.Step { return m.Before(r) })
	if step.Omit {
		late := r.Started.Sub(r.Planned)
		require.Greater(m.t, late, m.c.maxLate, "%s: skipped although in time", m.c.name)
		return step.Next
	}
	m.runs++
	m.check(r)
	m.last, m.end = r, time.Time{}
	if step.Overlap || step.Next.IsZero() {
		return step.Next
	}
	if m.rng.IntN(4) == 0 {
		m.now = m.now.Add(time.Duration(m.rng.IntN(120)) * ms)
	}
	m.end = m.now
	return ask(m, func() time.Time { return ended(m.Planner, step.Next, m.now) })
}

// check checks a run that takes place against the rules.
func (m *model) check(r planner.Run) {
	c, t := m.c, m.t
	require.False(t, r.Started.Before(r.Planned), "%s: early", c.name)
	if c.limit > 0 {
		require.LessOrEqual(t, r.N, c.limit, c.name)
	}
	if !c.until.IsZero() {
		require.False(t, r.Planned.After(c.until), "%s: after the end of the plan", c.name)
	}
	if c.phased {
		require.LessOrEqual(t, r.Planned.Sub(c.origin)%c.period, c.jitter, "%s: out of phase at %v", c.name, r.Planned.Sub(midnight))
	}
	if r.N == 1 {
		return
	}
	require.True(t, r.Planned.After(m.last.Planned), "%s: %v after %v", c.name, r.Planned, m.last.Planned)
	switch {
	case m.end.IsZero() || c.all:
	case !c.phased:
		require.False(t, r.Planned.Before(m.end.Add(c.period)), "%s: the pause was too short", c.name)
	case c.overlap == QueueOne:
		require.True(t, r.Planned.After(m.last.Started), "%s: a misfired run was not skipped", c.name)
	case c.maxLate == math.MaxInt64: // otherwise the run may follow skipped runs that were due too
		require.True(t, r.Planned.After(m.end), "%s: a missed run was not skipped", c.name)
	}
}

func TestModelRandomChainsKeepTheRules(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	total := 0
	for range 400 {
		c := randomChain(rng)
		m := &model{t: t, rng: rng, c: c, Planner: planner.For(c.s), now: midnight}
		m.run()
		total += m.runs
	}
	require.Greater(t, total, 2000, "too few runs for a meaningful test")
}

// Whatever the stalls, RunAll neither loses nor repeats a run, and no run is delayed by more than
// the maximum jitter.
func TestModelRunAllLosesNoRun(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for range 200 {
		max := time.Duration(rng.IntN(10)) * ms
		c := planner.For(Jitter(WithMisfire(timingwheel.Every(10*ms), RunAll), max))
		now := midnight
		next := c.First(now)
		for n := 1; n <= 100; n++ {
			nominal := midnight.Add(time.Duration(n) * 10 * ms)
			require.WithinRange(t, next, nominal, nominal.Add(max))
			if next.After(now) {
				now = next
			}
			if rng.IntN(5) == 0 {
				now = now.Add(time.Duration(rng.IntN(300)) * ms)
			}
			r := planner.Run{N: n, Planned: next, Started: now}
			next = ended(c, c.Before(r).Next, now)
		}
	}
}
