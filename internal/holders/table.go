// Package holders samples timers by the stack that armed them, and writes those that are pending as
// a profile for pprof.
package holders

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// maxDepth is the largest number of return addresses of a stack.
const maxDepth = 64

// Origin says where and when a timer was armed.
type Origin struct {
	PCs   []uintptr // as of runtime.Callers, frames of the library included
	Armed int64     // ns: a reading of the wheel's clock
}

// Here returns the stack of the caller as an Origin.
func Here(now int64) *Origin {
	var pcs [maxDepth]uintptr
	n := runtime.Callers(2, pcs[:])
	return &Origin{append([]uintptr(nil), pcs[:n]...), now}
}

// Timer names a timer, as a handle does.
type Timer struct {
	Page  *atomic.Pointer[arena.Page] // nil there: the page was given back
	Index uint32
	Gen   uint32
}

// load returns the page and the word of the timer. It returns false if the timer has ended. A plan
// that runs has not.
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
	case arena.Staged, arena.Placed, arena.Running:
		return pg, w, true
	}
	return nil, 0, false
}

// Table holds the samples of one shard. It is pure data, guarded by a lock of the shard.
//
// The calls that end a timer do not know of its sample. A sample is dropped when the table finds
// that its timer has ended: each Set looks at the next two entries, and Each at all of them. A
// round of Sets through n entries thus drops what had ended before, and adds n/2. The table
// therefore has at most about twice as many entries as there were samples of pending timers.
//
//	T1  slots has exactly the slots of the entries in use, each with its entry.
//	T2  free lists exactly the entries that are not in use.
type Table struct {
	lambda  float64 // of the distance between two samples
	entries []sample
	slots   map[uint32]int32 // entries in use, by slot
	free    []int32          // entries not in use
	hand    int              // the entry that the next Set looks at
}

// sample is an entry. Its origin is nil if the entry is not in use.
type sample struct {
	Timer
	origin *Origin
}

// New returns an empty table for one of rate arms. rate is positive.
func New(rate int) *Table {
	return &Table{lambda: -math.Log1p(-1 / float64(rate)), slots: map[uint32]int32{}}
}

// Distance returns the number of arms from one sample to the next, which is at least 1. It is
// geometrically distributed. Every arm is therefore sampled with the same probability, whatever the
// arms before it were, also if the program arms in a pattern.
func (t *Table) Distance() int64 { return 1 + int64(rand.ExpFloat64()/t.lambda) }

// Set sets the origin of a timer, unless the timer has ended. A nil origin drops its sample. O(1).
func (t *Table) Set(timer Timer, origin *Origin) {
	t.look()
	t.look()
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
	case known: // of this timer or of an earlier one of the slot
	case last >= 0:
		k, t.free = t.free[last], t.free[:last]
	default:
		k = int32(len(t.entries))
		t.entries = append(t.entries, sample{})
	}
	t.slots[timer.Index] = k
	t.entries[k] = sample{timer, origin}
}

// Renew notes that a timer goes on with another generation. O(1).
func (t *Table) Renew(index, gen, next uint32) {
	if k, ok := t.slots[index]; ok && t.entries[k].Gen == gen {
		t.entries[k].Gen = next
	}
}

// Origin returns the origin of a timer, or nil if the timer was not sampled. O(1).
func (t *Table) Origin(timer Timer) *Origin {
	if k, ok := t.slots[timer.Index]; ok && t.entries[k].Timer == timer {
		return t.entries[k].origin
	}
	return nil
}

// Each calls yield for the samples of pending timers among n entries, and drops those of timers
// that have ended. The first entry is from. Each returns the entry that follows, and false if there
// is none. A sample keeps its entry, so a round in several calls misses none and gives none twice.
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

// look looks at the next entry and drops it if its timer has ended.
func (t *Table) look() {
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
