package workload

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
)

// In the workload Exact one timer in four is stopped about when it is due, one is reset well before
// its deadline, and two are left alone. Calls that may be dropped are not made.
const (
	exactFirst     = 300 * time.Millisecond
	exactMargin    = 2 * time.Millisecond   // Stop comes at most this early, and at most this and a tick late
	exactResetLead = 150 * time.Millisecond // a Reset comes this early
	exactResetBy   = 300 * time.Millisecond // argument of Reset
)

// exactTimer is one timer of the workload Exact. Times are since the beginning of the workload.
type exactTimer[H any] struct {
	handle    H
	calls     atomic.Uint32
	ran       atomic.Int64  // time of the first call
	due       time.Duration // a Reset changes it if the call took effect or has no result
	actAt     time.Duration // time of the Stop or Reset; 0: none
	stopped   bool          // the workload calls Stop
	prevented bool          // Stop returned true
	resetLate bool          // Reset returned after the old deadline: either may be right
}

// exact counts timers that run early, do not run, run twice, run although Stop returned true, or do
// not run although Stop returned false.
func exact[H any](i impl.Implementation[H], p Params) (Result, error) {
	over := cmp.Or(p.Over, time.Second)
	all := make([]exactTimer[H], p.Pending)
	begin := time.Now()
	fire := func(id uint64) {
		now := time.Since(begin)
		all[id].ran.CompareAndSwap(0, int64(now)) // before the call counts
		all[id].calls.Add(1)
	}
	fs := functions(p.Pending, i.Values, fire)
	timers, err := i.Open(impl.Config{Tick: i.Tick, Horizon: exactFirst + over + time.Second, Resets: true, Fire: fire})
	if err != nil {
		return Result{}, err
	}
	p.phase("arming %d timers", p.Pending)
	rng := xorshift(4)
	for id, f := range fs {
		t := &all[id]
		delay := exactFirst + time.Duration(rng.below(int(over/time.Microsecond)))*time.Microsecond
		jitter := time.Duration(rng.below(int(2*exactMargin+i.Tick))) - exactMargin
		t.due = time.Since(begin) + delay
		switch {
		case id%4 == 2 && i.Stop.Reliable():
			t.actAt, t.stopped = t.due+jitter, true
		case id%4 == 3 && i.Reset.Reliable():
			t.actAt = t.due - exactResetLead
		}
		t.handle = timers.After(delay, uint64(id), f)
	}
	p.phase("stopping and resetting")
	stopAndReset(i, timers, all, begin)
	p.phase("waiting until the others have run")
	waitForCalls(i, all, begin, p.Grace)
	r := Result{N: p.Pending}
	countMistakes(&r, i.Traits, all)
	timers.Close()
	return r, nil
}

// stopAndReset calls Stop and Reset at their times.
func stopAndReset[H any](i impl.Implementation[H], timers impl.Timers[H], all []exactTimer[H], begin time.Time) {
	var acting []*exactTimer[H]
	for id := range all {
		if all[id].actAt > 0 {
			acting = append(acting, &all[id])
		}
	}
	slices.SortFunc(acting, func(a, b *exactTimer[H]) int { return cmp.Compare(a.actAt, b.actAt) })
	for _, t := range acting {
		time.Sleep(t.actAt - time.Since(begin))
		if t.stopped {
			t.prevented = timers.Stop(t.handle)
			continue
		}
		now := time.Since(begin)
		moved := timers.Reset(t.handle, exactResetBy)
		t.resetLate = time.Since(begin) >= t.due
		if moved || !i.Reset.HasResult() {
			t.due = now + exactResetBy
		}
	}
}

// missing reports whether the timer has not run although it should.
func (t *exactTimer[H]) missing(stop impl.Support) bool {
	return t.calls.Load() == 0 && !t.prevented && !(t.stopped && !stop.HasResult())
}

// waitForCalls returns when no call is missing, or no further timer has run for grace.
func waitForCalls[H any](i impl.Implementation[H], all []exactTimer[H], begin time.Time, grace time.Duration) {
	const pause = 50 * time.Millisecond
	last := time.Duration(0)
	for id := range all {
		last = max(last, all[id].due)
	}
	progress, before := last, 0
	for {
		time.Sleep(pause)
		now, missing := time.Since(begin), 0
		for id := range all {
			if all[id].missing(i.Stop) {
				missing++
			}
		}
		if missing != before {
			progress, before = max(last, now), missing
		}
		if now > last+pause && missing == 0 || now > progress+grace {
			time.Sleep(pause) // for a second call by some timer
			return
		}
	}
}

func countMistakes[H any](r *Result, t impl.Traits, all []exactTimer[H]) {
	early, notRun, twice, afterStop, falseStop := 0, 0, 0, 0, 0
	for id := range all {
		timer := &all[id]
		calls := timer.calls.Load()
		switch {
		case timer.resetLate:
			continue
		case calls > 0 && timer.prevented:
			afterStop++
		case timer.missing(t.Stop) && timer.stopped:
			falseStop++
		case timer.missing(t.Stop):
			notRun++
		case calls > 0 && time.Duration(timer.ran.Load()) < timer.due:
			early++
		}
		if calls > 1 {
			twice++
		}
	}
	r.add(float64(early), "early")
	r.add(float64(notRun), "not-run")
	if t.Stop.HasResult() {
		r.add(float64(afterStop), "after-stop")
		r.add(float64(falseStop), "false-stop")
	}
	r.add(float64(twice), "twice")
}
