// Package durableotel traces the messages of durable queues with OpenTelemetry. One trace covers a
// message from Enqueue to its handler, across restarts of the process and of the store.
//
//	tracer := durableotel.New(durableotel.Options{})
//	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders", OnEvent: tracer.OnEvent})
//	…
//	id, err := tracer.Enqueue(ctx, q, durable.Message{Delay: 30 * time.Minute})
//	err = q.Consume(ctx, tracer.Handler(handler), durable.ConsumerOptions{})
//
// A typed queue is traced through its Encode and Handler: see the example.
//
// # Spans
//
// The headers of the message carry the context of the trace, as the propagator writes it: W3C trace
// context uses the header traceparent. The spans follow the semantic conventions for messaging,
// version 1.43:
//
//	send orders      PRODUCER  Enqueue; its context is the creation context of the message
//	claim orders     CLIENT    a consumer claims the message: operation type receive
//	process orders   CONSUMER  the handler, which gets the context of this span
//	ack orders       CLIENT    the store ends the delivery: operation type settle; also retry, bury
//	                           and expire
//
// All spans of a message belong to one trace: the send span is the parent of the others, which also
// link to it, as the conventions require. Each delivery of the message has its own claim, process
// and settle spans. If a message was enqueued without a tracer, each of its spans begins a trace.
package durableotel

import (
	"context"
	"maps"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/timingwheel-go/timingwheel/durable"
)

// Options configures a tracer. The zero value uses the global provider and the global propagator.
type Options struct {
	// TracerProvider creates the spans. Nil means otel.GetTracerProvider(), called for each span.
	TracerProvider trace.TracerProvider

	// Propagator writes the context of a trace into headers and reads it. Nil means
	// otel.GetTextMapPropagator(), called each time. If the program has not set a global
	// propagator, no context is propagated, and each span begins a trace.
	Propagator propagation.TextMapPropagator
}

// Tracer creates the spans of any number of queues. Create a Tracer with [New]; the zero value is
// like New(Options{}). A Tracer is safe for concurrent use.
type Tracer struct{ opts Options }

// New returns a tracer.
func New(opts Options) *Tracer { return &Tracer{opts: opts} }

const scope = "github.com/timingwheel-go/timingwheel/durable/durableotel"

func (t *Tracer) tracer() trace.Tracer {
	p := t.opts.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
}

func (t *Tracer) propagator() propagation.TextMapPropagator {
	if t.opts.Propagator != nil {
		return t.opts.Propagator
	}
	return otel.GetTextMapPropagator()
}

// attributes returns the attributes of all spans, and the attributes in more.
func attributes(queue, name string, kind attribute.KeyValue, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append(more, semconv.MessagingSystemKey.String("timingwheel"), semconv.MessagingDestinationName(queue),
		semconv.MessagingOperationName(name), kind)...)
}

// recordError records an error as the status of a span.
func recordError(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(semconv.ErrorType(err))
}

// Enqueue calls [durable.Queue.Enqueue] in a span, and returns its results. The message carries the
// context of the span: Enqueue copies the headers of m and adds the headers of the propagator,
// which count against the limits of headers. The map m.Headers does not change.
func (t *Tracer) Enqueue(ctx context.Context, q *durable.Queue, m durable.Message) (id string, err error) {
	ctx, span := t.tracer().Start(ctx, "send "+q.Name(), trace.WithSpanKind(trace.SpanKindProducer),
		attributes(q.Name(), "send", semconv.MessagingOperationTypeSend, semconv.MessagingMessageBodySize(len(m.Body))))
	defer span.End()
	t.inject(ctx, &m)
	id, err = q.Enqueue(ctx, m)
	if id != "" {
		span.SetAttributes(semconv.MessagingMessageID(id))
	}
	if err != nil {
		recordError(span, err)
	}
	return id, err
}

