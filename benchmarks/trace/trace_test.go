package trace

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// life is the record of a connection.
type life struct {
	arrived, last, ended int64
	beats                int
	silent               bool
}

// recorder records all events and checks their order. It releases the slot of a silent connection
// after keep turns.
type recorder struct {
	t        *testing.T
	trace    *Trace
	keep     int64
	now      int64
	lives    []life
	bySlot   map[uint32]int // number
	finished map[uint32]int64
	gaps     []int64 // intervals between beats
}

func play(t *testing.T, cfg Config, keep int64) *recorder {
	t.Helper()
	require.NoError(t, cfg.Validate())
	r := &recorder{t: t, trace: New(cfg), keep: keep, bySlot: map[uint32]int{}, finished: map[uint32]int64{}}
	require.NoError(t, r.trace.Run(context.Background(), r))
	return r
}

func (r *recorder) Turn(now int64) {
	if now != 0 && now != r.now+Turn {
		r.t.Fatalf("turn %d follows %d", now, r.now)
	}
	r.now = now
	for slot, at := range r.finished {
		if now-at >= r.keep*Turn {
			delete(r.finished, slot)
			r.trace.Release(slot)
		}
	}
}

func (r *recorder) inTurn(at int64) {
	if at < r.now || at >= r.now+Turn {
		r.t.Fatalf("%d is not in the turn that begins at %d", at, r.now)
	}
}

func (r *recorder) Arrive(slot, number uint32, at int64) {
	r.inTurn(at)
	_, used := r.bySlot[slot]
	if used || int(number) != len(r.lives) || number != r.trace.Number(slot) {
		r.t.Fatalf("connection %d arrives after %d others, in slot %d; slot in use: %v", number, len(r.lives), slot, used)
	}
	r.bySlot[slot] = int(number)
	r.lives = append(r.lives, life{arrived: at, last: at})
}

func (r *recorder) Beat(slot uint32, at int64) {
	r.inTurn(at)
	l := &r.lives[r.bySlot[slot]]
	r.gaps = append(r.gaps, at-l.last)
	l.last = at
	l.beats++
}

func (r *recorder) Leave(slot uint32, at int64) { r.end(slot, at, false) }

func (r *recorder) Silence(slot uint32, at int64) {
	r.end(slot, at, true)
	r.finished[slot] = r.now
}

func (r *recorder) end(slot uint32, at int64, silent bool) {
	r.inTurn(at)
	l := &r.lives[r.bySlot[slot]]
	if l.ended != 0 {
		r.t.Fatalf("the connection in slot %d ends twice", slot)
	}
	l.ended, l.silent = at, silent
	delete(r.bySlot, slot)
}

func small() Config {
	cfg := Defaults()
	cfg.Conns, cfg.Over, cfg.For, cfg.Median = 10_000, time.Minute, 5*time.Minute, 20*time.Second
	return cfg
}

func TestCountsMatchTheEvents(t *testing.T) {
	t.Parallel()
	r := play(t, small(), 1000)
	want := Counts{Arrived: len(r.lives), Beats: len(r.gaps)}
	for _, l := range r.lives {
		switch {
		case l.ended == 0:
			want.Live++
		case l.silent:
			want.Silent++
		default:
			want.Left++
		}
	}
	got := r.trace.Counts()
	assert.GreaterOrEqual(t, got.Most, got.Live)
	assert.Less(t, got.Most, got.Arrived, "slots are not reused")
	want.Most, want.Sum = got.Most, got.Sum
	assert.Equal(t, want, got)
	assert.Equal(t, 10_000, got.Arrived)
}

func TestArrivalsArePoisson(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Conns, cfg.Over, cfg.For = 60_000, time.Minute, 2*time.Minute
	cfg.Median = time.Millisecond
	r := play(t, cfg, 0)
	require.Len(t, r.lives, cfg.Conns)
	last := r.lives[cfg.Conns-1].arrived
	assert.InEpsilon(t, time.Minute.Seconds(), time.Duration(last).Seconds(), 0.05, "time until all have arrived")
	// The number of arrivals of a Poisson process in an interval has a variance equal to its mean:
	// 100 here.
	counts := make([]float64, 550)
	for _, l := range r.lives {
		if i := l.arrived / int64(100*time.Millisecond); i < int64(len(counts)) {
			counts[i]++
		}
	}
	mean, variance := moments(counts)
	assert.InEpsilon(t, 100, mean, 0.05)
	assert.InEpsilon(t, mean, variance, 0.5)
}

