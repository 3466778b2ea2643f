package bench

import (
	"errors"
	"fmt"
	"time"
)

// ErrTooSlow says that timers were due before all of them had been armed.
var ErrTooSlow = errors.New("arming them took longer than the time until they were due")

const maxAhead = 32 * time.Second

// InTime arms n timers before the first of them is due. It calls arm with the time that is left
// until then, at first ahead. If that is too short, arm undoes its work and returns ErrTooSlow and
// how many timers it has armed, and InTime calls it again with two to four times as much. It gives
// up with ErrTooSlow when maxAhead is not enough.
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
		factor = min(max(factor, 2), 4) // a machine that stood still for a moment says little
		ahead = min(time.Duration(factor*float64(ahead)), maxAhead)
	}
}
