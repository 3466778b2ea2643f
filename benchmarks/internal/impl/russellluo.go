package impl

import (
	"time"

	"github.com/RussellLuo/timingwheel"
)

// RussellLuo is a timing wheel modelled on Kafka's: wheels that overflow into coarser ones,
// and a heap of buckets that drives the clock.
var RussellLuo = Implementation[*timingwheel.Timer]{
	Traits: Traits{
		Name: "russellluo", Title: "RussellLuo/timingwheel", Module: "github.com/RussellLuo/timingwheel",
		Tick: time.Millisecond, Stop: Exact,
		Note: "tick and 512 slots chosen by the adapter; truncates deadlines to a tick of the wall clock; Stop " +
			"fails, and returns false, while a timer changes buckets; a goroutine per callback",
	},
	Open: func(c Config) (Timers[*timingwheel.Timer], error) {
		w := timingwheel.NewTimingWheel(c.Tick, 512)
		w.Start()
		return russellLuo{w}, nil
	},
}

type russellLuo struct{ w *timingwheel.TimingWheel }

func (r russellLuo) After(d time.Duration, _ uint64, f func()) *timingwheel.Timer {
	return r.w.AfterFunc(d, f)
}
func (russellLuo) Stop(t *timingwheel.Timer) bool               { return t.Stop() }
func (russellLuo) Reset(*timingwheel.Timer, time.Duration) bool { return false }
func (r russellLuo) Close()                                     { r.w.Stop() }