// EnqueueBatch calls [durable.Queue.EnqueueBatch] in one span, and returns its results. Each
// message carries the context of that span. The messages and their headers do not change.
func (t *Tracer) EnqueueBatch(ctx context.Context, q *durable.Queue, messages []durable.Message) (ids []string, err error) {
	ctx, span := t.tracer().Start(ctx, "send "+q.Name(), trace.WithSpanKind(trace.SpanKindProducer),
		attributes(q.Name(), "send", semconv.MessagingOperationTypeSend, semconv.MessagingBatchMessageCount(len(messages))))
	defer span.End()
	traced := make([]durable.Message, len(messages))
	for i, m := range messages {
		t.inject(ctx, &m)
		traced[i] = m
	}
	if ids, err = q.EnqueueBatch(ctx, traced); err != nil {
		recordError(span, err)
	}
	return ids, err
}

// inject adds the context of a trace to the headers of a message.
func (t *Tracer) inject(ctx context.Context, m *durable.Message) {
	headers := maps.Clone(m.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	t.propagator().Inject(ctx, propagation.MapCarrier(headers))
	m.Headers = headers
}

// extract returns ctx with the trace context that a message carries, and a link to that context.
func (t *Tracer) extract(ctx context.Context, headers map[string]string) (context.Context, trace.SpanStartOption) {
	ctx = t.propagator().Extract(ctx, propagation.MapCarrier(headers))
	if creation := trace.SpanContextFromContext(ctx); creation.IsRemote() {
		return ctx, trace.WithLinks(trace.Link{SpanContext: creation})
	}
	// The span must not belong to the trace in which Consume was called.
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{}), trace.WithLinks()
}

// Handler returns a handler that calls h in a span. The span is the parent of the spans that h
// starts with its context. The span ends when h returns, and has the status error if h returns an
// error, panics or calls [runtime.Goexit]. A panic of h continues. If h is nil, Handler returns
// nil, and Consume returns an error.
func (t *Tracer) Handler(h durable.Handler) durable.Handler {
	if h == nil {
		return nil // Consume returns the error
	}
	return func(ctx context.Context, d *durable.Delivery) (err error) {
		ctx, span := t.Process(ctx, d)
		panicked := true
		defer func() {
			switch {
			case panicked:
				span.SetStatus(codes.Error, "the handler has panicked or ended its goroutine")
				span.SetAttributes(semconv.ErrorTypeKey.String("panic"))
			case err != nil:
				recordError(span, err)
			}
			span.End()
		}()
		err = h(ctx, d)
		panicked = false
		return err
	}
}

// Process starts the span of a message that Take has returned, and returns ctx with that span. The
// caller ends the span when the message is handled, before or after the message is settled.
func (t *Tracer) Process(ctx context.Context, d *durable.Delivery) (context.Context, trace.Span) {
	ctx, link := t.extract(ctx, d.Headers)
	return t.tracer().Start(ctx, "process "+d.Queue, trace.WithSpanKind(trace.SpanKindConsumer), link,
		attributes(d.Queue, "process", semconv.MessagingOperationTypeProcess,
			semconv.MessagingMessageID(d.ID), semconv.MessagingMessageBodySize(len(d.Body))))
}

// settlements are the names of the operations that settle a message.
var settlements = map[durable.EventKind]string{
	durable.EventAcked: "ack", durable.EventRetried: "retry", durable.EventBuried: "bury", durable.EventExpired: "expire",
}

// OnEvent creates the spans of claims and of the calls that settle messages. Set
// [durable.Options].OnEvent to it, or call it from there. OnEvent ignores other events.
func (t *Tracer) OnEvent(e durable.Event) {
	name, kind := settlements[e.Kind], semconv.MessagingOperationTypeSettle
	if e.Kind == durable.EventClaimed {
		name, kind = "claim", semconv.MessagingOperationTypeReceive
	}
	if name == "" {
		return
	}
	ctx, link := t.extract(context.Background(), e.Headers)
	_, span := t.tracer().Start(ctx, name+" "+e.Queue, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(e.Time), link,
		attributes(e.Queue, name, kind, semconv.MessagingMessageID(e.ID), semconv.MessagingDestinationPartitionID(strconv.Itoa(e.Partition))))
	span.End(trace.WithTimestamp(e.Time.Add(e.Duration)))
}
