package impl

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Timeouts is timingwheel.Timeouts, the wheel of values of this library.
var Timeouts = Implementation[timingwheel.Timer]{
	Traits: Traits{
		Name: "timeouts", Title: "timingwheel.Timeouts[uint64]",
		Tick: time.Millisecond, Stop: Exact, Reset: Exact, Values: true,
		Note: "a value for each timer instead of a function",
	},
	Open: func(c Config) (Timers[timingwheel.Timer], error) {
		w, err := timingwheel.NewTimeouts(timingwheel.Options{}, func(expired []uint64) {
			for _, id := range expired {
				c.Fire(id)
			}
		})
		return timeouts{w}, err
	},
}

type timeouts struct {
	w *timingwheel.Timeouts[uint64]
}

func (t timeouts) After(d time.Duration, id uint64, _ func()) timingwheel.Timer {
	return t.w.Add(d, id)
}
func (timeouts) Stop(h timingwheel.Timer) bool                   { return h.Stop() }
func (timeouts) Reset(h timingwheel.Timer, d time.Duration) bool { return h.Reschedule(d) }
func (t timeouts) Close()                                        { t.w.Stop() }
