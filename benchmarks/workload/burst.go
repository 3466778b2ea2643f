package workload

import (
	"runtime"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

const (
	// Every timer of a burst has to be armed before it is due. Who needs longer for that gets more time.
	firstAhead = 500 * time.Millisecond

	// Every so many callbacks read the clock. If all did, that would be much of what is measured.
	sample = 8
)

// salvo is timers that are all due at one instant.
type salvo[H any] struct {
	*bench.Roll
	timers impl.Timers[H]
	due    time.Time
}

// arm makes a salvo whose callbacks also call work, if there is any.
func arm[H any](i impl.Implementation[H], p Params, n int, work func()) (*salvo[H], error) {
	var s *salvo[H]
	err := bench.InTime(n, firstAhead, func(ahead time.Duration) (armed int, err error) {
		s, armed, err = armAhead(i, p, n, ahead, work)
		return armed, err
	})
	return s, err
}

// armAhead is arm with the time until the salvo is due. If that is too short it says how many it has armed.
func armAhead[H any](i impl.Implementation[H], p Params, n int, ahead time.Duration, work func()) (*salvo[H], int, error) {
	s := &salvo[H]{Roll: bench.NewRoll(n)}
	var due time.Time
	fire := func(id uint64) {
		if work != nil {
			work()
		}
		if id%sample == 0 && time.Now().Before(due) {
			s.Early.Add(1)
		}
		s.Call(id)
	}
	fs := functions(n, i.Values, fire)
	timers, err := i.Open(impl.Config{Horizon: max(ahead, armedMeanwhile) + time.Second, Fire: fire})
	if err != nil {
		return nil, 0, err
	}
	p.phase("arming %d timers", n)
	runtime.GC()
	due = time.Now().Add(ahead)
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
	s.timers, s.due = timers, due
	p.phase("waiting until %d callbacks have run", n)
	return s, n, nil
}

func burst[H any](i impl.Implementation[H], p Params) (Result, error) {
	return drain(i, p, p.Pending, nil)
}

func burstBlocking[H any](i impl.Implementation[H], p Params) (Result, error) {
	return drain(i, p, p.Pending, func() { time.Sleep(time.Millisecond) })
}

// drain measures the time from a salvo's instant until the last of its callbacks has run.
func drain[H any](i impl.Implementation[H], p Params, n int, work func()) (Result, error) {
	s, err := arm(i, p, n, work)
	if err != nil {
		return Result{}, err
	}
	r := Result{N: n}
	s.Wait(time.Until(s.due) + p.Grace)
	took := time.Since(s.due)
	if s.Left() == 0 {
		r.add(took.Seconds()*1e3, "drain-ms")
	}
	r.addFigures(s.Mistakes())
	s.timers.Close()
	return r, nil
}

// What is armed during a burst.
const armedMeanwhile = time.Minute

// armDuringBurst measures single adds from the instant at which a salvo is due until it has run; one add,
// if it is over at once.
func armDuringBurst[H any](i impl.Implementation[H], p Params) (Result, error) {
	const most = 5_000_000
	took := make([]time.Duration, 0, most)
	s, err := arm(i, p, p.Pending, nil)
	if err != nil {
		return Result{}, err
	}
	meanwhile := func() { s.Early.Add(1) } // due in a minute, so it is early if it runs at all
	time.Sleep(time.Until(s.due))
	for len(took) == 0 || s.Left() > 0 && len(took) < most && time.Since(s.due) < p.Grace {
		begin := time.Now()
		s.timers.After(armedMeanwhile, 0, meanwhile)
		took = append(took, time.Since(begin))
	}
	s.Wait(p.Grace)
	slices.Sort(took)
	r := Result{N: len(took)}
	r.add(bench.Quantile(took, 0.5).Seconds()*1e6, "p50-us")
	r.add(bench.Quantile(took, 0.999).Seconds()*1e6, "p99.9-us")
	r.add(bench.Quantile(took, 1).Seconds()*1e6, "max-us")
	r.addFigures(s.Mistakes())
	s.timers.Close()
	return r, nil
}
