package timingwheel

import (
	"context"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// FuncTimers in the model of model_test.go. Callbacks, flushes, executors and panics are the same
// as for other timers. FuncTimers can also be armed again after they have fired or were stopped.

// modelFunc is the additional state of a FuncTimer in the reference.
type modelFunc struct {
	FuncTimer
	timeout int64
	calls   int // calls under way
}

// addFuncTimer adds a FuncTimer that is not armed.
func (m *model) addFuncTimer(shard int) *modelTimer {
	e := &modelTimer{id: len(m.all), shard: shard, at: -1, fn: new(modelFunc)}
	m.all = append(m.all, e)
	m.sut.initFunc(&e.fn.FuncTimer, func() {
		e.fn.calls++
		defer func() { e.fn.calls-- }()
		m.callback([]int{e.id})
	})
	return e
}

// actOnFunc makes a random call to a FuncTimer, or adds one.
func (m *model) actOnFunc(e *modelTimer, shard int) {
	op := m.pick.below(12)
	switch d := m.delay(); {
	case e == nil || op < 1:
		m.resetFunc(m.addFuncTimer(shard), d)
	case op < 4:
		m.resetFunc(e, d)
	case op < 6:
		m.stopTimer(e)
	case op < 8:
		m.touchFunc(e, m.now, e.fn.Touch)
	case op < 10:
		at := m.readingNear(d)
		m.touchFunc(e, at, func() bool { return e.fn.TouchFrom(m.time(at)) })
	case op < 11:
		m.stopWaitFunc(e)
	default:
		m.checkDeadline(e)
	}
}

func (m *model) resetFunc(e *modelTimer, d time.Duration) {
	pending := e.at >= 0
	m.sut.sendTo(e.shard)
	if got := e.fn.Reset(d); got != pending {
		m.failf("FuncTimer %d: Reset: %v", e.id, got)
	}
	e.fn.timeout = int64(d)
	if m.stopped {
		return
	}
	if pending {
		m.want.Postponed++
	} else {
		m.want.Armed++
		e.at = len(m.pending)
		m.pending = append(m.pending, e)
	}
	m.armed(e, m.delayed(d))
}

// touchFunc touches e with the reading of the clock at. touch calls Touch or TouchFrom.
func (m *model) touchFunc(e *modelTimer, at int64, touch func() bool) {
	if got := touch(); got != (e.at >= 0) {
		m.failf("FuncTimer %d: Touch: %v", e.id, got)
	}
	deadline := clock.Saturated(at, max(e.fn.timeout, 0))
	tick := deadline / int64(m.cfg.tick)
	if deadline%int64(m.cfg.tick) != 0 {
		tick++
	}
	tick = min(tick, clock.LastTick)
	if e.at < 0 || tick <= max(e.tick, m.tickOf()) {
		return
	}
	m.want.Postponed++
	m.armed(e, deadline)
	e.tick = tick // even if the deadline has passed within this tick
}

// stopWaitFunc calls StopWait with a context that has ended, because the caller may be inside a
// call to the timer's function.
func (m *model) stopWaitFunc(e *modelTimer) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.fn.StopWait(ctx); (err != nil) != (e.fn.calls+e.flushed > 0) {
		m.failf("FuncTimer %d with %d calls under way: StopWait: %v", e.id, e.fn.calls, err)
	}
	if e.at >= 0 {
		m.forget(e)
		m.want.Stopped++
	}
}

// Most timers of these runs are FuncTimers.
func TestModelFuncTimers(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(1_000) {
		pick := newSeeded(seed, 40)
		m := newWheelModel(t, modelChoice(pick), pick)
		m.funcs = true
		m.play()
	}
}

// FuzzFuncTimers is FuzzEngine with mostly FuncTimers.
func FuzzFuncTimers(f *testing.F) {
	fuzzModel(f, func(t *testing.T, c modelConfig, pick choices) {
		m := newWheelModel(t, c, pick)
		m.funcs = true
		m.play()
	})
}
