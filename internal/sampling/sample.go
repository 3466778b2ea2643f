// Package sampling samples timers by the stack that armed them, and writes the pending ones as a
// profile for pprof.
package sampling

import (
	"math"
	"math/rand/v2"
	"runtime"
)

const maxDepth = 64 // return addresses of a stack

// Origin is the place and the time at which a timer was armed.
type Origin struct {
	PCs   []uintptr // from runtime.Callers, including frames of the library
	Armed int64     // in ns, by the wheel's clock
}

// Here returns the stack of its caller, and the time now, as an Origin.
func Here(now int64) *Origin {
	var pcs [maxDepth]uintptr
	n := runtime.Callers(2, pcs[:])
	return &Origin{append([]uintptr(nil), pcs[:n]...), now}
}

type Sample[T comparable] struct {
	Timer  T
	Origin *Origin
}

// Table holds samples of timers. T is the type of their handles. The zero Table is empty.
//
// Calls that end a timer do not touch its sample. Instead, each Set checks the next two samples:
// n/2 Sets check n samples and add at most n/2. The table therefore has at most about twice as many
// samples as there were samples of pending timers.
type Table[T comparable] struct {
	All []Sample[T] // in no particular order

	lambda float64      // parameter of the distribution of Distance
	ended  func(T) bool // reports whether a timer has ended
	places map[T]int    // index in All
	next   int          // the next Set checks All[next-1] and All[next-2], going around
}

// New returns an empty table that samples one in rate timers on average. rate must be positive.
func New[T comparable](rate int, ended func(T) bool) Table[T] {
	return Table[T]{lambda: -math.Log1p(-1 / float64(rate)), ended: ended, places: map[T]int{}}
}

// Distance returns a random number of armed timers from one sample to the next, at least 1. It is
// geometrically distributed, so every timer is sampled with the same probability.
func (t *Table[T]) Distance() int64 { return 1 + int64(rand.ExpFloat64()/t.lambda) }

// Set sets the origin of a timer. A nil origin drops its sample. O(1).
func (t *Table[T]) Set(timer T, origin *Origin) {
	t.drop(timer)
	for range min(2, len(t.All)) {
		if t.next = min(t.next, len(t.All)); t.next == 0 {
			t.next = len(t.All)
		}
		t.next--
		if next := t.All[t.next].Timer; t.ended(next) {
			t.drop(next) // the last sample takes its place, which is new or was checked in this round
		}
	}
	if origin != nil {
		t.places[timer] = len(t.All)
		t.All = append(t.All, Sample[T]{timer, origin})
	}
}

// Origin returns the origin of a timer, or nil if the timer was not sampled. O(1).
func (t *Table[T]) Origin(timer T) *Origin {
	if k, ok := t.places[timer]; ok {
		return t.All[k].Origin
	}
	return nil
}

// drop removes the sample of a timer, if there is one. The last sample takes its place.
func (t *Table[T]) drop(timer T) {
	k, ok := t.places[timer]
	if !ok {
		return
	}
	end := len(t.All) - 1
	last := t.All[end]
	t.All[k], t.places[last.Timer] = last, k
	t.All[end] = Sample[T]{}
	t.All = t.All[:end]
	delete(t.places, timer)
}
