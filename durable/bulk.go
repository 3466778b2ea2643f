package durable

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// changeMany changes messages of a partition, as many at a time as there is room for and the pacer
// permits. It calls done with the status of each message. It stops at the first error, which names
// a message, and withdraws the calls that were not sent.
func (p *part) changeMany(ctx context.Context, op driver.Op, changes []driver.Change, pace *pacer,
	done func(id string, status driver.Status),
) error {
	for len(changes) > 0 {
		n, err := pace.wait(ctx, p.q, len(changes))
		if err == nil {
			err = p.q.limiter.acquire(ctx, 0)
		}
		if err != nil {
			return fmt.Errorf("durable: message %q: %w", changes[0].ID, err)
		}
		var calls []*call[driver.Change, answer]
		for admitted := true; admitted; admitted = len(calls) < n && p.q.limiter.tryAcquire(0) {
			c := newCall[driver.Change, answer](changes[len(calls)])
			c.limiter = p.q.limiter
			calls = append(calls, c)
		}
		if err := p.changeTogether(ctx, op, calls, changes, done); err != nil {
			return err
		}
		changes = changes[len(calls):]
	}
	return nil
}

// changeTogether makes calls that already have room. After an error it withdraws the calls that
// were not sent.
func (p *part) changeTogether(ctx context.Context, op driver.Op, calls []*call[driver.Change, answer],
	changes []driver.Change, done func(string, driver.Status),
) (err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	p.changes[op].add(calls...)
	for i, c := range calls {
		o, failure := p.changes[op].wait(ctx, c)
		switch {
		case failure == nil:
			done(changes[i].ID, o.Status)
		case err == nil:
			err = fmt.Errorf("durable: message %q: %w", changes[i].ID, failure)
			leave()
		}
	}
	return err
}

// confirm waits until the store has made all earlier changes of a partition as durable as one that
// op makes. Without it, the result of a scan could rest on a change that a failover undoes.
func (p *part) confirm(ctx context.Context, op driver.Op) error {
	if _, err := p.changes[op].do(ctx, p.q.limiter, driver.Change{ID: probeID}); err != nil {
		return fmt.Errorf("durable: partition %d: %w", p.index, err)
	}
	return nil
}

// pacer spreads messages evenly over time. The zero value does not wait.
type pacer struct {
	rate float64 // messages per second; 0: no limit
	next time.Time
}

// paceStep is the interval whose messages are sent together, because shorter waits are inexact.
const paceStep = 10 * time.Millisecond

// wait waits until the next messages may be sent and returns their number, from 1 to most. A late
// pacer catches up on at most one step. The wait ends early if ctx ends or the queue is closed.
func (p *pacer) wait(ctx context.Context, q *Queue, most int) (int, error) {
	if p.rate == 0 {
		return most, nil
	}
	now := time.Now()
	ahead := p.next.Sub(now)
	switch {
	case ahead > 0:
		ctx, cancel := context.WithCancelCause(ctx)
		defer context.AfterFunc(q.ctx, func() { cancel(ErrClosed) })()
		sleep(ctx, ahead)
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	case ahead < -paceStep:
		p.next = now.Add(-paceStep)
	}
	n := math.Floor(max(1, min(float64(most), p.rate*paceStep.Seconds())))
	p.next = p.next.Add(time.Duration(min(n/p.rate*float64(time.Second), math.MaxInt64/2)))
	return int(n), nil
}
