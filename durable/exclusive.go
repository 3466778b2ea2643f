package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// OneAtATime returns middleware that handles messages with the same key one at a time, in all
// consumers of the queue that use it. key returns the key of a message, for example one of its
// headers. Messages with the key "" are not restricted. A message whose key is taken is postponed,
// first for about 0.1 s and at last for about 5 s: see [Postpone]. Messages with the same key are
// therefore not handled in the order of their due times.
//
// The lock of a key is a message of the queue with the id "lock:" and the key, which no handler
// receives. It is due after ConsumerOptions.Visibility, rescheduled while the handler runs, and
// cancelled when it returns. If the process crashes, the key is free after Visibility. If the lock
// cannot be rescheduled in time, because the store is unreachable or [Queue.CancelAll] has removed
// it, the context of the handler is cancelled with [ErrLeaseLost]. A handler that runs on after
// that, or in a process that was suspended, may run beside the next one.
//
// A lock costs three calls to the store for each delivery. If the store fails, the message is
// declined: see [Decline].
func OneAtATime(key func(d *Delivery) string) func(Handler) Handler {
	return func(next Handler) Handler {
		return func(ctx context.Context, d *Delivery) error {
			k := key(d)
			if k == "" {
				return next(ctx, d)
			}
			l := &keyLock{q: d.from().q, id: "lock:" + k, lease: d.from().opts.Visibility}
			if err := l.take(ctx); errors.Is(err, ErrDuplicate) {
				return Postpone(exponential(100*time.Millisecond, 5*time.Second, d.Postponed+1))
			} else if err != nil {
				return Decline(err)
			}
			ctx, cancel := context.WithCancelCause(ctx)
			renewed := make(chan struct{})
			go func() {
				defer close(renewed)
				l.renew(ctx, cancel)
			}()
			defer func() {
				cancel(nil)
				<-renewed
				l.release()
			}()
			err := next(ctx, d)
			if err != nil && errors.Is(context.Cause(ctx), ErrLeaseLost) {
				err = Decline(fmt.Errorf("durable: key %q: %w", k, err))
			}
			return err
		}
	}
}

// keyLock is the lock of a key.
type keyLock struct {
	q        *Queue
	id       string
	lease    time.Duration
	until    time.Time      // the earliest end of the lease, on this process's clock
	enqueued driver.Instant // tells this lock from a later one of the key
}

// take stores the lock, or returns ErrDuplicate.
func (l *keyLock) take(ctx context.Context) error {
	l.until = time.Now().Add(l.lease)
	ctx, cancel := context.WithDeadline(ctx, l.until)
	defer cancel()
	if _, err := l.q.Enqueue(ctx, Message{ID: l.id, Delay: l.lease, ExpireAt: time.UnixMilli(1)}); err != nil {
		return err
	}
	r, err := l.q.Get(ctx, l.id)
	l.enqueued = driver.InstantOf(r.Enqueued)
	return err
}

// renew keeps the lock until ctx ends, or cancels it if the lock is lost.
func (l *keyLock) renew(ctx context.Context, cancel context.CancelCauseFunc) {
	for pause := l.lease / 3; time.Until(l.until) > l.lease/8; { // the rest is for the handler to end
		if sleep(ctx, pause); ctx.Err() != nil {
			return
		}
		sent := time.Now()
		call, end := context.WithDeadline(ctx, l.until.Add(-l.lease/8))
		answer, err := l.q.change(call, driver.OpReschedule, driver.Change{ID: l.id, Delay: l.lease})
		end()
		switch {
		case err != nil || !time.Now().Before(l.until): // it may have been a later lock
			pause = l.lease / 16
		case answer.Status != driver.StatusDone:
			cancel(ErrLeaseLost)
			return
		default:
			l.until, pause = sent.Add(l.lease), l.lease/3
		}
	}
	cancel(ErrLeaseLost)
}

// release removes the lock unless it has expired.
func (l *keyLock) release() {
	ctx, cancel := context.WithDeadline(l.q.ctx, l.until)
	defer cancel()
	_, _ = l.q.change(ctx, driver.OpCancel, driver.Change{ID: l.id, Incarnation: l.enqueued}) // else it expires
}
