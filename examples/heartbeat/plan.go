package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// fate is what a client is going to do.
type fate uint8

const (
	stays   fate = iota // beats until the end of the run, then closes
	closes              // closes earlier
	crashes             // its connection is reset, as when its process dies
	silent              // stops beating and never closes
	fates
)

func (f fate) String() string {
	return [fates]string{"stay", "close", "crash", "go silent"}[f]
}

// plan is one client's part in a run.
type plan struct {
	fate fate
	at   time.Duration // after the moment that all are connected
}

// newPlans deals out the fates: as many of each as the shares say, to connections and at times that
// the seed decides. A client may carry out its plan late by one interval between beats; those that
// go silent do it early enough to be cut before the end nevertheless.
func newPlans(cfg config) []plan {
	rng := rand.New(rand.NewPCG(cfg.seed, 0))
	plans := make([]plan, cfg.conns)
	for i := range plans {
		plans[i] = plan{stays, cfg.duration}
	}
	next := 0
	deal := func(f fate, percent float64, last time.Duration) {
		n := int(math.Round(float64(cfg.conns) * percent / 100))
		for ; n > 0 && next < len(plans); n-- {
			plans[next] = plan{f, time.Duration(rng.Int64N(int64(last) + 1))}
			next++
		}
	}
	deal(silent, cfg.silent, cfg.duration-cfg.timeout-longestInterval(cfg.timeout)-cfg.bound)
	deal(closes, cfg.closing, cfg.duration)
	deal(crashes, cfg.crash, cfg.duration)
	rng.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
	return plans
}

func countFates(plans []plan) (n [fates]int) {
	for _, p := range plans {
		n[p.fate]++
	}
	return n
}

// longestInterval is the longest time a live client lets pass between two beats, by its plan.
func longestInterval(timeout time.Duration) time.Duration { return timeout / 4 }

// interval draws a time between two beats. The shortest is a quarter of the longest, which keeps
// the number of beats in proportion to the number of connections.
func interval(rng *rand.Rand, timeout time.Duration) time.Duration {
	most := longestInterval(timeout)
	least := most / 4
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}
