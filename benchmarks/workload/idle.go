package workload

import (
	"errors"
	"runtime/debug"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// An idle process is watched for so many times p.Time.
const idleTimes = 8

// idle counts how often a process that holds a population is scheduled while nothing is due.
func idle[H any](i impl.Implementation[H], p Params) (Result, error) {
	pop, err := settle(i, p, false)
	if err != nil {
		return Result{}, err
	}
	defer pop.Close()
	span := idleTimes * p.Time
	debug.FreeOSMemory() // or the runtime gives memory back meanwhile, bit by bit
	time.Sleep(span / 5) // let its helpers come to rest
	before, known := contextSwitches()
	if !known {
		return Result{}, errors.New("this system does not count context switches")
	}
	begin := time.Now()
	time.Sleep(span)
	after, _ := contextSwitches()
	r := Result{N: 1}
	r.add(float64(after-before)/time.Since(begin).Seconds(), "wakeups/s")
	pop.addEarly(&r)
	return r, nil
}
