package simulation

import (
	"fmt"

	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

// Verdict says whether exactly the right timers expired, each at the right time.
type Verdict struct {
	Expired int      // timers of connections that had fallen silent
	Faults  []string // empty: all is right
}

// check compares what expires with what the trace says. Sums of the connections' numbers tell one set of them
// from another without keeping either.
type check struct {
	due, fired       int // fell silent so early that it must expire; expired
	dueSum, firedSum uint64
	early, late      int // before the deadline; a tick or more after it
	living           int // expired although it had not fallen silent, or for the second time
	lost             int // calls of Reschedule or Stop for a living one that returned false
}

func (c *check) expect(number uint32) {
	c.due++
	c.dueSum += spread(number)
}

func (c *check) expired(number uint32, late, tick int64, silent bool) {
	c.fired++
	c.firedSum += spread(number)
	switch {
	case !silent:
		c.living++
	case late < 0:
		c.early++
	case late >= tick:
		c.late++
	}
}

// judge is called at the end, with what is still pending.
func (c *check) judge(n trace.Counts, pending int) Verdict {
	v := Verdict{Expired: c.fired}
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
		}
	}
	fault(c.fired != c.due, "%d timers expired, %d connections had fallen silent so early that theirs had to", c.fired, c.due)
	fault(c.firedSum != c.dueSum, "others expired than had to: checksum %x, not %x", c.firedSum, c.dueSum)
	fault(c.early > 0, "%d expired early", c.early)
	fault(c.late > 0, "%d expired a tick late or more", c.late)
	fault(c.living > 0, "%d expired that had not fallen silent, or twice", c.living)
	fault(c.lost > 0, "%d resets and stops found no timer", c.lost)
	left := n.Live + n.Silent - c.due
	fault(pending != left, "%d timers are pending at the end, should be %d", pending, left)
	return v
}

// spread makes a sum of numbers differ wherever the sets do, but for one case in 2^64.
func spread(number uint32) uint64 {
	x := (uint64(number) + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
