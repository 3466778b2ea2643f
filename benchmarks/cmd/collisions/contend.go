package main

import "math/rand/v2"

// contest is processors that add a timer and stop it, by turns, without end. An add tries its home shard's lock and,
// where that is taken, waits for the next shard's if it must; a stop waits for the lock of the shard that the add took.
type contest struct {
	procs, shards int
	held          float64 // share of a processor's time for which it holds a lock, if it never waits
	random        bool    // each add has another home; else a processor keeps its own
	operations    int     // of each processor
}

// result is shares of all adds or stops, and by how many processors that never wait the same would be done.
type result struct{ movedOn, addWaits, stopWaits, throughput float64 }

// proc is one processor.
type proc struct {
	at   float64 // when it comes to its next lock
	home int
	took int // the shard of the timer that it stops next
	stop bool
	left int
}

// placements is how often homes are drawn for a contest: one draw of few processors tells little.
const placements = 50

// contend plays a contest. Each lock is held for one unit of time; the time in between is random, exponentially
// distributed. Lock attempts are taken in the order of time, so that those who wait get the lock in the order in which
// they came.
func contend(c contest) result {
	rng := rand.New(rand.NewPCG(uint64(c.procs), uint64(c.shards)))
	var sum tally
	for range placements {
		sum.play(c, rng)
	}
	adds, stops := float64(sum.adds), float64(sum.stops)
	return result{
		movedOn:    float64(sum.movedOn) / adds,
		addWaits:   float64(sum.addWaits) / adds,
		stopWaits:  float64(sum.stopWaits) / stops,
		throughput: (adds + stops) / c.held / sum.took,
	}
}

// tally counts what happens.
type tally struct {
	adds, stops, movedOn, addWaits, stopWaits int
	took                                      float64
}

// play has each processor do its share of operations, until the first has.
func (t *tally) play(c contest, rng *rand.Rand) {
	think := 1/c.held - 1
	procs := make([]proc, c.procs)
	for i := range procs {
		procs[i] = proc{at: rng.ExpFloat64() * think, home: rng.IntN(c.shards), left: max(c.operations/placements, 2)}
	}
	free := make([]float64, c.shards) // when each lock is free
	for p := next(procs); p.left > 0; p = next(procs) {
		t.attempt(c, p, free, rng)
		p.at += rng.ExpFloat64() * think
	}
	t.took += next(procs).at
}

// attempt is a processor's next operation. It leaves the time at which the processor has let go of the lock.
func (t *tally) attempt(c contest, p *proc, free []float64, rng *rand.Rand) {
	if !p.stop {
		if c.random {
			p.home = rng.IntN(c.shards)
		}
		p.took = p.home
		if free[p.took] > p.at {
			p.took = (p.took + 1) % c.shards
			t.movedOn++
		}
	}
	if free[p.took] > p.at {
		if p.stop {
			t.stopWaits++
		} else {
			t.addWaits++
		}
	}
	p.at = max(free[p.took], p.at) + 1
	free[p.took] = p.at
	if p.stop {
		t.stops++
	} else {
		t.adds++
	}
	p.stop = !p.stop
	p.left--
}

// next is the processor that comes to its lock first.
func next(procs []proc) *proc {
	first := &procs[0]
	for i := range procs {
		if procs[i].at < first.at {
			first = &procs[i]
		}
	}
	return first
}
