package impl

import (
	"strconv"
	"time"

	"github.com/antlabs/timer"
)

// Antlabs is a timing wheel modelled on the one in Linux: five wheels with a lock per slot,
// and a ticker.
//
// Its Reset holds the lock of the old slot while it puts the timer into the new slot, so it
// deadlocks if both slots are the same. Its Stop returns true for a timer that was already stopped,
// and false for a timer that it stops during a move between two wheels.
var Antlabs = Implementation[timer.TimeNoder]{
	Traits: Traits{
		Name: "antlabs", Title: "antlabs/timer, time wheel", Module: "github.com/antlabs/timer",
		Tick: 10 * time.Millisecond, Stop: WrongResults, Reset: MayDeadlock, Unsupported: antlabsUnsupported(),
		Note: "fixed tick; arming does not read the clock; a goroutine for each callback",
	},
	Open: func(Config) (Timers[timer.TimeNoder], error) {
		w := timer.NewTimer(timer.WithTimeWheel())
		go w.Run()
		return antlabs{w}, nil
	},
}

func antlabsUnsupported() string {
	if strconv.IntSize < 64 {
		return "panics on 32-bit machines, because its 64-bit atomics are not aligned"
	}
	return ""
}

type antlabs struct{ w timer.Timer }

// After replaces a negative delay by zero: the library takes a negative delay for a very long one.
func (a antlabs) After(d time.Duration, _ uint64, f func()) timer.TimeNoder {
	return a.w.AfterFunc(max(d, 0), f)
}
func (antlabs) Stop(t timer.TimeNoder) bool               { return t.Stop() }
func (antlabs) Reset(timer.TimeNoder, time.Duration) bool { return false }
func (a antlabs) Close()                                  { a.w.Stop() }
