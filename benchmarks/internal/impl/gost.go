package impl

import (
	"runtime"
	"time"

	gxtime "github.com/dubbogo/gost/time"
)

// Gost is the timer wheel of dubbogo's gost: a sorted list for each of five spans, owned by one
// goroutine that takes requests from a queue. The queue has no bound, but a call fails if 41
// requests wait for the goroutine that fills the queue. Reset counts from the time of arming.
var Gost = Implementation[*gxtime.Timer]{
	Traits: Traits{
		Name: "gost", Title: "gost gxtime.TimerWheel", Module: "github.com/dubbogo/gost",
		Tick: 10 * time.Millisecond, Stop: MayDrop, Reset: MayDrop,
		Population: "queues adds, and another goroutine inserts the timers later",
		Note: "fixed tick; drops adds, stops and resets if too many requests wait (an add reports that, and the adapter " +
			"retries it; stops and resets do not report it); a reset counts from arming; the adapter waits for the first ticks",
	},
	Open: func(Config) (Timers[*gxtime.Timer], error) {
		w := gxtime.NewTimerWheel()
		time.Sleep(50 * time.Millisecond) // before the first tick its clock shows the start of the process
		return gost{w}, nil
	},
}

type gost struct{ w *gxtime.TimerWheel }

// After retries while the call fails. After Close it always fails.
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
