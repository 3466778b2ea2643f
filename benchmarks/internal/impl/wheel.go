package impl

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Wheel is timingwheel.TimingWheel with default options.
var Wheel = Implementation[timingwheel.Timer]{
	Traits: Traits{
		Name: "wheel", Title: "timingwheel.TimingWheel",
		Tick: time.Millisecond, Stop: Exact, Reset: Exact,
		Note: "default options",
	},
	Open: func(c Config) (Timers[timingwheel.Timer], error) {
		return openWheel(timingwheel.Options{Tick: c.Tick})
	},
}

// Manual is timingwheel.TimingWheel in Manual mode.
var Manual = Implementation[timingwheel.Timer]{
	Traits: Traits{
		Name: "manual", Title: "timingwheel.TimingWheel, Manual",
		Tick: time.Millisecond, Stop: Exact, Reset: Exact, Manual: true,
		Note: "for event loops: the caller drives the clock",
	},
	Open: func(Config) (Timers[timingwheel.Timer], error) {
		return openWheel(timingwheel.Options{Manual: true})
	},
}

type wheel struct{ tw *timingwheel.TimingWheel }

func openWheel(opts timingwheel.Options) (Timers[timingwheel.Timer], error) {
	tw, err := timingwheel.New(opts)
	return wheel{tw}, err
}

func (w wheel) After(d time.Duration, _ uint64, f func()) timingwheel.Timer {
	return w.tw.AfterFunc(d, f)
}
func (wheel) Stop(t timingwheel.Timer) bool                   { return t.Stop() }
func (wheel) Reset(t timingwheel.Timer, d time.Duration) bool { return t.Reschedule(d) }
func (w wheel) Close()                                        { w.tw.Stop() }
