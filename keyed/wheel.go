package keyed

import (
	"context"
	"io"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Stop discards all keys and stops the wheel; none of them is reported. Calls of the expire function that have begun go on, and keys
// that have been taken out for a call that is about to begin are still reported; no key is taken out once Stop has returned. Stop is
// idempotent and may be called from the expire function. Every later call returns at once: Set, Touch, Delete and Has false, Len 0,
// All nothing. O(shards).
func (k *Keys[K]) Stop() {
	k.timers.Store(nil) // before the wheel, see sweep.go
	k.wheel.Stop()
}

// Shutdown is Stop and then waits for calls of the expire function. It returns nil when none runs any more, or ctx's error where ctx
// ends first. In the expire function it waits for itself until ctx ends. It may be called again, also after Stop. It panics where ctx is
// nil, and the set then goes on.
func (k *Keys[K]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		panic("keyed: Shutdown with a nil context")
	}
	k.Stop()
	return k.wheel.Shutdown(ctx)
}

// Stats returns a snapshot of the counters of the wheel, see [timingwheel.Stats]. Fired counts all timers that were claimed, also
// those whose keys were set, touched or deleted right afterwards and not reported. Bytes leaves out the map.
func (k *Keys[K]) Stats() timingwheel.Stats { return k.wheel.Stats() }

// WriteProfile is [timingwheel.TimingWheel.WriteProfile]. The timers are those of the keys.
func (k *Keys[K]) WriteProfile(w io.Writer) error { return k.wheel.WriteProfile(w) }

// Occupancy tells where the keys' timers stand on the wheel, see [timingwheel.Timeouts.Occupancy]. With it, Len and Stats a set can be
// shown by package debug, as a wheel can.
func (k *Keys[K]) Occupancy() timingwheel.Occupancy { return k.wheel.Occupancy() }

// Now is [timingwheel.TimingWheel.Now].
func (k *Keys[K]) Now() time.Time { return k.wheel.Now() }

// Advance is [timingwheel.TimingWheel.Advance]: in Manual mode it moves the clock, reports what is due and returns how many timers it
// claimed, or handed over. That is the number of keys reported, unless other goroutines deleted or touched some of them meanwhile.
func (k *Keys[K]) Advance(now time.Time) int { return k.wheel.Advance(now) }

// Next is [timingwheel.TimingWheel.Next]: a time not later than the earliest deadline rounded up, false where no timer is pending.
func (k *Keys[K]) Next() (time.Time, bool) { return k.wheel.Next() }
