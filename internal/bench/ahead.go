package bench

import (
	"errors"
	"fmt"
	"time"
)

// ErrTooSlow means that timers were due before all timers had been armed.
var ErrTooSlow = errors.New("arming the timers took longer than the time until they were due")

// maxAhead is the longest time for which InTime arms timers ahead.
const maxAhead = 32 * time.Second

// InTime arms n timers before the first of them is due. It calls arm with the time until then,
// which is at first ahead. If the time is too short, arm stops its timers and returns ErrTooSlow
// and the number of timers that it had armed. InTime then calls arm with two to four times as much
// time, and returns ErrTooSlow if maxAhead is not enough.
func InTime(n int, ahead time.Duration, arm func(ahead time.Duration) (armed int, err error)) error {
	for {
		armed, err := arm(ahead)
		switch {
		case !errors.Is(err, ErrTooSlow):
			return err
		case ahead >= maxAhead:
			return fmt.Errorf("%w (%v)", ErrTooSlow, maxAhead)
		}
		factor := 1.5 * float64(n) / float64(max(armed, 1))
		factor = min(max(factor, 2), 4) // a single stall of the machine must not dominate
		ahead = min(time.Duration(factor*float64(ahead)), maxAhead)
	}
}
