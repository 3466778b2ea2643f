package timingwheel

import "time"

// ChannelTimer is time.Timer with a channel, on a wheel: when it fires, the time is sent on C. Make one with [TimingWheel.NewTimer]. (The name Timer is
// that of the handle of a callback.)
//
// As with time.Timer since Go 1.23, no value of an earlier setting can be received once Stop or Reset has returned, so nobody has to drain C. All methods
// may be called at any time from any goroutine, callbacks included. A ChannelTimer must not be copied.
type ChannelTimer struct {
	C <-chan time.Time // with room for one value; the same for ever, never closed

	emitter emitter
}

// After returns a channel on which the time is sent once, d from now or up to one tick later, never earlier. It is the channel of a [TimingWheel.NewTimer]
// that nobody can stop, and cheaper than that: where the value may turn out not to be wanted, a ChannelTimer that is stopped gives its memory back at once,
// and this one when d has passed.
//
// Zero and negative mean at once; a d beyond the range of the clock is never reached. Nothing is sent on a wheel that is stopped, before or meanwhile.
// O(1), with one closure and the channel to allocate.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	tw.engine.after(d, func() { c <- tw.today() }) // there is room
	return c
}

// NewTimer returns a timer that sends the time on its channel once, d from now or up to one tick later, never earlier. What is sent is the time of
// firing: the current time, as from time.Now, or in Manual mode that of the wheel's clock.
//
// Zero and negative mean at once, in Manual mode in the next Advance; a d beyond the range of the clock is never reached. On a stopped wheel nothing
// is ever sent. No goroutine waits. Until it fires or is stopped the wheel keeps the timer, also where nobody else does. O(1).
func (tw *TimingWheel) NewTimer(d time.Duration) *ChannelTimer {
	t := new(ChannelTimer)
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop prevents the timer from firing, and takes the value back where it has fired and nobody has received it. It returns true if this call did
// either, and false if the value has been received or the timer had been stopped before. Once Stop has returned, a receive from C blocks until a
// Reset.
//
// On a stopped wheel, which has discarded the timer, Stop returns false, unless the value was sent before and is taken back. It panics where the
// timer was not made by NewTimer. O(1) amortised.
func (t *ChannelTimer) Stop() bool {
	t.must("Stop")
	return t.emitter.stop()
}

// Reset makes the timer fire d from now, whether it is pending, has fired or was stopped. It returns what Stop would have returned: true if no
// value of the earlier setting had been received. None is received after Reset has returned. Zero and negative mean at once.
//
// If several calls race, the last one to reach the timer decides. On a stopped wheel nothing is
// armed. Moving a pending timer later is as cheap as [Timer.Reschedule], and allocates nothing.
// Reset panics if the timer was not made by NewTimer. O(1).
func (t *ChannelTimer) Reset(d time.Duration) bool {
	t.must("Reset")
	return t.emitter.reset(d)
}

func (t *ChannelTimer) must(method string) {
	if t.emitter.wheel == nil {
		panic("timingwheel: " + method + " of a ChannelTimer that was not made by NewTimer")
	}
}

// After calls [TimingWheel.After] on [Default].
func After(d time.Duration) <-chan time.Time { return Default().After(d) }

// NewTimer calls [TimingWheel.NewTimer] on [Default].
func NewTimer(d time.Duration) *ChannelTimer { return Default().NewTimer(d) }
