package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/storeurl"
)

// timeouts is what the shop wants of the queue.
type timeouts interface {
	// enqueue asks for the order's message at a moment. To repeat it does nothing.
	enqueue(ctx context.Context, order string, due time.Time) error

	// cancel takes the message back, see [durable.Queue.Cancel]. To repeat it where it has taken place is NotFound.
	cancel(ctx context.Context, order string) (durable.Result, error)

	// left is the number of messages in the queue, dead letters included.
	left(ctx context.Context) (int64, error)
}

// direct is a queue that this process has open.
type direct struct{ *durable.Queue }

// enqueue gives the message a delay, not a time: the clock of a server may show another one than that of the shop.
func (q direct) enqueue(ctx context.Context, order string, due time.Time) error {
	_, err := q.Enqueue(ctx, durable.Message{ID: order, Delay: time.Until(due)})
	if errors.Is(err, durable.ErrDuplicate) {
		return nil // the shop asks again where a consumer was killed before it could answer
	}
	return err
}

func (q direct) cancel(ctx context.Context, order string) (durable.Result, error) {
	return q.Cancel(ctx, order)
}

func (q direct) left(ctx context.Context) (int64, error) {
	s, err := q.Stats(ctx)
	return s.Scheduled + s.InFlight + s.Dead, err
}

// openQueue opens a queue in the store with a URL. What it returns second closes both.
func openQueue(ctx context.Context, url, name string, onError func(error)) (direct, func() error, error) {
	store, closeStore, err := storeurl.Open(url)
	if err != nil {
		return direct{}, nil, err
	}
	q, err := durable.Open(ctx, store, durable.Options{Queue: name, OnError: onError})
	if err != nil {
		return direct{}, nil, errors.Join(err, closeStore())
	}
	return direct{q}, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		return errors.Join(q.Shutdown(ctx), closeStore())
	}, nil
}

// closeTime is how long what is under way may take at the end.
const closeTime = 10 * time.Second

// withQueue opens a queue for as long as a function runs.
func withQueue(ctx context.Context, url, name string, do func(q direct) error) (err error) {
	q, closeQueue, err := openQueue(ctx, url, name, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeQueue()) }()
	return do(q)
}

// mustBeEmpty refuses a queue with messages: they are of other orders, which this shop does not know.
func mustBeEmpty(ctx context.Context, url, name string) error {
	return withQueue(ctx, url, name, func(q direct) error {
		n, err := q.left(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("queue %q in %s holds %d messages, of a run under way or of one that was killed; "+
				"an empty one is accepted (-queue, -store)", name, storeurl.Redact(url), n)
		}
		return err
	})
}
