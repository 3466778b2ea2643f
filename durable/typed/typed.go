// Package typed wraps a durable queue of messages whose bodies are Go values. A codec encodes and
// decodes the values, as JSON by default.
//
//	orders := typed.New[Order](q, nil)
//	id, err := orders.Enqueue(ctx, typed.Message[Order]{Body: order, Delay: 30 * time.Minute})
//	err = orders.Consume(ctx, func(ctx context.Context, d *typed.Delivery[Order]) error {
//		return cancelUnlessPaid(ctx, d.Body)
//	}, durable.ConsumerOptions{})
//
// All other calls are made on the durable queue itself. Encode and Handler connect a typed queue to
// functions that take durable messages and handlers, such as the tracer of durable/durableotel:
//
//	m, err := orders.Encode(typed.Message[Order]{Body: order})
//	id, err := tracer.Enqueue(ctx, q, m)
//	err = q.Consume(ctx, tracer.Handler(orders.Handler(handler)), durable.ConsumerOptions{})
package typed

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Codec encodes values as bodies and decodes them. Its methods must be safe for concurrent use.
// Decode must not retain the body, and must accept bodies that earlier versions of the program
// encoded.
type Codec[T any] interface {
	Encode(value T) ([]byte, error)
	Decode(body []byte) (T, error)
}

// jsonCodec is the default codec.
type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(value T) ([]byte, error) { return json.Marshal(value) }

func (jsonCodec[T]) Decode(body []byte) (value T, err error) {
	err = json.Unmarshal(body, &value)
	return value, err
}

// Queue is a durable queue of values. Its methods are safe for concurrent use.
//
// Each message has the kind of its value in the header "kind". A message of another kind is
// declined: see [durable.Decline]. The kind is the name of T without its package, or the result of
// the method Kind() string, which must not depend on the value. If the kind is empty, as for a
// generic type or a type without a name, it is not written, and all messages are accepted. Messages
// without the header are always accepted.
type Queue[T any] struct {
	queue *durable.Queue
	codec Codec[T]
	kind  string
}

// New returns a queue of values that uses q. A nil codec means encoding/json: fields in the body
// that T does not have are ignored, and missing ones keep their zero values.
func New[T any](q *durable.Queue, codec Codec[T]) *Queue[T] {
	if codec == nil {
		codec = jsonCodec[T]{}
	}
	return &Queue[T]{q, codec, kindOf(reflect.TypeFor[T]())}
}

func kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if named, ok := reflect.New(t).Interface().(interface{ Kind() string }); ok {
		return named.Kind()
	}
	if strings.Contains(t.Name(), "[") { // with the paths of the packages of its arguments
		return ""
	}
	return t.Name()
}

// Message is a [durable.Message] with a value as its body. The other fields have the same meaning.
type Message[T any] struct {
	ID          string
	Body        T
	Headers     map[string]string
	Delay       time.Duration
	At          time.Time
	ExpireAt    time.Time
	Repeat      string
	MaxAttempts int
	Replace     bool
}

// Encode returns a message with the encoded body, for calls that take a [durable.Message], such as
// [durable.Queue.EnqueueBatch] or a tracer's Enqueue. If the codec fails, the error wraps
// [durable.ErrInvalid] and the codec's error. Encode also returns ErrInvalid if the kind in
// m.Headers contradicts the queue's.
func (q *Queue[T]) Encode(m Message[T]) (durable.Message, error) {
	body, err := q.codec.Encode(m.Body)
	if err != nil {
		return durable.Message{}, fmt.Errorf("typed: %w body of message %q: %T cannot be encoded: %w", durable.ErrInvalid, m.ID, m.Body, err)
	}
	headers := m.Headers
	if q.kind != "" {
		if kind := headers[contract.KindHeader]; kind != "" && kind != q.kind {
			return durable.Message{}, fmt.Errorf("typed: %w header %q of message %q: %q; it must be %q or absent", durable.ErrInvalid, contract.KindHeader, m.ID, kind, q.kind)
		}
		headers = maps.Collect(maps.All(m.Headers))
		headers[contract.KindHeader] = q.kind
	}
	return durable.Message{
		ID: m.ID, Body: body, Headers: headers, Delay: m.Delay, At: m.At, ExpireAt: m.ExpireAt,
		Repeat: m.Repeat, MaxAttempts: m.MaxAttempts, Replace: m.Replace,
	}, nil
}

// Enqueue encodes the body and stores the message: see [durable.Queue.Enqueue]. If the encoding
// fails, nothing is stored, and Enqueue returns the error from [Queue.Encode].
func (q *Queue[T]) Enqueue(ctx context.Context, m Message[T]) (id string, err error) {
	message, err := q.Encode(m)
	if err != nil {
		return "", err
	}
	return q.queue.Enqueue(ctx, message)
}

// Delivery is a [durable.Delivery] with a value as its body. Delivery.Delivery.Body is the encoded
// body.
type Delivery[T any] struct {
	*durable.Delivery
	Body T
}

// decode decodes the body of a delivery, or declines it.
func (q *Queue[T]) decode(d *durable.Delivery) (*Delivery[T], error) {
	if kind := d.Headers[contract.KindHeader]; kind != "" && kind != q.kind && q.kind != "" {
		return nil, durable.Decline(fmt.Errorf("typed: message %q is of kind %q, not %q", d.ID, kind, q.kind))
	}
	value, err := q.codec.Decode(d.Body)
	if err != nil {
		return nil, durable.Decline(fmt.Errorf("typed: the body of message %q cannot be decoded as %v: %w", d.ID, reflect.TypeFor[T](), err))
	}
	return &Delivery[T]{d, value}, nil
}

// Handler returns a [durable.Handler] that decodes the body and calls h, for calls that take a
// durable.Handler, such as a tracer's Handler. A message of another kind, or one whose body cannot
// be decoded, is declined: see [durable.Decline]. If h is nil, Handler returns nil.
func (q *Queue[T]) Handler(h func(ctx context.Context, d *Delivery[T]) error) durable.Handler {
	if h == nil {
		return nil // Consume returns ErrInvalid
	}
	return func(ctx context.Context, d *durable.Delivery) error {
		typed, err := q.decode(d)
		if err != nil {
			return err
		}
		return h(ctx, typed)
	}
}

// Consume calls the handler for each message that is due: see [Queue.Handler] and
// [durable.Queue.Consume].
func (q *Queue[T]) Consume(ctx context.Context, handler func(ctx context.Context, d *Delivery[T]) error, options durable.ConsumerOptions) error {
	return q.queue.Consume(ctx, q.Handler(handler), options)
}

// Take waits for a message that is due: see [durable.Queue.Take]. A message of another kind, or one
// whose body cannot be decoded, is declined, as in [Queue.Consume], and Take waits for the next
// message. If the store does not confirm this, Take returns the error, and the message is
// redelivered when its lease expires.
func (q *Queue[T]) Take(ctx context.Context) (*Delivery[T], error) {
	for {
		d, err := q.queue.Take(ctx)
		if err != nil {
			return nil, err
		}
		typed, err := q.decode(d)
		if err == nil {
			return typed, nil
		}
		if lost := d.Nack(ctx, err); lost != nil {
			return nil, fmt.Errorf("%w: %w", err, lost)
		}
	}
}
