// Package durableotel traces the messages of durable queues with OpenTelemetry. One trace covers a
// message from Enqueue to its handler, across restarts of the process and of the store. The example
// traces a typed queue through its Encode and Handler.
//
//	tracer := durableotel.New(durableotel.Options{})
//	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders", OnEvent: tracer.OnEvent})
//	id, err := tracer.Enqueue(ctx, q, durable.Message{Delay: 30 * time.Minute})
//	err = q.Consume(ctx, tracer.Handler(handler), durable.ConsumerOptions{})
//
// # Spans
//
// The message headers carry the trace context, as the propagator writes it. The spans follow the
// semantic conventions for messaging, version 1.43:
//
//	send orders      PRODUCER  Enqueue; its context is the creation context of the message
//	claim orders     CLIENT    a consumer claims the message: operation type receive
//	process orders   CONSUMER  the handler, which gets the context of this span
//	ack orders       CLIENT    the store ends the delivery (settle); or again, postpone, retry, bury, expire, fail
//
// All spans of a message belong to one trace: the send span is the parent of the others, which also
// link to it. Each delivery has its own claim, process and settle spans. If a message was enqueued
// without a tracer, or its headers left no room for traceparent, each of its spans begins a trace.
package durableotel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Options configures a tracer. The zero value uses the global provider and the global propagator.
type Options struct {
	// TracerProvider creates the spans. Nil means otel.GetTracerProvider(), called for each span.
	TracerProvider trace.TracerProvider

	// Propagator writes the context of a trace into headers and reads it. Nil means
	// otel.GetTextMapPropagator(), called each time. It does nothing until the program sets one.
	Propagator propagation.TextMapPropagator
}

// Tracer creates the spans for any number of queues. Create a Tracer with [New]; the zero value is
// like New(Options{}). A Tracer is safe for concurrent use.
type Tracer struct{ opts Options }

// New returns a tracer.
func New(opts Options) *Tracer { return &Tracer{opts: opts} }

func (t *Tracer) tracer() trace.Tracer {
	return cmp.Or(t.opts.TracerProvider, otel.GetTracerProvider()).
		Tracer("github.com/timingwheel-go/timingwheel/durable/durableotel", trace.WithSchemaURL(semconv.SchemaURL))
}

// attributes returns the attributes of all spans, and the attributes in more.
func attributes(queue, name string, kind attribute.KeyValue, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append(more, semconv.MessagingSystemKey.String("timingwheel"), semconv.MessagingDestinationName(queue),
		semconv.MessagingOperationName(name), kind)...)
}

// recordError records an error as the status of a span: see [durable.Failed].
func recordError(span trace.Span, err error) {
	if durable.Failed(err) {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(semconv.ErrorType(err))
	}
}

// Enqueue calls [durable.Queue.Enqueue] in a span, and returns its results. The message carries the
// span's context: a copy of m.Headers gets the propagator's headers that are valid and within the
// limits. The attribute timingwheel.headers.omitted names the others whose names are UTF-8.
func (t *Tracer) Enqueue(ctx context.Context, q *durable.Queue, m durable.Message) (id string, err error) {
	ctx, span := t.tracer().Start(ctx, "send "+q.Options().Queue, trace.WithSpanKind(trace.SpanKindProducer),
		attributes(q.Options().Queue, "send", semconv.MessagingOperationTypeSend, semconv.MessagingMessageBodySize(len(m.Body))))
	defer span.End()
	t.inject(ctx, &m)
	if id, err = q.Enqueue(ctx, m); id != "" {
		span.SetAttributes(semconv.MessagingMessageID(id))
	}
	recordError(span, err)
	return id, err
}

// EnqueueBatch calls [durable.Queue.EnqueueBatch] in one span, and returns its results. Each
// message carries the context of that span. The messages and headers are not modified.
func (t *Tracer) EnqueueBatch(ctx context.Context, q *durable.Queue, messages []durable.Message) (ids []string, err error) {
	ctx, span := t.tracer().Start(ctx, "send "+q.Options().Queue, trace.WithSpanKind(trace.SpanKindProducer),
		attributes(q.Options().Queue, "send", semconv.MessagingOperationTypeSend, semconv.MessagingBatchMessageCount(len(messages))))
	defer span.End()
	traced := slices.Clone(messages)
	for i := range traced {
		t.inject(ctx, &traced[i])
	}
	ids, err = q.EnqueueBatch(ctx, traced)
	recordError(span, err)
	return ids, err
}

