package workload

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// Of four timers one is stopped about when it is due, one is postponed well before, and two are left alone.
const (
	examFirst   = 300 * time.Millisecond
	examOver    = time.Second
	examMargin  = 2 * time.Millisecond   // a stop comes so much before or after the deadline
	examNotice  = 150 * time.Millisecond // a reset comes so long before the deadline
	examMore    = 300 * time.Millisecond // what it asks for
	examHorizon = examFirst + examOver + time.Second
)

// candidate is one timer of the workload Exact. Times are since its beginning.
type candidate[H any] struct {
	handle  H
	calls   atomic.Uint32
	ran     atomic.Int64  // the first call
	due     time.Duration // moved by a reset that took effect, or says nothing
	acts    time.Duration // when it is stopped or reset; 0: never
	stopped bool          // there was a stop
	spared  bool          // and it said that it prevented the callback
	unclear bool          // was reset too late to tell by which deadline it ran
}

// exact checks single timers: those that run early, are lost, run twice, or run although Stop said that
// they would not.
func exact[H any](i impl.Implementation[H], p Params) (Result, error) {
	all := make([]candidate[H], p.Pending)
	begin := time.Now()
	fire := func(id uint64) {
		now := time.Since(begin)
		if c := &all[id]; c.calls.Add(1) == 1 {
			c.ran.Store(int64(now))
		}
	}
	fs := functions(p.Pending, i.Values, fire)
	timers, err := i.Open(impl.Config{Horizon: examHorizon, Fire: fire})
	if err != nil {
		return Result{}, err
	}
	p.phase("arming %d timers", p.Pending)
	rng := xorshift(4)
	for id, f := range fs {
		c := &all[id]
		delay := examFirst + time.Duration(rng.below(int(examOver/time.Microsecond)))*time.Microsecond
		jitter := time.Duration(rng.below(int(2*examMargin+i.Tick))) - examMargin
		c.due = time.Since(begin) + delay
		switch {
		case id%4 == 2 && i.Stop.Callable():
			c.acts, c.stopped = c.due+jitter, true
		case id%4 == 3 && i.Reset.Callable():
			c.acts = c.due - examNotice
		}
		c.handle = timers.After(delay, uint64(id), f)
	}
	p.phase("stopping and resetting")
	act(i, timers, all, begin)
	p.phase("waiting until the others have run")
	await(i, all, begin, p.Grace)
	r := Result{N: p.Pending}
	judge(&r, i.Traits, all)
	timers.Close()
	return r, nil
}

// act stops and resets, in the order of time.
func act[H any](i impl.Implementation[H], timers impl.Timers[H], all []candidate[H], begin time.Time) {
	var acting []*candidate[H]
	for id := range all {
		if all[id].acts > 0 {
			acting = append(acting, &all[id])
		}
	}
	slices.SortFunc(acting, func(a, b *candidate[H]) int { return cmp.Compare(a.acts, b.acts) })
	for _, c := range acting {
		time.Sleep(c.acts - time.Since(begin))
		if c.stopped {
			c.spared = timers.Stop(c.handle)
			continue
		}
		now := time.Since(begin)
		moved := timers.Reset(c.handle, examMore)
		c.unclear = time.Since(begin) >= c.due
		if moved || !i.Reset.Answers() {
			c.due = now + examMore
		}
	}
}

// await returns when all have run that will, or nothing new has run for grace.
func await[H any](i impl.Implementation[H], all []candidate[H], begin time.Time, grace time.Duration) {
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
			if c := &all[id]; c.calls.Load() == 0 && !c.spared && !(c.stopped && !i.Stop.Answers()) {
				missing++
			}
		}
		if missing != before {
			progress, before = max(last, now), missing
		}
		if now > last+pause && missing == 0 || now > progress+grace {
			time.Sleep(pause) // for calls that nobody expects
			return
		}
	}
}

func judge[H any](r *Result, t impl.Traits, all []candidate[H]) {
	early, lost, twice, afterStop := 0, 0, 0, 0
	for id := range all {
		c := &all[id]
		calls := c.calls.Load()
		switch {
		case c.unclear:
			continue
		case calls > 0 && c.spared:
			afterStop++
		case calls == 0 && !c.spared && !(c.stopped && !t.Stop.Answers()):
			lost++
		case calls > 0 && time.Duration(c.ran.Load()) < c.due:
			early++
		}
		if calls > 1 {
			twice++
		}
	}
	r.add(float64(early), "early")
	r.add(float64(lost), "lost")
	if t.Stop.Answers() {
		r.add(float64(afterStop), "after-stop")
	}
	r.add(float64(twice), "twice")
}
