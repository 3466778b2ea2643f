package workload

import (
	"errors"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// blocked measures how late a quick callback is that is due together with p.Pending others, which block
// until it has run. It is armed last.
func blocked[H any](i impl.Implementation[H], p Params) (Result, error) {
	const rounds, ahead = 5, 50 * time.Millisecond
	timers, err := i.Open(impl.Config{Horizon: time.Second})
	if err != nil {
		return Result{}, err
	}
	defer timers.Close()
	var total time.Duration
	early := 0
	for range rounds {
		late, err := blockedOnce(timers, p, ahead)
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

func blockedOnce[H any](timers impl.Timers[H], p Params, ahead time.Duration) (time.Duration, error) {
	p.phase("waiting for a callback among %d that block", p.Pending)
	release := make(chan struct{})
	var others sync.WaitGroup
	others.Add(p.Pending)
	due := time.Now().Add(ahead)
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
	case <-time.After(ahead + p.Grace):
		close(release)
		return 0, errors.New("a quick callback does not run while others block")
	}
}