// inject adds the context of a trace to the headers of a message, traceparent and small entries
// first. It leaves out entries with which Enqueue would fail, and names them in the span.
func (t *Tracer) inject(ctx context.Context, m *durable.Message) {
	entries, headers, room := propagation.MapCarrier{}, maps.Collect(maps.All(m.Headers)), contract.MaxHeaderBytes
	cmp.Or(t.opts.Propagator, otel.GetTextMapPropagator()).Inject(ctx, entries)
	for k, v := range headers {
		room -= len(k) + len(v)
	}
	var omitted []string
	first := map[string]int{"traceparent": -contract.MaxHeaderBytes}
	rank := func(k string) int { return first[k] + len(k) + len(entries[k]) }
	for _, k := range slices.SortedFunc(maps.Keys(entries), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) }) {
		v, size, slot := entries[k], len(k)+len(entries[k]), len(headers) < contract.MaxHeaders
		if own, replaced := headers[k]; replaced {
			size, slot = len(v)-len(own), true
		}
		if k != "" && utf8.ValidString(k) && utf8.ValidString(v) && slot && size <= room {
			headers[k], room = v, room-size
		} else if utf8.ValidString(k) {
			omitted = append(omitted, k)
			trace.SpanFromContext(ctx).SetAttributes(attribute.StringSlice("timingwheel.headers.omitted", omitted))
		}
	}
	m.Headers = headers
}

// extract returns ctx with the trace context that a message carries, and a link to that context.
func (t *Tracer) extract(ctx context.Context, headers map[string]string) (context.Context, trace.SpanStartOption) {
	ctx = cmp.Or(t.opts.Propagator, otel.GetTextMapPropagator()).Extract(ctx, propagation.MapCarrier(headers))
	if creation := trace.SpanContextFromContext(ctx); creation.IsRemote() {
		return ctx, trace.WithLinks(trace.Link{SpanContext: creation})
	}
	// The span must not belong to the trace in which Consume was called.
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{}), trace.WithLinks()
}

// Handler is middleware (see [durable.Chain]). The returned handler calls h in a span, the parent
// of the spans that h starts. The span has the status error if h fails (see [durable.Failed]),
// panics or calls [runtime.Goexit]. A panic in h propagates. If h is nil, Handler returns nil.
func (t *Tracer) Handler(h durable.Handler) durable.Handler {
	if h == nil {
		return nil // Consume returns the error
	}
	panicked := errors.New("the handler has panicked or ended its goroutine")
	return func(ctx context.Context, d *durable.Delivery) (err error) {
		ctx, span := t.Process(ctx, d)
		defer func() {
			if recordError(span, err); errors.Is(err, panicked) {
				span.SetAttributes(semconv.ErrorTypeKey.String("panic"))
			}
			span.End()
		}()
		err = panicked // until h returns
		return h(ctx, d)
	}
}

// Process starts the span for a message that Take has returned, and returns ctx with that span. The
// caller ends the span when the message is handled, before or after the message is settled.
func (t *Tracer) Process(ctx context.Context, d *durable.Delivery) (context.Context, trace.Span) {
	ctx, link := t.extract(ctx, d.Headers)
	return t.tracer().Start(ctx, "process "+d.Queue, trace.WithSpanKind(trace.SpanKindConsumer), link,
		attributes(d.Queue, "process", semconv.MessagingOperationTypeProcess,
			semconv.MessagingMessageID(d.ID), semconv.MessagingMessageBodySize(len(d.Body))))
}

// settlements are the names of the operations that settle a message.
var settlements = map[durable.EventKind]string{
	durable.EventAcked: "ack", durable.EventAgain: "again", durable.EventPostponed: "postpone", durable.EventRetried: "retry",
	durable.EventBuried: "bury", durable.EventExpired: "expire", durable.EventRunFailed: "fail",
}

// OnEvent creates the spans for claims and for the calls that settle messages. Set
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
	recordError(span, e.Err)
	span.End(trace.WithTimestamp(e.Time.Add(e.Duration)))
}
