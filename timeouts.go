package timingwheel

import (
	"context"
	"io"
	"reflect"
	"time"
)

// perCallMax is the largest number of payloads for one call of the expire function of [Timeouts].
const perCallMax = 256

// Timeouts is a [TimingWheel] whose timers have a payload and no callback. If T holds no pointer,
// the garbage collector has nothing to scan.
type Timeouts[T any] struct{ engine *engine[T] }

// NewTimeouts returns a running wheel that hands expired payloads to expire, in batches of at most
// 256 that are never held back to fill. Errors are those of [New]. It panics if expire is nil.
// expire may run on several goroutines at once, and its slice is valid during the call only. A
// payload is pending until its batch starts. A panic loses at most the rest of its batch.
func NewTimeouts[T any](opts Options, expire func(expired []T)) (*Timeouts[T], error) {
	if expire == nil {
		panic("timingwheel: NewTimeouts with a nil function")
	}
	return newTimeoutsAt(opts, 0, expire)
}

func newTimeoutsAt[T any](opts Options, origin int64, expire func([]T)) (*Timeouts[T], error) {
	code := reflect.ValueOf(expire).Pointer()
	e, err := newEngine(opts, origin, job[T]{
		perCall: perCallMax,
		run:     expire,
		callee:  func([]T) uintptr { return code },
	})
	if err != nil {
		return nil, err
	}
	return &Timeouts[T]{engine: e}, nil
}

// Add hands v to the expire function d from now, see [TimingWheel.AfterFunc].
func (w *Timeouts[T]) Add(d time.Duration, v T) Timer { return w.engine.after(d, v) }

// AddAt is Add for a point in time.
func (w *Timeouts[T]) AddAt(t time.Time, v T) Timer { return w.engine.at(t, v) }

// RemoveAll removes and returns what is pending, in no order. The timers count as stopped. It may
// wait for a driver or worker. O(pending timers).
func (w *Timeouts[T]) RemoveAll() []T {
	var all []T
	for _, s := range w.engine.shards {
		if all == nil {
			all = s.removeAll()
			continue
		}
		all = append(all, s.removeAll()...)
	}
	return all
}

// String is [TimingWheel.String].
func (w *Timeouts[T]) String() string { return w.engine.describe("Timeouts") }

// Len is [TimingWheel.Len].
func (w *Timeouts[T]) Len() int { return w.engine.pending() }

// Stats is [TimingWheel.Stats].
func (w *Timeouts[T]) Stats() Stats { return w.engine.stats() }

// Occupancy is [TimingWheel.Occupancy].
func (w *Timeouts[T]) Occupancy() Occupancy {
	return w.engine.occupancy(occupancyWhole, occupancySlots)
}

// WriteProfile is [TimingWheel.WriteProfile].
func (w *Timeouts[T]) WriteProfile(to io.Writer) error { return w.engine.writeProfile(to) }

// Stop is [TimingWheel.Stop].
func (w *Timeouts[T]) Stop() { w.engine.stop() }

// Shutdown is [TimingWheel.Shutdown].
func (w *Timeouts[T]) Shutdown(ctx context.Context) error {
	mustHaveContext(ctx)
	return w.engine.shutdown(ctx)
}

// Now is [TimingWheel.Now].
func (w *Timeouts[T]) Now() time.Time { return w.engine.clockTime() }

// Advance is [TimingWheel.Advance]. It returns the number of payloads.
func (w *Timeouts[T]) Advance(now time.Time) int { return w.engine.advanceTo(now) }

// Next is [TimingWheel.Next].
func (w *Timeouts[T]) Next() (time.Time, bool) { return w.engine.next() }
