package impl

import (
	"time"

	timewheel "github.com/rfyiamcool/go-timewheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/race"
)

// Rfyiamcool is one wheel that counts rounds: a map of timers for each slot, one lock, and a
// ticker. Add returns a task that can be removed, and AfterFunc a larger timer that can also be
// reset. The adapter calls AfterFunc only if the workload resets timers.
var Rfyiamcool = Implementation[rfyiamcoolHandle]{
	Traits: Traits{
		Name: "rfyiamcool", Title: "rfyiamcool/go-timewheel", Module: "github.com/rfyiamcool/go-timewheel",
		Tick: time.Millisecond, Stop: NoResult, Reset: NoResult, Unsupported: rfyiamcoolUnsupported(),
		Note: "tick, and slots for a minute, chosen by the adapter; `Add` and `Remove`, or `AfterFunc` in workloads that " +
			"reset timers; allocates the slots in advance; a goroutine for each callback; `Timer` has data races",
	},
	Open: func(c Config) (Timers[rfyiamcoolHandle], error) {
		w, err := timewheel.NewTimeWheel(c.Tick, int(time.Minute/c.Tick))
		if err != nil {
			return nil, err
		}
		w.Start()
		return rfyiamcool{w, c.Resets}, nil
	},
}

// Exactly one field of an rfyiamcoolHandle is set.
type rfyiamcoolHandle struct {
	task  *timewheel.Task
	timer *timewheel.Timer
}

// A Timer is written to when it is stopped or reset, while the goroutine of the wheel may read it.
func rfyiamcoolUnsupported() string {
	if race.Enabled {
		return "has data races, which the race detector would report"
	}
	return ""
}

// The package starts a wheel when it is initialised. The ticker of that wheel would wake the
// processes in which other implementations are measured.
func init() {
	timewheel.DefaultTimeWheel.Stop()
	timewheel.DefaultTimeWheel = nil
}

type rfyiamcool struct {
	w      *timewheel.TimeWheel
	timers bool // with AfterFunc instead of Add
}

func (r rfyiamcool) After(d time.Duration, _ uint64, f func()) rfyiamcoolHandle {
	if r.timers {
		return rfyiamcoolHandle{timer: r.w.AfterFunc(d, f)}
	}
	return rfyiamcoolHandle{task: r.w.Add(d, f)}
}

// Stop ignores the error of Remove, which is always nil.
func (r rfyiamcool) Stop(h rfyiamcoolHandle) bool {
	if r.timers {
		h.timer.Stop()
	} else {
		_ = r.w.Remove(h.task)
	}
	return false
}

func (r rfyiamcool) Reset(h rfyiamcoolHandle, d time.Duration) bool {
	h.timer.Reset(d)
	return false
}

func (r rfyiamcool) Close() { r.w.Stop() }
