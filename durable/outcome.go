package durable

import (
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

// failed decides what happens to a message whose delivery has failed. cancelled means that the
// handler's context ended because the lease was lost or the consumer ends. The cause is err, or an
// error with the reason if a method of err panics.
func (d *Delivery) failed(err error, cancelled bool) (op driver.Op, change driver.Change, cause error) {
	change.Reason, cause = reasonOf(err)
	defer func() { // the error's methods and Backoff are user code
		if v := recover(); v != nil {
			op, change.Delay = driver.OpRetry, time.Second
			cause = fmt.Errorf("panic in the error of a delivery or in Backoff: %v; the error: %s", v, change.Reason)
			change.Reason = cause.Error()
			if d.last() {
				op = driver.OpBury
			}
		}
	}()
	var retry *retryError
	var panicked *PanicError
	switch {
	case cancelled && !errors.Is(err, errRejected) && !errors.As(err, &retry) && !errors.As(err, &panicked):
		return driver.OpRelease, driver.Change{}, nil // usually because its context was cancelled
	case errors.Is(err, errRejected) || d.last():
		return driver.OpBury, change, cause
	case errors.As(err, &retry):
		change.Delay = retry.after
	default:
		change.Delay = max(0, d.from.opts.Backoff(d, err))
	}
	return driver.OpRetry, change, cause
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

var errRejected = errors.New("rejected")

// Reject returns an error for handlers that makes the message a dead letter immediately, regardless
// of the remaining attempts, even if err is nil. The returned error wraps err.
func Reject(err error) error {
	if err == nil {
		return errRejected
	}
	return fmt.Errorf("%w: %w", errRejected, err)
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter returns an error for handlers that makes the message due after d, instead of the delay
// of ConsumerOptions.Backoff. If d <= 0, the message is due immediately. The delivery counts as a
// failed attempt, even if err is nil. After the last attempt the message becomes a dead letter. The
// returned error wraps err.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errRetry
	}
	return &retryError{max(0, d), err}
}

var errRetry = errors.New("retry requested")

// Exponential returns an exponential backoff with jitter for ConsumerOptions.Backoff. The delay
// begins with least after the first attempt and doubles with each further attempt. It is multiplied
// by a random factor from 0.5 to 1.5, so that messages that failed together are not retried
// together. The delay never exceeds most. If least <= 0, the delay is 0. The delay depends only on
// d.Attempts.
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

// PanicError is the error of a handler that panicked. ConsumerOptions.Backoff receives it.
// Options.OnError receives an error that wraps it and whose text includes the stack. The text of
// Error is stored with the message as its reason.
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
