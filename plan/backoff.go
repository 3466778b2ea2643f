package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Backoff plans runs with pauses that double: first before the first run, 2×first between the end of that and the
// start of the second, and so on, never more than max. It is for retries, that is for an f that stops its plan when
// it has succeeded. [Jitter] goes around it, [Limit] ends it. It panics where first is not positive or max less
// than first.
func Backoff(first, max time.Duration) timingwheel.Scheduler { return BackoffBy(2, first, max) }

// BackoffBy is Backoff with another factor than 2. It panics where the factor is less than 1, infinite or not a number.
func BackoffBy(factor float64, first, max time.Duration) timingwheel.Scheduler {
	mustBePositive("Backoff: first", first)
	if max < first {
		panic(fmt.Sprintf("plan: Backoff: max is %v; accepted is first, which is %v, or more", max, first))
	}
	if !(factor >= 1) || math.IsInf(factor, 1) {
		panic(fmt.Sprintf("plan: BackoffBy: factor is %v; accepted is a finite number from 1", factor))
	}
	return pausing(func(n int) time.Duration {
		pause := float64(first) * math.Pow(factor, float64(n))
		if pause >= float64(max) {
			return max
		}
		return time.Duration(pause)
	})
}
