package main

import (
	"math"
	"math/bits"
	"time"
)

// kind is the kind of a timer.
type kind uint8

const (
	stays   kind = iota // due long after the end
	beaten              // due in the window, and postponed far beyond it before
	stopped             // due in the window, and stopped before
	expires             // due in the window
)

// Timers that do not expire are due between one and two times farAhead after the window.
const farAhead = time.Hour

// plan determines the kind and the deadline of each timer from its number and the seed. So the
// program stores nothing for each timer, and the check does not depend on the wheel.
type plan struct {
	seed uint64
	// A random number of 32 bits below upTo[0] means beaten, below upTo[1] stopped, and so on.
	upTo          [expires]uint64
	opens, window time.Duration // beginning (after the start) and length of the window
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

// of returns the kind of a timer and its deadline after the start.
func (p *plan) of(id uint64) (kind, time.Duration) {
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

// mix is a bijective hash of 64 bits.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	return x ^ x>>32
}
