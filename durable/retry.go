package durable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// retry makes a call of the store until it succeeds or fails for good, for Options.RetryFor at most.
func (q *Queue) retry(call func(ctx context.Context) error) error {
	start := time.Now()
	err := call(q.ctx)
	if errors.Is(err, ErrUnavailable) {
		err = q.retryAfter(err, start, call)
	}
	if q.ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w while it was under way: %w", ErrClosed, err)
	}
	return err
}

// retryAfter goes on after a first call, which began at start and has failed.
func (q *Queue) retryAfter(first error, start time.Time, call func(ctx context.Context) error) error {
	err := first
	for attempts := 1; errors.Is(err, ErrUnavailable); attempts++ {
		pause := exponential(10*time.Millisecond, time.Second, attempts)
		if time.Since(start)+pause > q.options.RetryFor {
			break
		}
		q.options.OnError(fmt.Errorf("durable: queue %q: %w; next try in %v", q.options.Queue, err, pause))
		select {
		case <-time.After(pause):
			err = call(q.ctx)
		case <-q.ctx.Done():
			return context.Cause(q.ctx)
		}
	}
	return err
}

// Exponential is a backoff for ConsumerOptions that begins with least and doubles with each attempt,
// each time multiplied by a random number from 0.5 to 1.5, so that messages that failed together do
// not come again together; never more than most. It looks at d.Attempts only.
func Exponential(least, most time.Duration) func(d *Delivery, err error) time.Duration {
	return func(d *Delivery, _ error) time.Duration { return exponential(least, most, min(max(0, d.Attempts), 63)+1) }
}

// exponential returns the pause after a number of attempts.
func exponential(least, most time.Duration, attempts int) time.Duration {
	pause := math.Ldexp(float64(least), min(attempts, 64)-1)
	pause = min(pause, float64(most)) * (0.5 + rand.Float64())
	if pause >= float64(most) {
		return most
	}
	return time.Duration(pause)
}
