package durable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Chain returns a handler that passes each delivery through the middleware, the first one
// outermost: Chain(h, a, b) is a(b(h)). Each middleware calls the handler that it wraps at most
// once, and returns that handler's error or another one. If h is nil, Chain returns nil.
func Chain(h Handler, middleware ...func(Handler) Handler) Handler {
	if h == nil {
		return nil // Consume returns ErrInvalid
	}
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	return h
}

// Mux passes each message to the handler for its kind, which is the value of one of its headers, so
// that several kinds of messages share a queue and its handlers:
//
//	mux := durable.Mux{Kinds: map[string]durable.Kind{
//		"Order":  {Handler: orders.Handler(cancelOrder), Timeout: 5 * time.Second},
//		"Report": {Handler: reports.Handler(sendReport), Timeout: time.Minute},
//	}}
//	err := q.Consume(ctx, mux.Handle, durable.ConsumerOptions{})
//
// The fields must not change while a consumer uses the Mux.
type Mux struct {
	Header string          // defaults to "kind", which package typed writes
	Kinds  map[string]Kind // by the value of the header; "" is the kind of messages without the header
}

// Kind determines how a [Mux] handles messages of one kind. If Timeout or Backoff is zero,
// [ConsumerOptions] applies.
type Kind struct {
	Handler Handler

	// Timeout is the time after which the handler's context ends, with the cause
	// [context.DeadlineExceeded]. It should be shorter than ConsumerOptions.HandlerTimeout, after
	// which another message is handled even if the handler has not returned.
	Timeout time.Duration

	// Backoff replaces [ConsumerOptions].Backoff for errors of this handler, except panics.
	Backoff func(d *Delivery, err error) time.Duration
}

// Handle is a [Handler]. It declines a message whose kind has no handler: see [Decline].
func (m *Mux) Handle(ctx context.Context, d *Delivery) error {
	header := cmp.Or(m.Header, contract.KindHeader)
	kind := m.Kinds[d.Headers[header]]
	if kind.Handler == nil {
		return Decline(fmt.Errorf("durable: there is no handler for the header %q with the value %q", header, d.Headers[header]))
	}
	if kind.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, kind.Timeout)
		defer cancel()
	}
	err := kind.Handler(ctx, d)
	if err == nil || kind.Backoff == nil {
		return err
	}
	return &backoffError{err, func() time.Duration { return kind.Backoff(d, err) }}
}

// backoffError is an error with a delay that replaces ConsumerOptions.Backoff.
type backoffError struct {
	error
	backoff func() time.Duration
}

func (e *backoffError) Unwrap() error { return e.error }
