package simulation

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

const timeout = 75 * time.Second

func small() trace.Config {
	cfg := trace.Defaults()
	cfg.Conns, cfg.Over, cfg.Median, cfg.For = 5000, 30*time.Second, 30*time.Second, 150*time.Second
	return cfg
}

func TestEveryChoiceExpiresExactlyTheDueTimers(t *testing.T) {
	t.Parallel()
	sums := map[uint64]bool{}
	for _, c := range []Choice{
		{time.Millisecond, 256, 4, 1},
		{time.Millisecond, 16, 2, 1}, // rounds
		{time.Millisecond, 2, 16, 3},
		{10 * time.Millisecond, 64, 4, 4},
		{100 * time.Millisecond, 1024, 1, 1},
		{7 * time.Millisecond, 256, 3, 2},
		{time.Hour, 4, 1, 1}, // nothing expires
	} {
		progress := 0.0
		r, err := Run(context.Background(), small(), timeout, c, func(share float64) { progress = share })
		require.NoError(t, err)
		assert.Empty(t, r.Verdict.Faults, "%v", c)
		assert.Equal(t, c, r.Choice)
		assert.Greater(t, progress, 0.98)
		sums[r.Counts.Sum] = true
		if c.Tick == time.Hour {
			assert.Zero(t, r.Verdict.Expired)
			continue
		}
		assert.Positive(t, r.Verdict.Expired, "%v", c)
		assert.LessOrEqual(t, r.Verdict.Expired, r.Counts.Silent)
		assert.GreaterOrEqual(t, r.Wakeups, r.Idle)
		assert.Positive(t, r.Wakeups-r.Idle)
		assert.Positive(t, r.Bytes)
		assert.Greater(t, r.Peak, 1000)
		assert.LessOrEqual(t, r.Peak, r.Counts.Most)
		assert.Greater(t, r.PerPeak, 28.0, "a node, an entry and a value")
	}
	assert.Len(t, sums, 1, "different traces")
}

func TestCoarserTicksWakeLessAndLargerWheelsMoveLess(t *testing.T) {
	t.Parallel()
	result := func(c Choice) Result {
		r, err := Run(context.Background(), small(), timeout, c, func(float64) {})
		require.NoError(t, err)
		return r
	}
	fine, coarse := result(Choice{time.Millisecond, 256, 4, 1}), result(Choice{100 * time.Millisecond, 256, 4, 1})
	assert.Less(t, coarse.Wakeups, fine.Wakeups)
	narrow := result(Choice{time.Millisecond, 8, 8, 1})
	assert.Greater(t, narrow.Moved, fine.Moved)
	shards := result(Choice{time.Millisecond, 256, 4, 4})
	assert.Greater(t, shards.Wakeups, fine.Wakeups)
	assert.Equal(t, shards.Peak, fine.Peak)
}

func TestRunRefusesBadOptions(t *testing.T) {
	t.Parallel()
	_, err := Run(context.Background(), small(), timeout, Choice{time.Millisecond, 100, 4, 1}, nil)
	assert.ErrorIs(t, err, timingwheel.ErrOption)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	progress := func(share float64) {
		if share > 0.5 {
			cancel()
		}
	}
	_, err := Run(ctx, small(), timeout, Choice{time.Millisecond, 256, 4, 1}, progress)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = TraceOnly(ctx, small())
	assert.ErrorIs(t, err, context.Canceled)
}

func TestTraceOnlyTakesTime(t *testing.T) {
	t.Parallel()
	took, err := TraceOnly(context.Background(), small())
	require.NoError(t, err)
	assert.Positive(t, took)
}

