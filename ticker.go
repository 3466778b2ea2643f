package timingwheel

import (
	"fmt"
	"iter"
	"time"
)

// Ticker is time.Ticker on a wheel: it sends the time on C again and again. Make one with [TimingWheel.NewTicker], and stop it in the end: the wheel keeps
// it until then, also where nobody else does.
//
// As with time.Ticker since Go 1.23, no tick of before can be received once Stop or Reset has returned. All methods may be called at any time from any
// goroutine, callbacks included. A Ticker must not be copied.
type Ticker struct {
	C <-chan time.Time // with room for one tick; the same for ever, never closed

	emitter emitter
	rhythm  rhythm
}

// NewTicker returns a ticker that sends the time on its channel after each d, up to one tick of the wheel later and never earlier. What is sent is
// the time of firing, as with [TimingWheel.NewTimer].
//
// It keeps its phase: ticks belong to multiples of d after the call. One that finds an earlier one still in the channel is dropped, and so are those that
// have passed when the ticker gets to run, the first of them excepted. A d below the tick of the wheel thus makes one tick for each tick of the
// wheel; in Manual mode there is at most one in each Advance.
//
// NewTicker panics where d is not positive. On a stopped wheel nothing is ever sent. No goroutine waits, and a tick allocates nothing. O(1).
func (tw *TimingWheel) NewTicker(d time.Duration) *Ticker {
	mustBePositive("NewTicker", d)
	t := new(Ticker)
	t.rhythm.period = int64(d)
	t.emitter.rhythm = &t.rhythm
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop turns the ticker off and takes back a tick that nobody has received. Once it has returned, a receive from C blocks until a Reset. C is
// not closed. More calls do nothing, and so does one of a Ticker that was not made by NewTicker, as with time.Ticker. O(1) amortised.
func (t *Ticker) Stop() {
	if t.emitter.wheel != nil {
		t.emitter.stop()
	}
}

// Reset stops the ticker and starts it anew with the period d: the first tick comes d from now. No tick of before is received after Reset has returned. It
// starts a ticker that was stopped, too. On a stopped wheel nothing is ever sent.
//
// Reset panics where d is not positive, or the ticker was not made by NewTicker. O(1).
func (t *Ticker) Reset(d time.Duration) {
	mustBePositive("Ticker.Reset", d)
	if t.emitter.wheel == nil {
		panic("timingwheel: Reset of a Ticker that was not made by NewTicker")
	}
	t.emitter.reset(d)
}

// Tick returns an iterator over the ticks of a [TimingWheel.NewTicker], which a loop makes when it begins and stops when it is left, by whatever way:
//
//	for now := range tw.Tick(time.Second) {
//
// Where the body takes longer than d, ticks are dropped. The loop ends when the wheel is stopped: it takes no tick once Stop has returned, also where one
// was waiting for it. Each loop over the iterator has a ticker of its own. Tick panics where d is not positive.
func (tw *TimingWheel) Tick(d time.Duration) iter.Seq[time.Time] {
	mustBePositive("Tick", d)
	return func(yield func(time.Time) bool) {
		t := tw.NewTicker(d)
		defer t.Stop()
		home := t.emitter.home()
		if home == nil {
			return
		}
		halting := home.haltChan()
		for {
			select {
			case now := <-t.C:
				// Of two calls of Stop at once the second may return before the first has closed halting, so that would say too little.
				if home.isStopped() || !yield(now) {
					return
				}
			case <-halting:
				return
			}
		}
	}
}

func mustBePositive(function string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("timingwheel: %s(%v): accepted is a positive duration", function, d))
	}
}

// NewTicker calls [TimingWheel.NewTicker] on [Default].
func NewTicker(d time.Duration) *Ticker { return Default().NewTicker(d) }

// Tick calls [TimingWheel.Tick] on [Default].
func Tick(d time.Duration) iter.Seq[time.Time] { return Default().Tick(d) }
