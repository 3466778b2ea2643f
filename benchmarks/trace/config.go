package trace

import (
	"fmt"
	"math"
	"time"
)

// Config describes a trace. Start with Defaults.
type Config struct {
	Conns  int           // number of connections
	Over   time.Duration // mean time until all have arrived
	For    time.Duration // length of the trace
	Median time.Duration // median lifetime
	Sigma  float64       // of the logarithm of lifetimes, whose mean is Median*exp(Sigma²/2)
	Beat   time.Duration // mean interval between two beats
	Jitter float64       // intervals are Beat * (1 ± Jitter), uniformly
	Silent float64       // share of the connections that end by falling silent
	Seed   uint64
}

// Accepted ranges.
const (
	MaxConns   = 100_000_000
	MaxFor     = 24 * time.Hour
	MinBeat    = 10 * time.Millisecond
	MaxBeat    = 10 * time.Minute
	MaxSigma   = 4
	MaxJitter  = 0.9
	maxSeconds = 1 << 31
)

// Defaults returns a million connections in ten minutes. Half of them live for five minutes or
// less, and the mean is eight. Each beats twice a minute, and one in ten falls silent instead of
// closing. These are assumptions, not measurements: arrivals of independent users are Poisson, and
// log-normal lifetimes have many short visits and a long tail.
func Defaults() Config {
	return Config{
		Conns:  1_000_000,
		Over:   10 * time.Minute,
		For:    12*time.Minute + 30*time.Second,
		Median: 5 * time.Minute,
		Sigma:  1,
		Beat:   30 * time.Second,
		Jitter: 0.1,
		Silent: 0.1,
		Seed:   1,
	}
}

// Validate returns an error for the first invalid field, with its value and the accepted range.
func (c Config) Validate() error {
	bad := func(name string, value, from, to any) error {
		return fmt.Errorf("trace: %s is %v; it must be from %v to %v", name, value, from, to)
	}
	within := func(v, from, to float64) bool { return from <= v && v <= to } // false for a NaN
	switch {
	case c.Conns < 1 || c.Conns > MaxConns:
		return bad("Conns", c.Conns, 1, MaxConns)
	case c.Over < time.Second || c.Over > MaxFor:
		return bad("Over", c.Over, time.Second, MaxFor)
	case c.For < time.Second || c.For > MaxFor:
		return bad("For", c.For, time.Second, MaxFor)
	case c.Median < time.Millisecond || c.Median > MaxFor:
		return bad("Median", c.Median, time.Millisecond, MaxFor)
	case !within(c.Sigma, 0, MaxSigma):
		return bad("Sigma", c.Sigma, 0, MaxSigma)
	case c.Beat < MinBeat || c.Beat > MaxBeat:
		return bad("Beat", c.Beat, MinBeat, MaxBeat)
	case !within(c.Jitter, 0, MaxJitter):
		return bad("Jitter", c.Jitter, 0, MaxJitter)
	case !within(c.Silent, 0, 1):
		return bad("Silent", c.Silent, 0, 1)
	}
	return nil
}

// Longest returns the longest interval between two beats.
func (c Config) Longest() time.Duration { return time.Duration(c.interval(1)) }

// interval maps a uniform number from 0 to 1 to the time between two beats, at least one turn.
func (c Config) interval(u float64) int64 {
	return max(int64(float64(c.Beat)*(1+c.Jitter*(2*u-1))), Turn)
}

// lifetime maps a number with the standard normal distribution to a lifetime of at least one turn.
func (c Config) lifetime(normal float64) int64 {
	seconds := min(c.Median.Seconds()*math.Exp(c.Sigma*normal), maxSeconds)
	return max(int64(seconds*float64(time.Second)), Turn)
}
