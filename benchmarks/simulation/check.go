package simulation

import (
	"fmt"

	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

// Verdict is the result of the check: exactly the due timers must expire, each in time.
type Verdict struct {
	Expired int      // timers
	Faults  []string // empty if all is correct
}

// check compares the expired timers with the trace. It compares the two sets of connections by sums
// of hashed numbers, so it keeps neither set.
type check struct {
	due, fired       int // timers that must expire before the end; timers that expired
	dueSum, firedSum uint64
	early, late      int // timers that expired before the deadline; a tick or more after it
	live             int // timers of live connections that expired, or that expired twice
	lost             int // calls to Reschedule or Stop that returned false for a live connection
}

func (c *check) expect(number uint32) {
	c.due++
	c.dueSum += hash(number)
}

func (c *check) expired(number uint32, late, tick int64, silent bool) {
	c.fired++
	c.firedSum += hash(number)
	switch {
	case !silent:
		c.live++
	case late < 0:
		c.early++
	case late >= tick:
		c.late++
	}
}

// verdict returns the result at the end of the trace, with the number of pending timers.
func (c *check) verdict(n trace.Counts, pending int) Verdict {
	v := Verdict{Expired: c.fired}
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
		}
	}
	fault(c.fired != c.due, "%d timers expired, but %d were due", c.fired, c.due)
	fault(c.firedSum != c.dueSum, "other timers expired than were due: checksum %x, not %x", c.firedSum, c.dueSum)
	fault(c.early > 0, "%d expired early", c.early)
	fault(c.late > 0, "%d expired a tick late or more", c.late)
	fault(c.live > 0, "%d expired of live connections, or twice", c.live)
	fault(c.lost > 0, "%d resets and stops found no timer", c.lost)
	left := n.Live + n.Silent - c.due
	fault(pending != left, "%d timers are pending at the end, not %d", pending, left)
	return v
}

// hash returns a hash of a number. The sums of two different sets are equal in one case of 2^64.
func hash(number uint32) uint64 {
	x := (uint64(number) + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
