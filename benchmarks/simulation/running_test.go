package simulation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

// running plays a trace on a wheel that drives itself, in a bubble in which time passes at once.
type running struct {
	trace   *trace.Trace
	wheel   *timingwheel.Timeouts[uint32]
	timers  map[uint32]timingwheel.Timer
	silent  chan uint32 // slots whose timers have expired
	start   time.Time
	now     int64
	expired int
}

func (r *running) Turn(now int64) {
	r.now = now
	time.Sleep(time.Until(r.start.Add(time.Duration(now))))
	for len(r.silent) > 0 {
		r.trace.Release(<-r.silent)
		r.expired++
	}
}

func (r *running) Arrive(slot, _ uint32, at int64) {
	r.timers[slot] = r.wheel.Add(time.Duration(at-r.now)+timeout, slot)
}

func (r *running) Beat(slot uint32, at int64) {
	r.timers[slot].Reschedule(time.Duration(at-r.now) + timeout)
}
func (r *running) Leave(slot uint32, _ int64)   { r.timers[slot].Stop() }
func (r *running) Silence(slot uint32, _ int64) {}

// What is counted in Manual mode are the wake-ups that a running wheel has, but for a few that find nothing due: those
// of alarms that were not corrected when their timer was stopped.
func TestRunningWheelWakesAsOften(t *testing.T) {
	t.Parallel()
	for _, c := range []Choice{{time.Millisecond, 256, 4, 1}, {10 * time.Millisecond, 64, 4, 1}, {100 * time.Millisecond, 1024, 1, 1}} {
		cfg := small()
		manual, err := Run(context.Background(), cfg, timeout, c, func(float64) {})
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) {
			r := &running{trace: trace.New(cfg), timers: map[uint32]timingwheel.Timer{}, silent: make(chan uint32, cfg.Conns), start: time.Now()}
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
