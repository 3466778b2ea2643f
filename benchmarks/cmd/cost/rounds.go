package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// rounds are lives of timers from arming to firing, each on a wheel of its own, by name. They return the time that
// n timers take, or 0 where that is waiting for the most part, and only their instructions tell something.
var rounds = []struct {
	name string
	do   func(shards, n int) (time.Duration, error)
}{
	{"flush", flush(nil)},
	{"flush-inline", flush(timingwheel.Inline)},
	{"flush-goroutines", flush(timingwheel.Goroutines)},
	{"fire", fire},
	{"batches", batches},
	{"wake", wake},
	{"together", together},
}

// coarse are options with which many timers share a tick, so that wake-ups and the opening of buckets count for little
// beside them: the finest wheel spans 0.8 s.
func coarse(shards int) timingwheel.Options {
	return timingwheel.Options{Shards: shards, Tick: 50 * time.Millisecond, WheelSize: 16}
}

// delay is how far ahead the first of n timers that fire by themselves is due: beyond the finest wheel, and after the
// last was armed, under a counter of instructions as well. The others follow within a second.
func delay(n int) time.Duration {
	return time.Second + time.Duration(n)*40*time.Microsecond
}

// flush arms n timers and has them run without moving, on an executor; nil stands for the default one.
func flush(executor timingwheel.Executor) func(shards, n int) (time.Duration, error) {
	return func(shards, n int) (time.Duration, error) {
		opts := coarse(shards)
		opts.Executor = executor
		return callbacks(opts, n, func(tw *timingwheel.TimingWheel) error {
			if got := tw.Flush(); got != n {
				return fmt.Errorf("%d of %d timers were flushed: the others fired before", got, n)
			}
			return nil
		})
	}
}

// fire arms n timers, which move to the finest wheel once, and lets them fire.
func fire(shards, n int) (time.Duration, error) {
	var tw *timingwheel.TimingWheel
	_, err := callbacks(coarse(shards), n, func(w *timingwheel.TimingWheel) error {
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

// callbacks arms n callbacks, calls hasten and waits until they have run.
func callbacks(opts timingwheel.Options, n int, hasten func(*timingwheel.TimingWheel) error) (time.Duration, error) {
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
	if err := hasten(tw); err != nil {
		return 0, err
	}
	<-done
	return time.Since(start), nil
}

// batches is fire with values, which are handed over in batches.
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

// near is a deadline of one of n timers that fire.
func (p *population) near(n int) time.Duration {
	return delay(n) + time.Duration(p.below(1000))*time.Millisecond
}
