// Package bench holds what the benchmarks of the root package share with those of module
// benchmarks: the workloads of a busy machine, and the counters of mistakes.
//
// A workload reaches an implementation through Timers and Open, so that the same code measures the
// wheel, package time and other libraries. It returns its figures with the units that the tables
// look for.
package bench

import (
	"slices"
	"time"
)

// Timers is an implementation at work. H is its handle. A call that the implementation lacks does
// nothing.
type Timers[H any] interface {
	// After arms a timer that calls f in d. An implementation that keeps values in place of
	// functions ignores f and hands id to the function that Open was given.
	After(d time.Duration, id uint64, f func()) H

	// Stop prevents the callback.
	Stop(h H) bool

	// Reset makes a pending timer run in d from now.
	Reset(h H, d time.Duration) bool

	// Close ends the implementation. Callbacks may still run afterwards.
	Close()
}

// Open makes an implementation. No timer is armed for later than horizon. An implementation that
// keeps values calls fire for each one that expires.
type Open[H any] func(horizon time.Duration, fire func(id uint64)) (Timers[H], error)

// Config says how large a workload is.
type Config struct {
	N      int           // timers that are due during the measurement; of BusyBlocked in each round
	Rounds int           // of BusyBlocked
	Busy   int           // spinning goroutines beside the workload
	Grace  time.Duration // a timer that is due counts as lost once none has run for so long

	// Phase is told what begins, so that a run that hangs can say where. It may be nil.
	Phase func(format string, args ...any)
}

func (c Config) phase(format string, args ...any) {
	if c.Phase != nil {
		c.Phase(format, args...)
	}
}

// Figure is a measured value with its unit.
type Figure struct {
	Value float64
	Unit  string
}

func milliseconds(d time.Duration, unit string) Figure { return Figure{d.Seconds() * 1e3, unit} }

// Quantile returns the quantile q, from 0 to 1, of sorted durations. There must be one at least.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}

// early returns how many of sorted latenesses are negative.
func early(sorted []time.Duration) int {
	n, _ := slices.BinarySearch(sorted, 0)
	return n
}
