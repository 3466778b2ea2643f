// Package sampling samples timers by the stack that armed them, and writes the pending ones as a
// profile for pprof.
package sampling

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// maxDepth is the maximum number of return addresses in a stack.
const maxDepth = 64

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

// Timer identifies a timer, as a handle does.
type Timer struct {
	Page  *atomic.Pointer[arena.Page] // points to nil if the page was released
	Index uint32
	Gen   uint32
}

// load returns the page and the word of the timer. It returns false if the timer has ended. A plan
// has not ended during a run.
func (t Timer) load() (*arena.Page, arena.Word, bool) {
	pg := t.Page.Load()
	if pg == nil {
		return nil, 0, false
	}
	w := pg.Load(t.Index)
	if w.Gen() != t.Gen {
		return nil, 0, false
	}
	switch w.Kind() {
	case arena.Staged, arena.Placed:
		return pg, w, true
	}
	return nil, 0, false
}

// Table holds the samples of one shard. A Table has no lock: a lock of the shard guards it.
//
// Calls that end a timer do not touch its sample. The table drops a sample when it finds that the
// timer has ended: each Set checks the next two entries, and Each checks all entries that it
// visits. n/2 Sets check n entries once, drop the samples whose timers had ended before, and add at
// most n/2 samples. The table therefore has at most about twice as many entries as there were
// samples of pending timers.
//
//	T1  slots maps exactly the slots of the entries in use to their entries.
//	T2  free lists exactly the entries that are not in use.
type Table struct {
	lambda  float64 // parameter of the distribution of Distance
	entries []sample
	slots   map[uint32]int32 // entries in use, by slot
	free    []int32          // entries not in use
	hand    int              // the entry that the next Set checks
}

// sample is an entry of a Table. Its origin is nil if the entry is not in use.
type sample struct {
	Timer
	origin *Origin
}

// New returns an empty table that samples one in rate timers on average. rate must be positive.
func New(rate int) *Table {
	return &Table{lambda: -math.Log1p(-1 / float64(rate)), slots: map[uint32]int32{}}
}

// Distance returns a random number of armed timers from one sample to the next, which is at least
// 1. The number is geometrically distributed, so every timer is sampled with the same probability,
// even if the program arms timers in a pattern.
func (t *Table) Distance() int64 { return 1 + int64(rand.ExpFloat64()/t.lambda) }

// Set sets the origin of a timer, unless the timer has ended. A nil origin drops its sample. O(1).
func (t *Table) Set(timer Timer, origin *Origin) {
	t.checkNext()
	t.checkNext()
	k, known := t.slots[timer.Index]
	if origin == nil {
		if known && t.entries[k].Timer == timer {
			t.drop(k)
		}
		return
	}
	if _, _, alive := timer.load(); !alive {
		return
	}
	switch last := len(t.free) - 1; {
	case known: // an entry of this timer or of an earlier timer of the slot
	case last >= 0:
		k, t.free = t.free[last], t.free[:last]
	default:
		k = int32(len(t.entries))
		t.entries = append(t.entries, sample{})
	}
	t.slots[timer.Index] = k
	t.entries[k] = sample{timer, origin}
}

// Origin returns the origin of a timer, or nil if the timer was not sampled. O(1).
func (t *Table) Origin(timer Timer) *Origin {
	if k, ok := t.slots[timer.Index]; ok && t.entries[k].Timer == timer {
		return t.entries[k].origin
	}
	return nil
}

// Each visits n entries, beginning with from. It calls yield for the samples of pending timers and
// drops the samples of timers that have ended. Each returns the next entry, and false if there is
// none. A sample keeps its entry, so several calls that cover all entries yield each sample once.
func (t *Table) Each(from, n int, yield func(o *Origin, pg *arena.Page, w arena.Word, index uint32)) (next int, more bool) {
	end := min(from+n, len(t.entries))
	for k := from; k < end; k++ {
		s := &t.entries[k]
		if s.origin == nil {
			continue
		}
		if pg, w, alive := s.load(); alive {
			yield(s.origin, pg, w, s.Index)
			continue
		}
		t.drop(int32(k))
	}
	return end, end < len(t.entries)
}

// checkNext checks the next entry and drops it if its timer has ended.
func (t *Table) checkNext() {
	if t.hand >= len(t.entries) {
		t.hand = 0
		if len(t.entries) == 0 {
			return
		}
	}
	if s := &t.entries[t.hand]; s.origin != nil {
		if _, _, alive := s.load(); !alive {
			t.drop(int32(t.hand))
		}
	}
	t.hand++
}

func (t *Table) drop(k int32) {
	delete(t.slots, t.entries[k].Index)
	t.entries[k] = sample{}
	t.free = append(t.free, k)
}
