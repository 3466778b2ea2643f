package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// outcome decides what happens to a message whose handler has returned err. interrupted reports
// whether err is due to the end of the handler's program. The cause is err if the delivery has
// failed, or an error with the reason if a method of err panics.
func (d *Delivery) outcome(err error, interrupted func(error) bool) (op driver.Op, change driver.Change, cause error) {
	change.Reason, cause = reasonOf(err)
	defer func() { // the error's methods and Backoff are user code
		if v := recover(); v != nil {
			op, change.Delay, change.Uncounted = driver.OpRetry, time.Second, false
			cause = fmt.Errorf("panic in the error of a delivery or in Backoff: %v; the error: %s", v, change.Reason)
			change.Reason = cause.Error()
			if d.last() {
				op = driver.OpBury
			}
		}
	}()
	var panicked *PanicError
	var own *backoffError
	o := findOutcome(err)
	switch {
	case o != nil && !o.failed():
		return driver.OpRetry, o.change, nil
	case o != nil && o.declined && d.Postponed < maxPostponed:
		change.Uncounted, change.Delay = true, exponential(time.Second, maxDeclinePause, d.Postponed+1)
	case o == nil && interrupted(err) && !errors.As(err, &panicked):
		return driver.OpRelease, driver.Change{}, nil
	case o != nil && (o.rejected || o.declined) || d.last():
		return driver.OpBury, change, cause
	case o != nil:
		change.Delay = o.change.Delay
	case errors.As(err, &own):
		change.Delay = max(0, own.backoff())
	default:
		change.Delay = max(0, d.from().opts.Backoff(d, err))
	}
	return driver.OpRetry, change, cause
}

// last reports whether this is the last attempt.
func (d *Delivery) last() bool { return d.Attempts+1 >= d.MaxAttempts }

// interrupted reports whether a handler has returned err because of the end of its context, or
// because Consume ends. The store removes a released message that was cancelled.
func (w *workers) interrupted(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrLeaseLost) || errors.Is(cause, ErrInterrupted) {
		return true
	}
	ctxErr := w.ctx.Err()
	return ctxErr != nil && (errors.Is(err, ctxErr) || errors.Is(err, context.Cause(w.ctx))) ||
		(ctxErr != nil || w.c.ctx.Err() != nil) && errors.Is(err, context.Canceled)
}

// reasonOf returns the text of an error, and the error. An error may be a nil pointer whose method
// panics. Its cause is then an error with the text.
func reasonOf(err error) (reason string, cause error) {
	defer func() {
		if v := recover(); v != nil {
			cause = fmt.Errorf("panic in the error's method: %v", v)
			reason = cause.Error()
		}
	}()
	return err.Error(), err
}

// outcomeError is an error by which a handler says what happens to its message.
type outcomeError struct {
	err      error
	change   driver.Change // of OpRetry
	rejected bool
	declined bool
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }

// failed reports whether the delivery has failed or was declined, unlike with Postpone and Again.
func (e *outcomeError) failed() bool { return !e.change.Uncounted && !e.change.Again }

// findOutcome returns the outcome that err wraps, or nil. One that is no failure does not count if
// it is joined with another error, which is a failure.
func findOutcome(err error) (o *outcomeError) {
	joined := false
	for next := err; next != nil && !joined; {
		switch e := next.(type) { //nolint:errorlint // errors.As does not tell joined errors
		case *outcomeError:
			return e
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			if joined = len(all) != 1; !joined {
				next = all[0]
			}
		default:
			next = errors.Unwrap(next)
		}
	}
	if errors.As(err, &o) && o != nil && !o.failed() {
		return nil
	}
	return o
}

// Reject returns an error that a handler returns to make its message a dead letter immediately,
// regardless of the remaining attempts, even if err is nil. The returned error wraps err.
func Reject(err error) error {
	text := errors.New("rejected")
	if err != nil {
		text = fmt.Errorf("rejected: %w", err)
	}
	return &outcomeError{err: text, rejected: true}
}

// Fail returns an error that a handler returns to make its message due after d, instead of after
// the delay from ConsumerOptions.Backoff. If d <= 0, the message is due immediately. The delivery
// counts as a failed attempt, even if err is nil. After the last attempt the message becomes a dead
// letter. The returned error wraps err.
func Fail(err error, d time.Duration) error {
	return &outcomeError{err: cmp.Or(err, errRetry), change: driver.Change{Delay: max(0, d)}}
}

var errRetry = errors.New("retry requested")

// Postpone returns an error that a handler returns to make its message due after d, or immediately
// if d <= 0. The delivery counts neither as an attempt nor as a crash: Delivery.Postponed rises by
// one, and Record.Reason becomes empty. A handler that waits for something, such as the completion
// of a payment, postpones its message and checks again. If the error from Postpone, Again or
// AgainAt is joined with another one, as with [errors.Join], the delivery counts as failed.
func Postpone(d time.Duration) error {
	return &outcomeError{err: errors.New("postponed"), change: driver.Change{Delay: max(0, d), Uncounted: true}}
}

// Again returns an error that a handler returns to acknowledge its message and make it due again
// after d, or immediately if d <= 0. The store makes both changes in one step. The message is due
// again with the same id, body and headers, and with no attempts, crashes or postponements counted.
// A message with an ExpireAt is not delivered after that time.
func Again(d time.Duration) error { return again(driver.Change{Delay: max(0, d)}) }

// AgainAt is [Again] with a due time on the store's clock, rounded up to milliseconds. If t has
// passed, the message is due immediately.
func AgainAt(t time.Time) error { return again(driver.Change{At: max(1, driver.InstantOf(t))}) }

func again(change driver.Change) error {
	change.Again = true
	return &outcomeError{err: errors.New("handled, and due again"), change: change}
}

