package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
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
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 10*time.Millisecond, time.Second
	_, err := backoff.Retry(q.ctx, func() (struct{}, error) {
		err := first
		if first = nil; err == nil {
			err = call(q.ctx)
		}
		if err != nil && !errors.Is(err, ErrUnavailable) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(max(1, q.options.RetryFor-time.Since(start))), backoff.WithNotify(func(err error, pause time.Duration) {
		q.report("%w; next try in %v", err, pause)
	}))
	return err
}

// Exponential is a backoff for ConsumerOptions that begins with least and doubles with each attempt,
// each time multiplied by a random number from 0.5 to 1.5, so that messages that failed together do
// not come again together; never more than most. It looks at d.Attempts only.
func Exponential(least, most time.Duration) func(d *Delivery, err error) time.Duration {
	return func(d *Delivery, _ error) time.Duration {
		b := &backoff.ExponentialBackOff{InitialInterval: least, MaxInterval: most, Multiplier: 2, RandomizationFactor: 0.5}
		b.Reset()
		pause := least
		for range min(max(0, d.Attempts), 63) + 1 {
			pause = b.NextBackOff()
		}
		if pause < 0 { // it does not fit
			pause = most
		}
		return min(pause, most)
	}
}
