package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// retry makes a call to the store until it succeeds or fails permanently, for at most
// Options.RetryFor.
func (q *Queue) retry(call func(ctx context.Context) error) error {
	if q.ctx.Err() != nil {
		return ErrClosed
	}
	start := time.Now()
	err := call(q.ctx)
	unanswered := errors.Is(err, ErrUnavailable)
	err = q.retryAfter(err, start, call)
	switch {
	case err != nil && q.ctx.Err() != nil:
		return fmt.Errorf("%w while the call was in progress: %w", ErrClosed, unknown(err))
	case err != nil && unanswered && !errors.Is(err, ErrUnavailable): // an earlier copy may have taken effect
		return unknown(err)
	}
	return err
}

// retryAfter retries a call while it returns ErrUnavailable. The first attempt began at start.
func (q *Queue) retryAfter(first error, start time.Time, call func(ctx context.Context) error) error {
	err, outage := first, false
	for attempts := 1; errors.Is(err, ErrUnavailable); attempts++ {
		pause := exponential(10*time.Millisecond, time.Second, attempts)
		if time.Since(start)+pause > q.options.RetryFor {
			break
		}
		if !outage && time.Since(start) >= outageAfter {
			outage = true
			q.limiter.outage(1)
		}
		q.report("%w; retrying in %v", err, pause)
		select {
		case <-time.After(pause):
			err = call(q.ctx)
		case <-q.ctx.Done():
			err = context.Cause(q.ctx)
		}
	}
	if outage {
		q.limiter.outage(-1)
	}
	return err
}

// caller makes calls without a token, all of one kind and one at a time, so that each takes effect
// once: see [driver.Call]. It is used by the goroutine of one batcher.
type caller struct {
	p      *part
	name   string
	seq    uint64 // of the last call
	groups bool   // the store groups calls and ignores driver.Call, so a call is not repeated
}

// A call may take effect until callWindow, or RetryFor if that is longer, after it was last sent.
// The window is longer than a copy takes to arrive, and than the error of this process's estimate
// of the store's clock.
const (
	callWindow  = 10 * time.Second
	maxRetryFor = contract.MaxAhead / 2
)

// call makes a call to the store and repeats it while the store is unreachable. The result comes
// from the copy that took effect. The store does not remember a rejection without statuses, such as
// [ErrFull]. If the reply to an earlier copy was lost, that copy may still arrive and take effect,
// so the error also wraps [ErrUnavailable]. A store that groups calls gets one call, with ctx.
func (c *caller) call(ctx context.Context, do func(ctx context.Context, call driver.Call) error) error {
	if c.groups {
		return do(ctx, driver.Call{})
	}
	c.seq++
	call := driver.Call{Caller: c.name, Seq: c.seq, NotAfter: c.p.notAfter()}
	unanswered, unknown := false, false
	err := c.p.q.retry(func(ctx context.Context) error {
		err := do(ctx, call)
		var late *driver.LateError
		for tries := 0; errors.As(err, &late); tries++ {
			if unknown = unanswered && late.Unknown; unknown {
				return err
			}
			if tries == 3 {
				return fmt.Errorf("%w: its clock was ahead of the estimate in several consecutive calls (%w)",
					ErrUnavailable, err)
			}
			// No copy has taken effect: the clock was estimated wrongly, or was set.
			c.p.clock.refused(late.Now)
			call.NotAfter = c.p.notAfter()
			err = do(ctx, call)
		}
		unanswered = unanswered || errors.Is(err, ErrUnavailable)
		return err
	})
	if unknown {
		return fmt.Errorf("%w: the reply to a call was lost, and the store's clock was set forward since then, so the call may have taken effect (%w)",
			ErrUnavailable, err)
	}
	if err != nil && unanswered && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w (%w: the reply to an earlier copy of the call was lost, and that copy may take effect until %v on the store's clock)",
			err, ErrUnavailable, call.NotAfter.Time())
	}
	return err
}

// notAfter returns the last instant for a call that begins now. The first call uses the clock of
// this process. If that clock is wrong, the store rejects the call and returns its own clock.
func (p *part) notAfter() driver.Instant {
	return p.clock.callTime().Add(max(callWindow, p.q.options.RetryFor))
}
