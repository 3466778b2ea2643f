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

// Exponential is a backoff that begins with least and doubles with each attempt up to most, each time multiplied by a random
// number from 0.5 to 1.5, so that what failed together is not tried again together; never more than most.
func Exponential(least, most time.Duration) func(attempts int) time.Duration {
	return func(attempts int) time.Duration { return exponential(least, most, attempts) }
}

func exponential(least, most time.Duration, attempts int) time.Duration {
	pause := math.Ldexp(float64(least), min(max(1, attempts), 64)-1)
	pause = min(pause, float64(most)) * (0.5 + rand.Float64())
	if pause >= float64(most) {
		return most
	}
	return time.Duration(pause)
}
