package workload

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/process"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

const (
	// burstLead is the first attempt at the time from arming a burst until it is due. An
	// implementation that cannot arm all timers in this time gets more.
	burstLead = 500 * time.Millisecond

	// Every sampleEvery-th callback reads the clock. If all did, the readings would dominate the
	// figures.
	sampleEvery = 8

	// addedFor is the delay of the timers that armDuringBurst adds.
	addedFor = time.Minute
)

// timerBurst is a set of timers that are all due at one instant.
type timerBurst[H any] struct {
	*bench.Roll
	timers impl.Timers[H]
	due    time.Time
}

// armBurst arms n timers whose callbacks call work, which may be nil.
func armBurst[H any](i impl.Implementation[H], p Params, n int, work func()) (*timerBurst[H], error) {
	var b *timerBurst[H]
	err := bench.InTime(n, burstLead, func(lead time.Duration) (armed int, err error) {
		b, armed, err = tryArmBurst(i, p, n, lead, work)
		return armed, err
	})
	return b, err
}

// tryArmBurst is armBurst with the time until the burst is due. If that time is too short it
// returns bench.ErrTooSlow and the number of armed timers.
func tryArmBurst[H any](i impl.Implementation[H], p Params, n int, lead time.Duration, work func()) (*timerBurst[H], int, error) {
	b := &timerBurst[H]{Roll: bench.NewRoll(n)}
	var due time.Time
	fire := func(id uint64) {
		if work != nil {
			work()
		}
		if id%sampleEvery == 0 && time.Now().Before(due) {
			b.Early.Add(1)
		}
		b.Call(id)
	}
	fs := functions(n, i.Values, fire)
	timers, err := i.Open(impl.Config{Tick: i.Tick, Horizon: max(lead, addedFor) + time.Second, Fire: fire})
	if err != nil {
		return nil, 0, err
	}
	p.phase("arming %d timers", n)
	p.collectGarbage()
	due = time.Now().Add(lead)
	for id, f := range fs {
		timers.After(time.Until(due), uint64(id), f)
		if id%1024 == 0 && time.Now().After(due) {
			timers.Close()
			return nil, id + 1, bench.ErrTooSlow
		}
	}
	if time.Now().After(due) {
		timers.Close()
		return nil, n, bench.ErrTooSlow
	}
	b.timers, b.due = timers, due
	p.phase("waiting until %d callbacks have run", n)
	return b, n, nil
}

func burst[H any](i impl.Implementation[H], p Params) (Result, error) {
	return drain(i, p, nil)
}

func burstBlocking[H any](i impl.Implementation[H], p Params) (Result, error) {
	return drain(i, p, func() { time.Sleep(time.Millisecond) })
}

// drain measures the time from the deadline of a burst until its last callback has run.
func drain[H any](i impl.Implementation[H], p Params, work func()) (Result, error) {
	b, err := armBurst(i, p, p.Pending, work)
	if err != nil {
		return Result{}, err
	}
	r := Result{N: p.Pending}
	b.Wait(time.Until(b.due) + p.Grace)
	took := time.Since(b.due)
	if b.Left() == 0 {
		r.add(took.Seconds()*1e3, "drain-ms")
	}
	r.addFigures(b.Mistakes())
	b.timers.Close()
	return r, nil
}

// armDuringBurst measures single adds from the deadline of a burst until all of its callbacks have
// run. It measures at least one add.
func armDuringBurst[H any](i impl.Implementation[H], p Params) (Result, error) {
	const most = 5_000_000
	took := make([]time.Duration, 0, most)
	b, err := armBurst(i, p, p.Pending, nil)
	if err != nil {
		return Result{}, err
	}
	added := func() { b.Early.Add(1) } // due in a minute, after the end of the measurement
	time.Sleep(time.Until(b.due))
	for len(took) == 0 || b.Left() > 0 && len(took) < most && time.Since(b.due) < p.Grace {
		begin := time.Now()
		b.timers.After(addedFor, 0, added)
		took = append(took, time.Since(begin))
	}
	b.Wait(p.Grace)
	slices.Sort(took)
	r := Result{N: len(took)}
	r.add(bench.Quantile(took, 0.5).Seconds()*1e6, "p50-us")
	r.add(bench.Quantile(took, 0.999).Seconds()*1e6, "p99.9-us")
	r.add(bench.Quantile(took, 1).Seconds()*1e6, "max-us")
	r.addFigures(b.Mistakes())
	b.timers.Close()
	return r, nil
}

