package main

import "math/rand/v2"

// scenario is a number of processors that add a timer and stop it, in turn, without pause. An add
// tries the lock of its home shard. If that lock is taken, the add takes the lock of the next shard
// and waits for it if necessary. Stop waits for the lock of the shard that the add used.
//
// The model is an earlier engine. In the present one an add tries the locks of all shards before it
// waits, and Stop takes no lock.
type scenario struct {
	procs, shards int
	held          float64 // share of a processor's time for which it holds a lock, if it never waits
	random        bool    // each add has another home shard; otherwise a processor keeps its own
	operations    int     // of each processor
}

// result holds shares of all adds or stops. throughput is in processors that never wait.
type result struct{ movedOn, addWaits, stopWaits, throughput float64 }

// processor is one simulated processor.
type processor struct {
	at    float64 // time of its next lock attempt
	home  int
	shard int // shard of the timer that it stops next
	stop  bool
	left  int
}

// placements is how often a simulation draws the home shards: one draw for few processors says
// little.
const placements = 50

// simulate runs a scenario. Each lock is held for one unit of time. The time between two attempts
// is random, exponentially distributed. Attempts are processed in the order of their times, so
// waiters get a lock in the order of arrival.
func simulate(s scenario) result {
	rng := rand.New(rand.NewPCG(uint64(s.procs), uint64(s.shards)))
	var sum counters
	for range placements {
		sum.run(s, rng)
	}
	adds, stops := float64(sum.adds), float64(sum.stops)
	return result{
		movedOn:    float64(sum.movedOn) / adds,
		addWaits:   float64(sum.addWaits) / adds,
		stopWaits:  float64(sum.stopWaits) / stops,
		throughput: (adds + stops) / s.held / sum.elapsed,
	}
}

type counters struct {
	adds, stops, movedOn, addWaits, stopWaits int
	elapsed                                   float64
}

// run simulates one placement, until the first processor has done its share of the operations.
func (c *counters) run(s scenario, rng *rand.Rand) {
	think := 1/s.held - 1
	procs := make([]processor, s.procs)
	for i := range procs {
		procs[i] = processor{at: rng.ExpFloat64() * think, home: rng.IntN(s.shards), left: max(s.operations/placements, 2)}
	}
	free := make([]float64, s.shards) // when each lock becomes free
	for p := next(procs); p.left > 0; p = next(procs) {
		c.attempt(s, p, free, rng)
		p.at += rng.ExpFloat64() * think
	}
	c.elapsed += next(procs).at
}

// attempt does the next operation of p and sets p.at to the time at which p releases the lock.
func (c *counters) attempt(s scenario, p *processor, free []float64, rng *rand.Rand) {
	if !p.stop {
		if s.random {
			p.home = rng.IntN(s.shards)
		}
		p.shard = p.home
		if free[p.shard] > p.at {
			p.shard = (p.shard + 1) % s.shards
			c.movedOn++
		}
	}
	if free[p.shard] > p.at {
		if p.stop {
			c.stopWaits++
		} else {
			c.addWaits++
		}
	}
	p.at = max(free[p.shard], p.at) + 1
	free[p.shard] = p.at
	if p.stop {
		c.stops++
	} else {
		c.adds++
	}
	p.stop = !p.stop
	p.left--
}

// next returns the processor whose lock attempt is the earliest.
func next(procs []processor) *processor {
	first := &procs[0]
	for i := range procs {
		if procs[i].at < first.at {
			first = &procs[i]
		}
	}
	return first
}
