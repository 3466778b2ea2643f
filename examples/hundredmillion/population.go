package main

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// wheel has the methods of [timingwheel.Timeouts] that this program uses, so that tests can break
// them.
type wheel interface {
	AddAt(at time.Time, id uint64) timingwheel.Timer
	Len() int
	Stats() timingwheel.Stats
	Shutdown(ctx context.Context) error
}

type makeWheel func(expire func([]uint64)) (wheel, error)

// handle is the handle of a timer that will be beaten or stopped. It contains a pointer, so the
// garbage collector scans all handles. The timers themselves contain no pointers.
type handle struct {
	timer timingwheel.Timer
	id    uint64
}

// population is a wheel and its timers. Each worker arms a range of numbers in order. Later it
// beats and stops its own timers in random order.
type population struct {
	plan     plan
	n        int
	workers  int
	start    time.Time
	wheel    wheel
	recorder *recorder

	beats, stops [][]handle   // by worker
	toExpire     atomic.Int64 // armed timers that must expire
	refused      bitmap       // timers that had fired before their beat or stop
	beat         atomic.Int64 // successful beats
	stopped      atomic.Int64
	late         atomic.Int64 // refused beats and stops
	refusedEarly atomic.Int64 // refused before the deadline: a fault
}

// newPopulation returns a population without timers. Deadlines count from now on.
func newPopulation(cfg config, n int, p plan) (*population, error) {
	pop := &population{
		plan: p, n: n, workers: cfg.workers,
		beats: make([][]handle, cfg.workers), stops: make([][]handle, cfg.workers),
		refused: newBitmap(n),
	}
	for w := range cfg.workers {
		from, to := pop.share(w)
		pop.beats[w] = make([]handle, 0, expected(to-from, cfg.beat))
		pop.stops[w] = make([]handle, 0, expected(to-from, cfg.stop))
	}
	pop.start = time.Now()
	pop.recorder = newRecorder(&pop.plan, pop.start, n)
	var err error
	pop.wheel, err = cfg.newWheel(pop.recorder.expire)
	return pop, err
}

// expected returns a capacity for a random share of n: more than six standard deviations above the
// mean.
func expected(n int, percent float64) int {
	if percent == 0 {
		return 0
	}
	mean := float64(n) * percent / 100
	return min(n, int(mean+6*math.Sqrt(mean))+8)
}

// share returns the range of numbers of worker w.
func (p *population) share(w int) (from, to int) {
	return int(int64(p.n) * int64(w) / int64(p.workers)), int(int64(p.n) * int64(w+1) / int64(p.workers))
}

// arm arms timers of worker w.
func (p *population) arm(w, from, to int) {
	beats, stops, toExpire := p.beats[w], p.stops[w], 0
	first, _ := p.share(w)
	for id := uint64(first + from); id < uint64(first+to); id++ {
		k, due := p.plan.of(id)
		t := p.wheel.AddAt(p.start.Add(due), id)
		switch k {
		case beaten:
			beats = append(beats, handle{t, id})
		case stopped:
			stops = append(stops, handle{t, id})
		case expires:
			toExpire++
		}
	}
	p.beats[w], p.stops[w] = beats, stops
	p.toExpire.Add(int64(toExpire))
}

// shuffle brings the handles of worker w into random order. In the order of arming the next timer
// would mostly be in the cache of the processor, which is unrealistic.
func (p *population) shuffle(w int) {
	rng := rand.New(rand.NewPCG(p.plan.seed, uint64(w)))
	for _, hs := range [][]handle{p.beats[w], p.stops[w]} {
		rng.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	}
}

// beatRange beats some of the timers of worker w. The new deadline is long after the window.
func (p *population) beatRange(w, from, to int) {
	done, timeout := 0, p.plan.opens+p.plan.window+farAhead
	for _, h := range p.beats[w][from:to] {
		if h.timer.Reschedule(timeout) {
			done++
		} else {
			p.recordRefused(h.id)
		}
	}
	p.beat.Add(int64(done))
}

// stopRange stops some of the timers of worker w.
func (p *population) stopRange(w, from, to int) {
	done := 0
	for _, h := range p.stops[w][from:to] {
		if h.timer.Stop() {
			done++
		} else {
			p.recordRefused(h.id)
		}
	}
	p.stopped.Add(int64(done))
}

// recordRefused records a timer that is not pending any more. If it was due, that is correct, and
// it must expire.
func (p *population) recordRefused(id uint64) {
	p.refused.add(id)
	p.late.Add(1)
	if _, due := p.plan.of(id); time.Since(p.start) < due {
		p.refusedEarly.Add(1)
	}
	p.toExpire.Add(1)
}

// releaseHandles drops the handles.
func (p *population) releaseHandles() { p.beats, p.stops = nil, nil }

// handles returns the numbers of timers to beat and to stop.
func (p *population) handles() (beats, stops int) {
	for w := range p.beats {
		beats += len(p.beats[w])
		stops += len(p.stops[w])
	}
	return beats, stops
}

// outstanding returns the number of timers that must expire by the end of the window and have not
// yet.
func (p *population) outstanding() int64 { return p.toExpire.Load() - p.recorder.fired.Load() }

// shares returns the number of timers of each worker.
func (p *population) shares() []int {
	sizes := make([]int, p.workers)
	for w := range sizes {
		from, to := p.share(w)
		sizes[w] = to - from
	}
	return sizes
}

// lengths returns the number of handles of each worker.
func lengths(handles [][]handle) []int {
	sizes := make([]int, len(handles))
	for w, hs := range handles {
		sizes[w] = len(hs)
	}
	return sizes
}
