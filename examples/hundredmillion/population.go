package main

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// wheel is what this program uses of [timingwheel.Timeouts], so that a test can break it.
type wheel interface {
	AddAt(at time.Time, id uint64) timingwheel.Timer
	Len() int
	Stats() timingwheel.Stats
	Shutdown(ctx context.Context) error
}

type makeWheel func(expire func([]uint64)) (wheel, error)

// handle is what is kept of a timer that will be beaten or stopped. It holds a pointer, so the
// garbage collector reads all of them, which it does not do with the timers themselves.
type handle struct {
	timer timingwheel.Timer
	id    uint64
}

const handleBytes = 24

// population is a wheel and its timers. Each worker arms numbers of its own, one after the other,
// and later beats and stops those, in random order.
type population struct {
	plan    plan
	n       int
	workers int
	start   time.Time
	wheel   wheel
	tally   *tally

	beats, stops [][]handle   // by worker
	toExpire     atomic.Int64 // of those armed
	refused      bitmap       // timers that the wheel said had expired when they were to be beaten or stopped
	beat         atomic.Int64 // beats that were not refused
	stopped      atomic.Int64
	late         atomic.Int64 // refused
	refusedEarly atomic.Int64 // refused before the deadline, which is wrong
}

// newPopulation returns an empty wheel. The clock of its plan starts here.
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
	pop.tally = newTally(&pop.plan, pop.start, n)
	var err error
	pop.wheel, err = cfg.newWheel(pop.tally.expire)
	return pop, err
}

// expected is room for a share that is drawn at random: more than six standard deviations above the
// mean.
func expected(n int, percent float64) int {
	if percent == 0 {
		return 0
	}
	mean := float64(n) * percent / 100
	return min(n, int(mean+6*math.Sqrt(mean))+8)
}

// share returns the numbers of worker w.
func (p *population) share(w int) (from, to int) {
	return int(int64(p.n) * int64(w) / int64(p.workers)), int(int64(p.n) * int64(w+1) / int64(p.workers))
}

// arm arms the timers from up to to of worker w.
func (p *population) arm(w, from, to int) {
	beats, stops, toExpire := p.beats[w], p.stops[w], 0
	first, _ := p.share(w)
	for id := uint64(first + from); id < uint64(first+to); id++ {
		fate, due := p.plan.of(id)
		t := p.wheel.AddAt(p.start.Add(due), id)
		switch fate {
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
// to be beaten would mostly be in the processor's cache already, which it is not in practice.
func (p *population) shuffle(w int) {
	rng := rand.New(rand.NewPCG(p.plan.seed, uint64(w)))
	for _, hs := range [][]handle{p.beats[w], p.stops[w]} {
		rng.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	}
}

// beatRange beats some of the timers of worker w: the timeout that begins anew ends long after the
// window.
func (p *population) beatRange(w, from, to int) {
	done, timeout := 0, p.plan.opens+p.plan.window+farAhead
	for _, h := range p.beats[w][from:to] {
		if h.timer.Reschedule(timeout) {
			done++
		} else {
			p.refuse(h.id)
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
			p.refuse(h.id)
		}
	}
	p.stopped.Add(int64(done))
}

// refuse notes a timer that is not pending any more. If it was due that is right, and it must have
// expired.
func (p *population) refuse(id uint64) {
	p.refused.add(id)
	p.late.Add(1)
	if _, due := p.plan.of(id); time.Since(p.start) < due {
		p.refusedEarly.Add(1)
	}
	p.toExpire.Add(1)
}

// forget lets go of the handles.
func (p *population) forget() { p.beats, p.stops = nil, nil }

// handles returns how many timers there are to beat and to stop.
func (p *population) handles() (beats, stops int) {
	for w := range p.beats {
		beats += len(p.beats[w])
		stops += len(p.stops[w])
	}
	return beats, stops
}

// owes returns how many timers are to have expired by the end of the window and have not.
func (p *population) owes() int64 { return p.toExpire.Load() - p.tally.fired.Load() }

// shares returns how many timers each worker arms.
func (p *population) shares() []int {
	sizes := make([]int, p.workers)
	for w := range sizes {
		from, to := p.share(w)
		sizes[w] = to - from
	}
	return sizes
}

// lengths returns how many handles each worker has.
func lengths(handles [][]handle) []int {
	sizes := make([]int, len(handles))
	for w, hs := range handles {
		sizes[w] = len(hs)
	}
	return sizes
}