// Decline returns an error for a handler that cannot handle its message, although another version
// of the program can, for example during a rolling upgrade. The message is postponed, for about one
// second at first, then twice as long each time, up to ten minutes. The error is logged and stored
// as the reason of the message. After 100 postponements in a row (about 13 hours), the message
// becomes a dead letter. Postponements by [Postpone] count too. The returned error wraps err.
func Decline(err error) error {
	return &outcomeError{err: cmp.Or(err, errDeclined), declined: true}
}

var errDeclined = errors.New("declined")

// Failed reports whether a delivery fails or is declined if its handler returns err, for middleware
// that records errors. [Postpone], [Again] and [AgainAt] are not failures, and neither is nil.
func Failed(err error) (failed bool) {
	defer func() {
		if recover() != nil { // in a method of err
			failed = true
		}
	}()
	o := findOutcome(err)
	return err != nil && (o == nil || o.failed())
}

const (
	maxPostponed    = 100
	maxDeclinePause = 10 * time.Minute
)

// Nack settles the delivery as if a [Handler] had returned cause. Unless [Reject] or a similar
// function has returned cause, the message is due again after the delay from
// ConsumerOptions.Backoff, and becomes a dead letter after its last attempt. cause may be nil. Up
// to 512 bytes of its text are stored with the message: see [Record]. [Kind].Backoff does not
// apply. Nack returns the same errors as [Delivery.Ack].
func (d *Delivery) Nack(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errRetry
	}
	op, change, cause := d.outcome(cause, func(error) bool { return false })
	return d.settle(ctx, op, change, cause)
}

// NackAfter is [Delivery.Nack] with a delay that replaces ConsumerOptions.Backoff. The delay is
// rounded up to milliseconds. If delay <= 0, the message is due immediately.
func (d *Delivery) NackAfter(ctx context.Context, delay time.Duration, cause error) error {
	return d.Nack(ctx, Fail(cause, delay))
}

// Postpone makes the message due after delay, without counting an attempt: see [Postpone].
func (d *Delivery) Postpone(ctx context.Context, delay time.Duration) error {
	return d.Nack(ctx, Postpone(delay))
}

// Again acknowledges the message and makes it due again after delay: see [Again].
func (d *Delivery) Again(ctx context.Context, delay time.Duration) error {
	return d.Nack(ctx, Again(delay))
}

// AgainAt acknowledges the message and makes it due again at t: see [AgainAt].
func (d *Delivery) AgainAt(ctx context.Context, t time.Time) error { return d.Nack(ctx, AgainAt(t)) }

// Bury makes the message a dead letter. The reason is stored with it, up to 512 bytes. Bury returns
// the same errors as [Delivery.Ack].
func (d *Delivery) Bury(ctx context.Context, reason string) error {
	cause := errors.New("rejected")
	if reason != "" {
		cause = errors.New(reason)
	}
	return d.settle(ctx, driver.OpBury, driver.Change{Reason: reason}, cause)
}

// outcomeEvent returns the event of a transition that settles a message, or 0.
func outcomeEvent(op driver.Op, change *driver.Change) EventKind {
	switch {
	case change.Again && change.Reason != "":
		return EventRunFailed
	case change.Again:
		return EventAgain
	case change.Uncounted:
		return EventPostponed
	case op == driver.OpAck:
		return EventAcked
	case op == driver.OpRetry:
		return EventRetried
	case op == driver.OpBury:
		return EventBuried
	case op == driver.OpExpire:
		return EventExpired
	}
	return 0
}

// retries reports whether driver.OpRetry has the event.
func (k EventKind) retries() bool {
	return k == EventAgain || k == EventRunFailed || k == EventPostponed || k == EventRetried
}

// Exponential returns an exponential backoff with jitter for ConsumerOptions.Backoff. The delay
// starts at the value of least and doubles with each further attempt. It is multiplied by a random
// factor from 0.5 to 1.5, so that messages that failed together are not retried together. The delay
// never exceeds most. If least <= 0, the delay is 0. The delay depends only on d.Attempts.
func Exponential(least, most time.Duration) func(d *Delivery, err error) time.Duration {
	return func(d *Delivery, _ error) time.Duration {
		return exponential(least, most, min(max(0, d.Attempts), 63)+1)
	}
}

// exponential returns the delay after a number of attempts.
func exponential(least, most time.Duration, attempts int) time.Duration {
	pause := math.Ldexp(float64(max(least, 0)), min(attempts, 64)-1)
	pause = min(pause, float64(most)) * (0.5 + rand.Float64())
	if pause >= float64(most) {
		return most
	}
	return time.Duration(pause)
}

// PanicError is the error for a handler that panicked. ConsumerOptions.Backoff receives it.
// Options.OnError receives an error that wraps it and whose text includes the stack. The text that
// Error returns is stored as the message's reason.
type PanicError struct {
	Value any    // the argument of panic
	Place string // file and line of the panic, with the last two elements of the path
	Stack []byte // of the goroutine, as from [debug.Stack]
}

// Error returns the place of the panic and the first line of its value.
func (e *PanicError) Error() string {
	line, _, _ := strings.Cut(fmt.Sprint(e.Value), "\n")
	return fmt.Sprintf("panic at %s: %s", e.Place, line)
}

// newPanicError returns the error for a recovered value. It must be called by the function that
// recovered it.
func newPanicError(v any) *PanicError {
	e := &PanicError{Value: v, Place: "unknown place", Stack: debug.Stack()}
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(f.Function, "runtime."): // skips sigpanic and similar frames
			dir, file := filepath.Split(f.File)
			e.Place = fmt.Sprintf("%s/%s:%d", filepath.Base(dir), file, f.Line)
			return e
		}
		if !more {
			return e
		}
	}
}
