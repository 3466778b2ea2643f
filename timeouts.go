package timingwheel

import (
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// perCallMax is the largest number of payloads for one call to the expire function of [Timeouts].
const perCallMax = 256

// Timeouts is a wheel whose timers hold a payload of type T instead of a function. Payloads that
// have expired are passed to one function, in batches. If T contains no pointers, the timers hold
// nothing that the garbage collector has to scan. Make one with [NewTimeouts].
type Timeouts[T any] struct{ common }

// NewTimeouts returns a running wheel that passes expired payloads to expire. It returns the same
// errors as [New]. A batch has 1 to 256 payloads; the wheel never delays one to fill it.
// [Options.Executor] determines which goroutines run expire. expire may run on several goroutines
// concurrently, even for one shard. The slice is valid only during the call.
//
// A payload is pending until its batch starts. After that, the Stop method of its handle returns
// false, even if expire has not reached the payload yet. If expire panics or calls runtime.Goexit,
// the rest of the batch, at most 255 payloads, is lost. NewTimeouts panics if expire is nil.
func NewTimeouts[T any](opts Options, expire func(expired []T)) (*Timeouts[T], error) {
	if expire == nil {
		panic("timingwheel: NewTimeouts with a nil function")
	}
	return newTimeoutsAt(opts, 0, expire)
}

func newTimeoutsAt[T any](opts Options, origin int64, expire func([]T)) (*Timeouts[T], error) {
	code := codeOf(expire)
	j := &job[T]{run: expire, callee: func([]T) uintptr { return code }}
	e, err := j.newEngine(opts, origin, perCallMax)
	if err != nil {
		return nil, err
	}
	return &Timeouts[T]{common{engine: e}}, nil
}

// Add passes v to the expire function d from now or up to one tick later, and never earlier. If d
// is zero or negative, v is due immediately. Add returns a handle that can stop or reschedule the
// timer, or the zero Timer on a stopped wheel. In all other respects Add is like
// [TimingWheel.AfterFunc].
func (w *Timeouts[T]) Add(d time.Duration, v T) Timer { return armAfter(w.engine, d, v) }

// AddAt passes v to the expire function at t or up to one tick later, and never earlier. If t has
// passed, v is due immediately. A t without a monotonic reading is converted as in
// [TimingWheel.AtFunc]. In all other respects AddAt is like [Timeouts.Add].
func (w *Timeouts[T]) AddAt(t time.Time, v T) Timer { return armAtTime(w.engine, t, v) }

// RemoveAll removes all pending timers and returns their payloads, in no particular order. The
// timers count as stopped, and the wheel continues to work. If nothing is pending or the wheel is
// stopped, the result is empty. To keep the payloads, call RemoveAll before Stop. RemoveAll may
// wait while one of the wheel's goroutines moves timers. O(the wheel's memory).
func (w *Timeouts[T]) RemoveAll() []T {
	var all []T
	for _, s := range w.engine.shards {
		all = removeAll(s, all)
	}
	return all
}

// String describes the wheel in one line. See [TimingWheel.String].
func (w *Timeouts[T]) String() string { return w.engine.describe("Timeouts") }

// removeAll removes all pending timers and appends their payloads to all. O(records). It holds
// owner.mu throughout.
func removeAll[T any](s *shard, all []T) []T {
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return all
	}
	s.owner.drainAll()
	o := &s.owner
	var zero T
	all = slices.Grow(all, s.pending())
	for t, pg := range s.all {
		if _, ok := pg.Change(t.index, arena.Spent, arena.Placed); !ok {
			continue
		}
		p := payloadOf[T](s, t.index)
		all = append(all, *p)
		*p = zero
		o.counters.stopped++
		o.leaveBucket(t.index)
		if o.freed = append(o.freed, t.index); len(o.freed) >= removalGroup {
			o.reclaim()
		}
	}
	o.reclaim()
	return all
}
