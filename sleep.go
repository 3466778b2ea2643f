package timingwheel

import (
	"context"
	"errors"
	"time"
)

// ErrStopped is what waiting for a wheel returns that has been stopped.
var ErrStopped = errors.New("timingwheel: the wheel is stopped")

// Sleep waits until d has passed, up to one tick longer and never shorter, and returns nil. It returns ctx.Err() where ctx ends before, or has
// ended when Sleep is called, whatever d is; ask [context.Cause] for the cause. Where both happen, nil means that d had passed when Sleep looked. It returns
// [ErrStopped] where the wheel is stopped before or meanwhile. A Flush wakes it as if d had passed.
//
// Zero and negative d return at once, also on a stopped wheel and in Manual mode. A d beyond the range of the clock never passes. In Manual mode
// Sleep waits until another goroutine has advanced the clock, so it must not be called in a callback that Advance runs, nor with Inline in any
// callback: it holds up the wheel.
//
// Sleep panics where ctx is nil. It allocates nothing as a rule. O(1).
func (tw *TimingWheel) Sleep(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		panic("timingwheel: Sleep with a nil context")
	}
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	s := tw.sleeper()
	timer := tw.engine.after(d, s.wake)
	if timer == (Timer{}) {
		tw.sleepers.Put(s)
		return ErrStopped
	}
	var halting <-chan struct{} // nil: nobody can stop the wheel
	if !tw.shared {
		halting = timer.shard.haltChan()
	}
	reusable, err := s.wait(ctx, timer, halting)
	if reusable {
		tw.sleepers.Put(s)
	}
	return err
}

// sleeper is somebody who sleeps. It is used again only when its timer cannot wake it any more: it has done so, or was stopped.
type sleeper struct {
	awake chan struct{}
	wake  func()
}

func (tw *TimingWheel) sleeper() *sleeper {
	if s, ok := tw.sleepers.Get().(*sleeper); ok {
		return s
	}
	s := &sleeper{awake: make(chan struct{}, 1)}
	s.wake = func() { s.awake <- struct{}{} } // there is room
	return s
}

// wait returns what Sleep returns, and whether the sleeper may be used again.
func (s *sleeper) wait(ctx context.Context, timer Timer, halting <-chan struct{}) (reusable bool, err error) {
	if halting == nil && ctx.Done() == nil {
		<-s.awake
		return true, nil
	}
	select {
	case <-s.awake:
		return true, nil
	case <-halting:
		return s.halted(ErrStopped)
	case <-ctx.Done():
	}
	if timer.Stop() {
		return true, ctx.Err()
	}
	select { // d has passed as well and the callback is about to run, or the wheel is stopped
	case <-s.awake:
		return true, nil
	case <-halting:
		return s.halted(ctx.Err())
	}
}

// halted is what becomes of a sleeper on a stopped wheel. Its callback has run, may be about to, or never will.
func (s *sleeper) halted(err error) (reusable bool, _ error) {
	select {
	case <-s.awake:
		return true, nil
	default:
		return false, err
	}
}

// Sleep calls [TimingWheel.Sleep] on [Default].
func Sleep(ctx context.Context, d time.Duration) error { return Default().Sleep(ctx, d) }
