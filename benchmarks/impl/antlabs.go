package impl

import (
	"strconv"
	"time"

	"github.com/antlabs/timer"
)

// Antlabs is a timing wheel after Linux's: five wheels with a lock for each slot, and a ticker.
//
// Its Reset holds the lock of the timer's slot while it puts the timer into the new one, and waits
// for itself for ever if both are the same. Its Stop is true for a timer that was stopped before,
// and false for one that it stops while the timer moves between two wheels.
var Antlabs = Implementation[timer.TimeNoder]{
	Traits: Traits{
		Name: "antlabs", Title: "antlabs/timer, time wheel", Module: "github.com/antlabs/timer",
		Tick: 10 * time.Millisecond, Stop: Wrong, Reset: Deadlocked, Unfit: antlabsUnfit(),
		Note: "its tick is fixed; arming reads no clock; a goroutine for each callback",
	},
	Open: func(Config) (Timers[timer.TimeNoder], error) {
		w := timer.NewTimer(timer.WithTimeWheel())
		go w.Run()
		return antlabs{w}, nil
	},
}

func antlabsUnfit() string {
	if strconv.IntSize < 64 {
		return "panics on 32-bit machines, as its 64-bit atomics are not aligned"
	}
	return ""
}

type antlabs struct{ w timer.Timer }

// After arms a timer that is due at once for an overdue one: the library takes a delay below zero
// for a very long one.
func (a antlabs) After(d time.Duration, _ uint64, f func()) timer.TimeNoder {
	return a.w.AfterFunc(max(d, 0), f)
}
func (antlabs) Stop(t timer.TimeNoder) bool               { return t.Stop() }
func (antlabs) Reset(timer.TimeNoder, time.Duration) bool { return false }
func (a antlabs) Close()                                  { a.w.Stop() }
