package impl

import (
	"runtime"
	"time"

	gxtime "github.com/dubbogo/gost/time"
)

// Gost is the timer wheel of dubbogo's gost: a sorted list for each of five spans, and one goroutine
// that is asked through a channel.
var Gost = Implementation[*gxtime.Timer]{
	Traits: Traits{
		Name: "gost", Title: "gost gxtime.TimerWheel", Module: "github.com/dubbogo/gost",
		Tick: 10 * time.Millisecond, Stop: Lossy, Reset: Lossy,
		Note: "its tick is fixed; adds, stops and resets that find its queue of 128 full are dropped (the adapter repeats " +
			"adds, which tell; stops and resets do not)",
	},
	Open: func(Config) (Timers[*gxtime.Timer], error) { return gost{gxtime.NewTimerWheel()}, nil },
}

type gost struct{ w *gxtime.TimerWheel }

// After tries again as long as the queue is full; it is full for ever after Close.
func (g gost) After(d time.Duration, _ uint64, f func()) *gxtime.Timer {
	for {
		if t := g.w.AfterFunc(d, f); t != nil {
			return t
		}
		runtime.Gosched()
	}
}

func (gost) Stop(t *gxtime.Timer) bool {
	t.Stop()
	return false
}

func (gost) Reset(t *gxtime.Timer, d time.Duration) bool {
	t.Reset(d)
	return false
}

func (g gost) Close() { g.w.Stop() }
