package main

import (
	"fmt"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// comparison is of what the plan says and what has expired, timer by timer.
type comparison struct {
	want        checksum // of those that were to expire
	lost, wrong tallyOf  // did not expire and should have; expired and should not have
}

func (c *comparison) merge(o comparison) {
	c.want.merge(o.want)
	c.lost.merge(o.lost)
	c.wrong.merge(o.wrong)
}

// compare goes through the numbers from up to to. What was refused a beat was due by then: it must
// have expired like those that nobody touched.
func compare(p *population, from, to int) (c comparison) {
	for id := uint64(from); id < uint64(to); id++ {
		f, _ := p.plan.of(id)
		want := f == expires || p.refused.has(id)
		if want {
			c.want.add(id)
		}
		switch got := p.tally.seen.has(id); {
		case want && !got:
			c.lost.add(id)
		case got && !want:
			c.wrong.add(id)
		}
	}
	return c
}

// evidence is what a run is judged by.
type evidence struct {
	n             int
	complete      bool // nothing was interrupted
	overran       bool // deadlines passed before the last beat
	got           tallied
	comparison    comparison
	refusedEarly  int64
	beat, stopped int64 // that the wheel said it did
	stats         timingwheel.Stats
	length        int
}

// faults returns what was wrong, nothing if all was right.
func (ev evidence) faults() (faults []string) {
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	some := func(t tallyOf, what string) {
		fault(t.count > 0, "%s %s, number %d is one", figures.Plural(t.count, "timer"), what, t.example)
	}
	some(ev.got.twice, "expired more than once")
	some(ev.got.early, fmt.Sprintf("expired early, by up to %v", ev.got.earliest))
	some(ev.got.unknown, "expired that nobody had armed")
	fault(ev.refusedEarly > 0, "%s or stops refused before the deadline", figures.Plural(int(ev.refusedEarly), "beat"))
	if !ev.complete {
		return faults
	}
	some(ev.comparison.lost, "did not expire and should have")
	some(ev.comparison.wrong, "expired and should not have")
	got, want := ev.got.checksum, ev.comparison.want
	fault(got != want, "count and checksums of what expired are %d %x %x, and should be %d %x %x",
		got.count, got.sum, got.xor, want.count, want.sum, want.xor)
	remain := int64(ev.n) - ev.stopped - int64(want.count)
	fault(int64(ev.length) != remain, "Len is %d at the end, and should be %d", ev.length, remain)
	count := func(name string, is uint64, should int64) {
		fault(is != uint64(should), "Stats.%s is %d, and should be %d", name, is, should)
	}
	count("Armed", ev.stats.Armed, int64(ev.n))
	count("Fired", ev.stats.Fired, int64(want.count))
	count("Stopped", ev.stats.Stopped, ev.stopped)
	// The wheel does not count a timer that is beaten after a worker has taken it as due.
	if !ev.overran || int64(ev.stats.Postponed) > ev.beat {
		count("Postponed", ev.stats.Postponed, ev.beat)
	}
	count("Pending", uint64(ev.stats.Pending), remain)
	count("Lateness.Count", ev.stats.Lateness.Count(), int64(want.count))
	return faults
}