func TestSpan(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 256*time.Millisecond, Choice{Tick: time.Millisecond, WheelSize: 256, Levels: 1}.Span())
	assert.Equal(t, 1<<32*time.Millisecond, Choice{Tick: time.Millisecond, WheelSize: 256, Levels: 4}.Span())
	assert.Equal(t, time.Duration(math.MaxInt64), Choice{Tick: time.Millisecond, WheelSize: 256, Levels: 16}.Span())
}

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	const tick = int64(time.Millisecond)
	counts := trace.Counts{Live: 5, Silent: 3}
	right := func(c *check) {
		c.expect(7)
		c.expect(8)
		c.expired(8, 0, tick, true)
		c.expired(7, tick-1, tick, true)
	}
	for name, tt := range map[string]struct {
		do      func(c *check)
		pending int
		fault   string // empty: none
	}{
		"right":           {right, 6, ""},
		"one missing":     {func(c *check) { c.expect(7); c.expect(8); c.expired(8, 0, tick, true) }, 6, "1 timers expired, but 2"},
		"another timer":   {func(c *check) { c.expect(7); c.expired(9, 0, tick, true) }, 7, "other timers expired"},
		"early":           {func(c *check) { right(c); c.expect(9); c.expired(9, -1, tick, true) }, 5, "1 expired early"},
		"late":            {func(c *check) { right(c); c.expect(9); c.expired(9, tick, tick, true) }, 5, "1 expired a tick late"},
		"live connection": {func(c *check) { right(c); c.expired(1, 0, tick, false) }, 6, "1 expired of live"},
		"lost":            {func(c *check) { right(c); c.lost++ }, 6, "1 resets and stops"},
		"left over":       {right, 7, "7 timers are pending at the end, not 6"},
	} {
		var c check
		tt.do(&c)
		v := c.verdict(counts, tt.pending)
		if tt.fault == "" {
			assert.Empty(t, v.Faults, name)
			assert.Equal(t, 2, v.Expired)
			continue
		}
		assert.True(t, slices.ContainsFunc(v.Faults, func(f string) bool { return strings.HasPrefix(f, tt.fault) }), "%s: %v", name, v.Faults)
	}
}

// runningWheel plays a trace on a wheel with its own clock, in a synctest bubble.
type runningWheel struct {
	trace   *trace.Trace
	wheel   *timingwheel.Timeouts[uint32]
	timers  map[uint32]timingwheel.Timer
	silent  chan uint32 // slots whose timers have expired
	start   time.Time
	now     int64
	expired int
}

func (r *runningWheel) Turn(now int64) {
	r.now = now
	time.Sleep(time.Until(r.start.Add(time.Duration(now))))
	for len(r.silent) > 0 {
		r.trace.Release(<-r.silent)
		r.expired++
	}
}

func (r *runningWheel) Arrive(slot, _ uint32, at int64) {
	r.timers[slot] = r.wheel.Add(time.Duration(at-r.now)+timeout, slot)
}

func (r *runningWheel) Beat(slot uint32, at int64) {
	r.timers[slot].Reschedule(time.Duration(at-r.now) + timeout)
}
func (r *runningWheel) Leave(slot uint32, _ int64)   { r.timers[slot].Stop() }
func (r *runningWheel) Silence(slot uint32, _ int64) {}

// The wake-ups in Manual mode are about as many as for a running wheel. A running wheel has a few
// more, because it does not correct its alarm when the timer is stopped.
func TestRunningWheelWakesAsOftenAsInManualMode(t *testing.T) {
	t.Parallel()
	for _, c := range []Choice{{time.Millisecond, 256, 4, 1}, {10 * time.Millisecond, 64, 4, 1}, {100 * time.Millisecond, 1024, 1, 1}} {
		cfg := small()
		manual, err := Run(context.Background(), cfg, timeout, c, func(float64) {})
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) {
			r := &runningWheel{trace: trace.New(cfg), timers: map[uint32]timingwheel.Timer{}, silent: make(chan uint32, cfg.Conns), start: time.Now()}
			opts := timingwheel.Options{Tick: c.Tick, WheelSize: c.WheelSize, Levels: c.Levels, Shards: c.Shards}
			r.wheel, err = timingwheel.NewTimeouts(opts, func(expired []uint32) {
				for _, slot := range expired {
					r.silent <- slot
				}
			})
			require.NoError(t, err)
			require.NoError(t, r.trace.Run(context.Background(), r))
			r.Turn(int64(cfg.For))
			synctest.Wait()
			st := r.wheel.Stats()
			t.Logf("%v: %d wake-ups in Manual mode, %d of a running wheel; moved %d and %d", c, manual.Wakeups, st.Wakeups, manual.Moved, st.Moved)
			assert.InEpsilon(t, manual.Wakeups, st.Wakeups, 0.1)
			assert.InEpsilon(t, manual.Moved+1, st.Moved+1, 0.1)
			assert.InDelta(t, manual.Verdict.Expired, r.expired, 1)
			r.wheel.Stop()
		})
	}
}