func TestLifetimesAreLogNormal(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Conns, cfg.For, cfg.Beat = 20_000, time.Hour, MaxBeat
	r := play(t, cfg, 0)
	var logs []float64
	for _, l := range r.lives {
		if l.ended > 0 {
			logs = append(logs, math.Log(time.Duration(l.ended-l.arrived).Seconds()))
		}
	}
	require.InDelta(t, cfg.Conns, len(logs), 5, "connections that ended within the hour")
	slices.Sort(logs)
	assert.InEpsilon(t, cfg.Median.Seconds(), math.Exp(logs[len(logs)/2]), 0.1)
	mean, variance := moments(logs)
	assert.InDelta(t, math.Log(cfg.Median.Seconds()), mean, 0.1)
	assert.InDelta(t, cfg.Sigma, math.Sqrt(variance), 0.1)
}

func TestIntervalsBetweenBeatsAreWithinTheJitter(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Beat, cfg.Jitter = time.Second, 0.2
	r := play(t, cfg, 0)
	require.NotEmpty(t, r.gaps)
	sum := 0.0
	for _, g := range r.gaps {
		if d := time.Duration(g); d < 800*time.Millisecond || d > cfg.Longest() {
			t.Fatalf("interval of %v between two beats", d)
		}
		sum += time.Duration(g).Seconds()
	}
	assert.Equal(t, 1200*time.Millisecond, cfg.Longest())
	assert.InEpsilon(t, 1, sum/float64(len(r.gaps)), 0.02)
	for _, l := range r.lives {
		if l.ended > 0 {
			require.LessOrEqual(t, time.Duration(l.ended-l.last), cfg.Longest(), "missing beat before the end")
		}
	}
}

func TestShareOfSilentConnections(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0, 0.1, 1} {
		cfg := small()
		cfg.Silent = share
		n := play(t, cfg, 0).trace.Counts()
		assert.InDelta(t, share, float64(n.Silent)/float64(n.Silent+n.Left), 0.02)
	}
}

func TestEventsDependOnTheConfigurationOnly(t *testing.T) {
	t.Parallel()
	first, again, later := play(t, small(), 0), play(t, small(), 0), play(t, small(), 5000)
	assert.Equal(t, first.trace.Counts(), again.trace.Counts())
	assert.Equal(t, first.lives, again.lives)
	assert.Equal(t, first.lives, later.lives)
	assert.Equal(t, first.trace.Counts().Sum, later.trace.Counts().Sum)
	assert.Greater(t, later.trace.Counts().Most, first.trace.Counts().Most, "slots are reused before their release")
	cfg := small()
	cfg.Seed++
	other := play(t, cfg, 0)
	assert.NotEqual(t, first.trace.Counts().Sum, other.trace.Counts().Sum)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tr := New(small())
	assert.ErrorIs(t, tr.Run(ctx, nil), context.Canceled, "before the first event")
}

func TestValidateNamesTheFieldAndItsRange(t *testing.T) {
	t.Parallel()
	require.NoError(t, Defaults().Validate())
	for name, change := range map[string]func(*Config){
		"Conns is 0":         func(c *Config) { c.Conns = 0 },
		"Conns is 100000001": func(c *Config) { c.Conns = MaxConns + 1 },
		"Over is 0s":         func(c *Config) { c.Over = 0 },
		"For is 24h0m0.001s": func(c *Config) { c.For = MaxFor + time.Millisecond },
		"Median is -1s":      func(c *Config) { c.Median = -time.Second },
		"Sigma is NaN":       func(c *Config) { c.Sigma = math.NaN() },
		"Beat is 1ms":        func(c *Config) { c.Beat = time.Millisecond },
		"Jitter is 1":        func(c *Config) { c.Jitter = 1 },
		"Silent is 1.5":      func(c *Config) { c.Silent = 1.5 },
		"Sigma is 5":         func(c *Config) { c.Sigma = 5 },
		"must be from 1 ":    func(c *Config) { c.Conns = -1 },
	} {
		cfg := Defaults()
		change(&cfg)
		assert.ErrorContains(t, cfg.Validate(), name)
	}
}

func moments(xs []float64) (mean, variance float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		variance += (x - mean) * (x - mean) / float64(len(xs))
	}
	return mean, variance
}
