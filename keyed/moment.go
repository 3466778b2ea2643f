package keyed

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// moment is when a key is to expire: after a duration from now, which needs one reading of the clock and no time.Time, or at a fixed time.
type moment struct {
	after time.Duration
	at    time.Time
	fixed bool
}

// reschedule moves a pending timer.
func reschedule(t timingwheel.Timer, when moment) bool {
	if when.fixed {
		return t.RescheduleAt(when.at)
	}
	return t.Reschedule(when.after)
}

// arm makes a timer for key: the zero Timer where the wheel is stopped.
func arm[K comparable](w *timingwheel.Timeouts[K], key K, when moment) timingwheel.Timer {
	if when.fixed {
		return w.AddAt(when.at, key)
	}
	return w.Add(when.after, key)
}
