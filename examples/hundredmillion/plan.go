package main

import (
	"math"
	"math/bits"
	"time"
)

// fate is what becomes of a timer.
type fate uint8

const (
	stays   fate = iota // is due long after the end
	beaten              // is due in the window, and is moved far beyond it before
	stopped             // is due in the window, and is stopped before
	expires             // is due in the window
)

// Timers that are not to expire lie this far behind the window, spread over as long again.
const farAhead = time.Hour

// plan says what becomes of each timer and when it is due, from its number and the seed alone. So
// nothing of a hundred million timers has to be remembered, and who checks need not ask the wheel.
type plan struct {
	seed          uint64
	upTo          [expires]uint64 // of 2^32: below upTo[0] a timer is beaten, below upTo[1] stopped, and so on
	opens, window time.Duration   // deadlines in the window: after the start, from and for how long
}

func newPlan(cfg config, opens, window time.Duration) plan {
	p := plan{seed: cfg.seed, opens: opens, window: window}
	sum := 0.0
	for i, percent := range []float64{cfg.beat, cfg.stop, cfg.expire} {
		sum += percent
		p.upTo[i] = uint64(math.Round(math.Ldexp(sum/100, 32)))
	}
	return p
}

// of returns the fate of a timer and the deadline with which it is armed, after the start.
func (p *plan) of(id uint64) (fate, time.Duration) {
	h := mix(p.seed + id*0x9E3779B97F4A7C15)
	draw, place := h>>32, h<<32
	f := stays
	switch {
	case draw < p.upTo[0]:
		f = beaten
	case draw < p.upTo[1]:
		f = stopped
	case draw < p.upTo[2]:
		f = expires
	}
	if f == stays {
		return f, p.opens + p.window + farAhead + part(farAhead, place)
	}
	return f, p.opens + part(p.window, place)
}

// part returns place/2^64 of d.
func part(d time.Duration, place uint64) time.Duration {
	hi, _ := bits.Mul64(uint64(d), place)
	return time.Duration(hi)
}

// mix spreads a number over all 64 bits; no two numbers have the same result.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	return x ^ x>>32
}
