package main

import (
	"fmt"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// comparison is the comparison of the plan with the expired timers.
type comparison struct {
	want        checksum   // of the timers that must expire
	lost, wrong faultCount // due but not expired; expired but not due
}

func (c *comparison) merge(o comparison) {
	c.want.merge(o.want)
	c.lost.merge(o.lost)
	c.wrong.merge(o.wrong)
}

// compare compares the numbers from up to to. A timer whose beat or stop was refused was already
// due, so it must have expired.
func compare(p *population, from, to int) (c comparison) {
	for id := uint64(from); id < uint64(to); id++ {
		f, _ := p.plan.of(id)
		want := f == expires || p.refused.has(id)
		if want {
			c.want.add(id)
		}
		switch got := p.recorder.seen.has(id); {
		case want && !got:
			c.lost.add(id)
		case got && !want:
			c.wrong.add(id)
		}
	}
	return c
}

// observation is the input of the final check.
type observation struct {
	n             int
	complete      bool // not interrupted
	overran       bool // the first deadline passed before the last beat
	got           record
	comparison    comparison
	refusedEarly  int64
	beat, stopped int64 // successful calls
	stats         timingwheel.Stats
	length        int
}

// faults returns the faults of the run.
func (ob observation) faults() (faults []string) {
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	some := func(t faultCount, what string) {
		fault(t.count > 0, "%s %s, for example number %d", figures.Plural(t.count, "timer"), what, t.example)
	}
	some(ob.got.twice, "expired more than once")
	some(ob.got.early, fmt.Sprintf("expired early, by up to %v", ob.got.earliest))
	some(ob.got.unknown, "expired that had not been armed")
	fault(ob.refusedEarly > 0, "%s or stops refused before the deadline", figures.Plural(int(ob.refusedEarly), "beat"))
	if !ob.complete {
		return faults
	}
	some(ob.comparison.lost, "did not expire although due")
	some(ob.comparison.wrong, "expired although not due")
	got, want := ob.got.checksum, ob.comparison.want
	fault(got != want, "count and checksums of the expired timers are %d %x %x; they must be %d %x %x",
		got.count, got.sum, got.xor, want.count, want.sum, want.xor)
	remain := int64(ob.n) - ob.stopped - int64(want.count)
	fault(int64(ob.length) != remain, "Len is %d at the end; it must be %d", ob.length, remain)
	count := func(name string, is uint64, should int64) {
		fault(is != uint64(should), "Stats.%s is %d; it must be %d", name, is, should)
	}
	count("Armed", ob.stats.Armed, int64(ob.n))
	count("Fired", ob.stats.Fired, int64(want.count))
	count("Stopped", ob.stats.Stopped, ob.stopped)
	// The wheel does not count a call to Touch after a worker has claimed the timer.
	if !ob.overran || int64(ob.stats.Postponed) > ob.beat {
		count("Postponed", ob.stats.Postponed, ob.beat)
	}
	count("Pending", uint64(ob.stats.Pending), remain)
	count("Lateness.Count", ob.stats.Lateness.Count(), int64(want.count))
	return faults
}
