package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/process"
)

// scenarios take timers from arming to firing or stopping, each scenario on wheels of its own. They
// return the time that n timers take. A scenario that mostly waits returns 0, because only its
// instruction count is meaningful.
var scenarios = []struct {
	name string
	do   func(shards, n int) (time.Duration, error)
}{
	{"flush", flush(nil)},
	{"flush-inline", flush(timingwheel.Inline)},
	{"flush-goroutines", flush(timingwheel.Goroutines)},
	{"fire", fire},
	{"batches", batches},
	{"wake", wake},
	{"parallel", parallel},
}

// coarse returns options with which many timers share a tick, so that wake-ups and opening buckets
// cost little in comparison. The finest level spans 0.8 s.
func coarse(shards int) timingwheel.Options {
	return timingwheel.Options{Shards: shards, Tick: 50 * time.Millisecond, WheelSize: 16}
}

// near returns a random delay for one of n timers that fire.
func (p *population) near(n int) time.Duration {
	return leadTime(n) + time.Duration(p.below(1000))*time.Millisecond
}

// leadTime is the time until the first of n timers fires. It is longer than the span of the finest
// level, and longer than arming all of them takes, under an instruction counter too.
func leadTime(n int) time.Duration {
	return time.Second + time.Duration(n)*40*time.Microsecond
}

// flush arms n timers and runs them with Flush, so they do not move between levels. A nil executor
// is the default one.
func flush(executor timingwheel.Executor) func(shards, n int) (time.Duration, error) {
	return func(shards, n int) (time.Duration, error) {
		opts := coarse(shards)
		opts.Executor = executor
		return runCallbacks(opts, n, func(tw *timingwheel.TimingWheel) error {
			if got := tw.Flush(); got != n {
				return fmt.Errorf("%d of %d timers were flushed: the others had fired before", got, n)
			}
			return nil
		})
	}
}

// fire arms n timers, which move to the finest level once, and lets them fire.
func fire(shards, n int) (time.Duration, error) {
	var tw *timingwheel.TimingWheel
	_, err := runCallbacks(coarse(shards), n, func(w *timingwheel.TimingWheel) error {
		tw = w
		return nil
	})
	if err == nil {
		if moved := tw.Stats().Moved; moved < uint64(n) {
			err = fmt.Errorf("%d of %d timers were moved: the others were due too soon", moved, n)
		}
	}
	return 0, err
}

// runCallbacks arms n timers, calls armed and waits until all callbacks have run.
func runCallbacks(opts timingwheel.Options, n int, armed func(*timingwheel.TimingWheel) error) (time.Duration, error) {
	tw, err := timingwheel.New(opts)
	if err != nil {
		return 0, err
	}
	defer tw.Stop()
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	f := func() {
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	p := newPopulation(tw, 1)
	start := time.Now()
	for range n {
		opAdd(tw, p.near(n), f)
	}
	if err := armed(tw); err != nil {
		return 0, err
	}
	<-done
	return time.Since(start), nil
}

// batches is fire with values, which the wheel hands over in batches.
func batches(shards, n int) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	w, err := timingwheel.NewTimeouts(coarse(shards), func(expired []uint64) {
		if left.Add(-int64(len(expired))) == 0 {
			close(done)
		}
	})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	p := newPopulation(nil, 1)
	for i := range n {
		w.Add(p.near(n), uint64(i))
	}
	<-done
	return 0, nil
}

// wake makes one wheel of a single shard for each of shards. Each wheel has one timer, which arms
// itself again. wake returns the CPU time of n wake-ups of all wheels, each with an add and a
// callback: the cost of a shard in which a timer is due at each tick. The shards are wheels,
// because a callback cannot choose its shard. wake returns 0 where the CPU time is unknown.
func wake(shards, n int) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	var chains sync.WaitGroup
	chains.Add(shards)
	wheels := make([]*timingwheel.TimingWheel, shards)
	for i := range wheels {
		tw, err := timingwheel.New(timingwheel.Options{Shards: 1})
		if err != nil {
			return 0, err
		}
		defer tw.Stop()
		wheels[i] = tw
	}
	before, _ := process.CPUTime()
	for _, tw := range wheels {
		var again func()
		again = func() {
			if left.Add(-1) < 0 {
				chains.Done()
				return
			}
			tw.AfterFunc(time.Microsecond, again)
		}
		again()
	}
	chains.Wait()
	after, _ := process.CPUTime()
	woken := uint64(0)
	for _, tw := range wheels {
		woken += tw.Stats().Wakeups
	}
	return time.Duration(float64(after-before) / float64(woken) * float64(n)), nil
}

// parallel adds timers and stops them on GOMAXPROCS goroutines, n pairs in all.
func parallel(shards, n int) (time.Duration, error) {
	tw, err := timingwheel.New(timingwheel.Options{Shards: shards})
	if err != nil {
		return 0, err
	}
	defer tw.Stop()
	goroutines := runtime.GOMAXPROCS(0)
	empty := func() {}
	var done sync.WaitGroup
	start := time.Now()
	for g := range goroutines {
		done.Go(func() {
			for range (n + g) / goroutines {
				mustBePending(opStopLatest(opAddLatest(tw, empty)))
			}
		})
	}
	done.Wait()
	return time.Since(start), nil
}
