package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// OneAtATime returns middleware that handles messages with the same key one at a time, across all
// of the queue's consumers that use the middleware. key returns the key of a message, for example
// one of its headers. Messages with the key "" are not restricted. If a key exceeds 250 bytes or
// contains a control character, the message becomes a dead letter. Two such middlewares in one
// chain must not have a key in common.
//
// A message whose key is taken is postponed (see [Postpone]), for about 0.1 s at first, then twice
// as long each time, up to 5 s. It does not keep its place: a later message with the key may be
// handled before it. Each postponed delivery occupies a handler and counts toward Source.Rate.
//
// The lock on a key is a message in the queue, whose id is "lock:" followed by the key. It is due
// after ConsumerOptions.Visibility, rescheduled while the handler runs, and cancelled when the
// handler returns. No handler receives it. If the process crashes, the lock expires when it is due
// (see Message.ExpireAt). If the lock cannot be rescheduled in time, because the store is
// unreachable or [Queue.CancelAll] has removed it, the handler's context is cancelled with
// [ErrLeaseLost]. A handler that continues after that, or after its process was suspended, may
// overlap with the next one.
//
// A delivery with a key makes three more calls to the store, plus one every third of Visibility. If
// the store fails, or the lock is lost and the handler returns an error, the failure is reported to
// Options.OnError and the message is postponed without counting an attempt.
func OneAtATime(key func(d *Delivery) string) func(Handler) Handler {
	return func(next Handler) Handler {
		return func(ctx context.Context, d *Delivery) error {
			k := key(d)
			if k == "" {
				return next(ctx, d)
			}
			l := &keyLock{q: d.from().q, id: "lock:" + k, lease: d.from().opts.Visibility}
			postpone := Postpone(exponential(100*time.Millisecond, 5*time.Second, d.Postponed+1))
			switch err := l.acquire(ctx); {
			case errors.Is(err, ErrInvalid): // the key
				return Reject(err)
			case errors.Is(err, ErrDuplicate):
				return postpone
			case err != nil:
				l.q.reportFault(d.h.fault(err))
				return postpone
			}
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer l.keep(context.WithoutCancel(ctx), cancel)()
			err := next(ctx, d)
			if err != nil && findOutcome(err) == nil && errors.Is(context.Cause(ctx), ErrLeaseLost) {
				l.q.reportFault(d.h.fault(fmt.Errorf("the lock of the key %q: %w: %w", k, ErrLeaseLost, err)))
				return postpone
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

// acquire stores the lock, or returns ErrDuplicate.
func (l *keyLock) acquire(ctx context.Context) error {
	l.until = time.Now().Add(l.lease)
	ctx, cancel := context.WithDeadline(ctx, l.until)
	defer cancel()
	// It has expired when it is due, so that no handler receives it.
	_, err := l.q.Enqueue(ctx, Message{ID: l.id, Delay: l.lease, ExpireAt: time.UnixMilli(1)})
	if errors.Is(err, ErrDead) { // after crashes while it expired
		return cmp.Or(l.q.DeleteDead(ctx, l.id), ErrDuplicate)
	}
	if err != nil {
		return err
	}
	r, err := l.q.Get(ctx, l.id)
	l.enqueued = driver.InstantOf(r.Enqueued)
	return err // after an error the lock stays until it expires
}

// keep renews the lock until the returned function is called, which releases it. If the lock is
// lost, keep calls cancel.
func (l *keyLock) keep(ctx context.Context, cancel context.CancelCauseFunc) (release func()) {
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.renew(ctx, cancel)
	}()
	return func() {
		end()
		<-ended
		call, end := context.WithDeadline(l.q.ctx, l.until) // then it expires
		defer end()
		_, _ = l.q.change(call, driver.OpCancel, driver.Change{ID: l.id, Incarnation: l.enqueued})
	}
}

// renew reschedules the lock until ctx ends, or calls cancel if the lock is lost.
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
		case err != nil || !time.Now().Before(l.until): // a late call may have rescheduled the next lock
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