// blocked measures the lateness of a quick callback that is due at the same instant as p.Pending
// others, which block until it has run. The quick one is armed last.
func blocked[H any](i impl.Implementation[H], p Params) (Result, error) {
	const rounds, lead = 5, 50 * time.Millisecond
	timers, err := i.Open(impl.Config{Tick: i.Tick, Horizon: time.Second})
	if err != nil {
		return Result{}, err
	}
	defer timers.Close()
	var total time.Duration
	early := 0
	for range rounds {
		late, err := blockedOnce(timers, p, lead)
		if err != nil {
			return Result{}, err
		}
		if late < 0 {
			early++
		}
		total += late
	}
	r := Result{N: rounds}
	r.add(total.Seconds()*1e3/rounds, "late-ms")
	r.add(float64(early), "early")
	return r, nil
}

func blockedOnce[H any](timers impl.Timers[H], p Params, lead time.Duration) (time.Duration, error) {
	p.phase("waiting for a callback among %d that block", p.Pending)
	release := make(chan struct{})
	var others sync.WaitGroup
	others.Add(p.Pending)
	due := time.Now().Add(lead)
	ran := make(chan time.Time, 1)
	for id := range p.Pending {
		timers.After(time.Until(due), uint64(id), func() { <-release; others.Done() })
	}
	timers.After(time.Until(due), uint64(p.Pending), func() { ran <- time.Now() })
	select {
	case at := <-ran:
		close(release)
		others.Wait()
		return at.Sub(due), nil
	case <-time.After(lead + p.Grace):
		close(release)
		return 0, errors.New("a quick callback does not run while others block")
	}
}

// Percentiles are the percentiles of lateness that Spread reports, as "p50-ms" and so on.
var Percentiles = []float64{0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100}

// percentileUnit returns the unit of a percentile of Spread.
func percentileUnit(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) + "-ms" }

// spread measures timers that are due at random over two seconds, or over p.Over: the CPU time for
// each, from arming to firing, and the lateness of a sample.
func spread[H any](i impl.Implementation[H], p Params) (Result, error) {
	over := cmp.Or(p.Over, 2*time.Second)
	first := over / 2
	n := p.Pending
	all := bench.NewRoll(n)
	due := make([]time.Time, (n+sampleEvery-1)/sampleEvery)
	late := make([]time.Duration, len(due))
	fire := func(id uint64) {
		if id%sampleEvery == 0 {
			late[id/sampleEvery] = time.Since(due[id/sampleEvery])
		}
		all.Call(id)
	}
	fs := functions(n, i.Values, fire)
	timers, err := i.Open(impl.Config{Tick: i.Tick, Horizon: first + over + time.Second, Fire: fire})
	if err != nil {
		return Result{}, err
	}
	p.phase("arming %d timers", n)
	p.collectGarbage()
	rng := xorshift(3)
	before, known := process.CPUTime()
	for id, f := range fs {
		delay := first + time.Duration(rng.below(int(over/time.Microsecond)))*time.Microsecond
		if id%sampleEvery == 0 {
			due[id/sampleEvery] = time.Now().Add(delay)
		}
		timers.After(delay, uint64(id), f)
	}
	p.phase("waiting until %d callbacks have run", n)
	all.Wait(first + p.Grace)
	after, _ := process.CPUTime()
	r := Result{N: n}
	if known {
		r.add(float64(after-before)/float64(n), "cpu-ns/timer")
	}
	if all.Left() == 0 {
		addLateness(&r, all, late)
	}
	r.addFigures(all.Mistakes())
	timers.Close()
	return r, nil
}

func addLateness(r *Result, all *bench.Roll, late []time.Duration) {
	slices.Sort(late)
	for _, p := range Percentiles {
		r.add(bench.Quantile(late, p/100).Seconds()*1e3, percentileUnit(p))
	}
	early, _ := slices.BinarySearch(late, 0)
	all.Early.Store(int64(early))
}
