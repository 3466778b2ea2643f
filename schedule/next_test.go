package schedule

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel"
)

// nexts asks s for n run times, each with the result before it.
func nexts(s timingwheel.Scheduler, n int) (ms []int) {
	at := midnight
	for range n {
		if at = s.Next(at); at.IsZero() {
			return ms
		}
		ms = append(ms, int(at.Sub(midnight)/time.Millisecond))
	}
	return ms
}

func TestNextOfEachWrapper(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		s    timingwheel.Scheduler
		want []int
	}{
		"fixed rate":  {timingwheel.Every(10 * ms), []int{10, 20, 30, 40}},
		"fixed delay": {FixedDelay(10 * ms), []int{10, 20, 30, 40}},
		"aligned":     {Aligned(10*ms, time.UTC), []int{10, 20, 30, 40}},
		"backoff":     {Backoff(10*ms, 35*ms), []int{10, 30, 65, 100}},
		"jitter":      {jitter(timingwheel.Every(10*ms), draws(5, 1)), []int{15, 21, 35, 41}},
		"limit":       {Limit(timingwheel.Every(10*ms), 2), []int{10, 20}},
		"limit of 0":  {Limit(timingwheel.Every(10*ms), 0), nil},
		"until":       {Until(timingwheel.Every(10*ms), midnight.Add(30*ms)), []int{10, 20, 30}},
		"misfire":     {WithMisfire(timingwheel.Every(10*ms), RunAll), []int{10, 20, 30, 40}},
		"overlap":     {WithOverlap(timingwheel.Every(10*ms), Allow), []int{10, 20, 30, 40}},
		"chain":       {Limit(Until(Backoff(10*ms, 35*ms), midnight.Add(time.Hour)), 3), []int{10, 30, 65}},
	} {
		assert.Equal(t, row.want, nexts(row.s, 4), name)
		if len(row.want) < 4 {
			assert.Zero(t, row.s.Next(midnight.Add(time.Hour)), "%s has ended", name)
		}
	}
}

// A late call returns the first run after its time, in phase.
func TestNextSkipsMissedRunsInPhase(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return midnight.Add(d * ms) }
	s := Limit(timingwheel.Every(10*ms), 4)
	assert.Equal(t, at(13), s.Next(at(3)))
	assert.Equal(t, at(53), s.Next(at(48)))
	assert.Equal(t, at(63), s.Next(at(53)))
	assert.Equal(t, at(67), s.Next(at(57)), "a time before the last result starts a new phase")
	assert.Zero(t, s.Next(at(67)))
}

// The calls to Next are one plan. Plans of a wheel that use the same value count separately.
func TestCallsOfNextDoNotCountForPlans(t *testing.T) {
	t.Parallel()
	s := Limit(timingwheel.Every(10*ms), 2)
	assert.Equal(t, []int{10, 20}, nexts(s, 5))
	tw := newManualWheel(t)
	runs := 0
	tw.ScheduleFunc(s, func() { runs++ })
	for at := time.Duration(0); at < 100*ms; at += 10 * ms {
		advance(tw, at)
	}
	assert.Equal(t, 2, runs)
}

func TestConcurrentCallsOfNextShareOneLimit(t *testing.T) {
	t.Parallel()
	s := Limit(Jitter(timingwheel.Every(10*ms), ms), 1000)
	var all sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		all.Go(func() {
			for !s.Next(midnight).IsZero() {
				counts[i]++
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	assert.Equal(t, 1000, sum)
}

func TestBadArgumentsPanic(t *testing.T) {
	t.Parallel()
	ok := timingwheel.Every(time.Second)
	for want, f := range map[string]func(){
		"schedule: FixedDelay: d is -1s; it must be positive":                                             func() { FixedDelay(-time.Second) },
		"schedule: Aligned: d is 0s; it must be positive":                                                 func() { Aligned(0, time.UTC) },
		"schedule: Aligned: loc is nil; it must be time.Local, time.UTC or a result of time.LoadLocation": func() { Aligned(time.Hour, nil) },
		"schedule: AlignedAt: offset is 1h0m0s; it must be at least 0 and less than d, which is 1h0m0s":   func() { AlignedAt(time.Hour, time.Hour, time.UTC) },
		"schedule: AlignedAt: offset is -1ns; it must be at least 0 and less than d, which is 1h0m0s":     func() { AlignedAt(time.Hour, -1, time.UTC) },
		"schedule: Backoff: first is 0s; it must be positive":                                             func() { Backoff(0, time.Second) },
		"schedule: Backoff: max is 1s; it must not be less than first, which is 2s":                       func() { Backoff(2*time.Second, time.Second) },
		"schedule: BackoffBy: factor is 0.5; it must be finite and at least 1":                            func() { BackoffBy(0.5, 1, 2) },
		"schedule: BackoffBy: factor is NaN; it must be finite and at least 1":                            func() { BackoffBy(math.NaN(), 1, 2) },
		"schedule: BackoffBy: factor is +Inf; it must be finite and at least 1":                           func() { BackoffBy(math.Inf(1), 1, 2) },
		"schedule: Jitter: max is -1ns; it must be zero or positive":                                      func() { Jitter(ok, -1) },
		"schedule: Jitter of a nil Scheduler":                                                             func() { Jitter(nil, 1) },
		"schedule: Limit: n is -1; it must be zero or positive":                                           func() { Limit(ok, -1) },
		"schedule: Limit of a nil Scheduler":                                                              func() { Limit(nil, 1) },
		"schedule: Until: t is the zero time":                                                             func() { Until(ok, time.Time{}) },
		"schedule: Until of a nil Scheduler":                                                              func() { Until(nil, midnight) },
		"schedule: WithMisfire of a nil Scheduler":                                                        func() { WithMisfire(nil, RunAll) },
		"schedule: WithOverlap of a nil Scheduler":                                                        func() { WithOverlap(nil, Allow) },
		"schedule: WithOverlap: policy is Overlap(3); it must be SkipIfRunning, QueueOne or Allow":        func() { WithOverlap(ok, 3) },
		"schedule: WithOverlap: policy is Overlap(-1); it must be SkipIfRunning, QueueOne or Allow":       func() { WithOverlap(ok, -1) },
		"schedule: MaxLate: d is -1ns; it must be zero or positive":                                       func() { MaxLate(ok, -1) },
		"schedule: MaxLate of a nil Scheduler":                                                            func() { MaxLate(nil, 0) },
		"schedule: WithMisfire: policy is Misfire(2); it must be RunOnce or RunAll":                       func() { WithMisfire(ok, 2) },
	} {
		assert.PanicsWithValue(t, want, f)
	}
}

func TestPoliciesPrintTheirNames(t *testing.T) {
	t.Parallel()
	for want, policy := range map[string]any{
		"RunOnce": RunOnce, "RunAll": RunAll, "Misfire(2)": Misfire(2), "Misfire(-1)": Misfire(-1),
		"SkipIfRunning": SkipIfRunning, "QueueOne": QueueOne, "Allow": Allow, "Overlap(3)": Overlap(3),
	} {
		assert.Equal(t, want, fmt.Sprint(policy))
	}
}
