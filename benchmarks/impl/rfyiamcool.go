package impl

import (
	"time"

	timewheel "github.com/rfyiamcool/go-timewheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/race"
)

// Rfyiamcool is one wheel that counts rounds: a map of timers for each slot, one lock, and a
// ticker. Its Reset marks the timer as stopped and arms another one.
var Rfyiamcool = Implementation[*timewheel.Timer]{
	Traits: Traits{
		Name: "rfyiamcool", Title: "rfyiamcool/go-timewheel", Module: "github.com/rfyiamcool/go-timewheel",
		Tick: time.Millisecond, Stop: NoResult, Reset: NoResult, Unsupported: rfyiamcoolUnsupported(),
		Note: "tick 1 ms and 60,000 slots, both chosen by the adapter; a channel and a context for each timer, a goroutine " +
			"for each callback; has data races",
	},
	Open: func(Config) (Timers[*timewheel.Timer], error) {
		const slots = 60_000 // a minute
		w, err := timewheel.NewTimeWheel(time.Millisecond, slots)
		if err != nil {
			return nil, err
		}
		w.Start()
		return rfyiamcool{w}, nil
	},
}

// Stop and Reset write to a timer while the goroutine of the wheel may read it.
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

type rfyiamcool struct{ w *timewheel.TimeWheel }

func (r rfyiamcool) After(d time.Duration, _ uint64, f func()) *timewheel.Timer {
	return r.w.AfterFunc(d, f)
}

func (rfyiamcool) Stop(t *timewheel.Timer) bool {
	t.Stop()
	return false
}

func (rfyiamcool) Reset(t *timewheel.Timer, d time.Duration) bool {
	t.Reset(d)
	return false
}

func (r rfyiamcool) Close() { r.w.Stop() }
