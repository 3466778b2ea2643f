// Package bench is the common part of the benchmarks of the root package and of module benchmarks:
// the workloads on busy processors, and the counters of mistakes.
//
// A workload uses an implementation through Timers and Open, so that the same code measures the
// wheel, package time and other libraries. It returns figures with the units that the tables of the
// documentation expect.
package bench

import (
	"slices"
	"time"
)

// Timers is an instance of an implementation. H is its type of handle. A method that the
// implementation does not support does nothing.
type Timers[H any] interface {
	// After arms a timer that calls f in d. An implementation that stores values instead of
	// functions ignores f and passes id to the function that was passed to Open.
	After(d time.Duration, id uint64, f func()) H

	// Stop prevents the callback.
	Stop(h H) bool

	// Reset moves the deadline of a pending timer to d from now.
	Reset(h H, d time.Duration) bool

	// Close stops the implementation. Callbacks may still run afterwards.
	Close()
}

// Open creates an implementation. No timer is armed for later than horizon. An implementation that
// stores values calls fire for each value that expires.
type Open[H any] func(horizon time.Duration, fire func(id uint64)) (Timers[H], error)

// Config determines the size of a workload.
type Config struct {
	N      int           // timers that are due during the measurement; with BusyBlocked, in each round
	Rounds int           // rounds of BusyBlocked
	Busy   int           // spinning goroutines
	Grace  time.Duration // a due timer counts as not run if no timer has run for this time

	// KeepGarbage skips the garbage collection before the measurement. It is for tests that run
	// many workloads concurrently.
	KeepGarbage bool

	// Phase is called with a description of each phase that begins, so that a hanging run can be
	// located. It may be nil.
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

// Quantile returns the quantile q, from 0 to 1, of sorted durations. There must be at least one
// duration.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}

// early returns the number of negative values in sorted latenesses.
func early(sorted []time.Duration) int {
	n, _ := slices.BinarySearch(sorted, 0)
	return n
}
