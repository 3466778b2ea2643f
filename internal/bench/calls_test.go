package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// script is a clock that advances by reading at each reading, with a scheduler that runs only in
// yield.
type script struct {
	now    time.Duration
	yields []time.Duration
}

const reading = 10 * time.Microsecond

func (s *script) caller() *caller {
	return &caller{
		clock: func() time.Duration { s.now += reading; return s.now },
		yield: func() { s.yields = append(s.yields, s.now) },
	}
}

// until returns true until the clock reads end.
func (s *script) until(end time.Duration) func() bool { return func() bool { return s.now < end } }

func TestCallsCountOnlyEarlyInTimeSlice(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.caller()
	made := 0
	c.repeat(func() { made++ }, s.until(15*time.Millisecond))
	assert.Equal(t, 75, made, "a call every 200 µs")
	assert.Len(t, c.took, perSlice, "calls in the first 9 ms")
	assert.Len(t, s.yields, 1, "yields, at the beginning")
}

// perSlice is the number of calls that count in a time slice. No call begins in the first 200 µs.
const perSlice = 44

func TestCallerYieldsIfAgeOfSliceIsUnknown(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.caller()
	c.repeat(func() {}, s.until(35*time.Millisecond))
	assert.Len(t, s.yields, 2)
	assert.Len(t, c.took, 2*perSlice)
}

// jump advances the clock by length at the first reading after at, as if another goroutine had the
// processor for this time.
func (s *script) jump(c *caller, at, length time.Duration) {
	clock, done := c.clock, false
	c.clock = func() time.Duration {
		if s.now >= at && !done {
			done = true
			s.now += length
		}
		return clock()
	}
}

func TestGapBeginsTimeSlice(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.caller()
	s.jump(c, 12*time.Millisecond+callInterval/2, 40*time.Millisecond)
	c.repeat(func() {}, s.until(65*time.Millisecond))
	assert.Len(t, c.took, 2*perSlice)
	assert.Len(t, s.yields, 1)
}

// The operating system runs another thread for 7 ms. The time slice has ended by then, so the
// scheduler preempts the goroutine as soon as it runs again.
func TestCallerIsPreemptedBeforeAndNotDuringACall(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.caller()
	s.jump(c, 5*time.Millisecond+callInterval/2, 7*time.Millisecond)
	s.jump(c, 12*time.Millisecond+callInterval/2+3*reading, 100*time.Millisecond)
	c.repeat(func() {}, s.until(125*time.Millisecond))
	assert.Less(t, slices.Max(c.took), tooLong)
	assert.Len(t, s.yields, 1)
}

func TestPreemptedCallDoesNotCount(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.caller()
	made := 0
	c.repeat(func() {
		if made++; made == 60 {
			s.now += 40 * time.Millisecond
		}
	}, s.until(53*time.Millisecond))
	assert.Less(t, slices.Max(c.took), tooLong)
	assert.Len(t, s.yields, 2)
}

func TestLongCallCountsAndIsFollowedByNewTimeSlice(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.caller()
	made := 0
	c.repeat(func() {
		if made++; made == 10 {
			s.now += 30 * time.Millisecond // the call waits
		}
	}, s.until(43*time.Millisecond))
	assert.Contains(t, c.took, 30*time.Millisecond+reading)
	assert.Len(t, s.yields, 2)
	assert.Len(t, c.took, 10+perSlice)
}

func TestCallsBeforeTheFirstTimerIsDueDoNotCount(t *testing.T) {
	t.Parallel()
	s := &script{now: -8 * time.Millisecond}
	c := s.caller()
	c.repeat(func() {}, s.until(10*time.Millisecond))
	assert.Len(t, c.took, 5, "the slice is 8 ms old when the first timer is due")
}

func TestCallFiguresOfSeveralCallers(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	callers := []caller{{took: []time.Duration{1, 2 * ms, ms}}, {took: []time.Duration{1}}}
	assert.Equal(t, []Figure{{25, "over-1ms-%"}, {1, "p99.9-ms"}, {2, "worst-ms"}, {4, "calls"}}, callFigures(callers))
}
