package durableotel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durableotel"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// process simulates a process: it has a provider, a tracer, and the exported spans.
type process struct {
	*durableotel.Tracer
	exported *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
}

func start(t *testing.T) *process {
	t.Helper()
	exported := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exported))
	t.Cleanup(func() { assert.NoError(t, provider.Shutdown(context.Background())) })
	return &process{durableotel.New(durableotel.Options{TracerProvider: provider, Propagator: propagation.TraceContext{}}), exported, provider}
}

// names returns the sorted names of the exported spans.
func (p *process) names() (names []string) {
	for _, s := range p.exported.GetSpans() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// span returns the only span with a name.
func (p *process) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range p.exported.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, name)
	return found[0]
}

func attributes(s tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

// consume handles messages until done is closed.
func consume(t *testing.T, q *durable.Queue, h durable.Handler, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Consume(ctx, h, durable.ConsumerOptions{Backoff: func(*durable.Delivery, error) time.Duration { return 0 }})
	}()
	require.Eventually(t, done, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// A message is enqueued within a request, the process closes the queue, and another process opens
// the queue and handles the message. All spans belong to the trace of the request.
func TestOneTraceAcrossProcesses(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	open := func(p *process) *durable.Queue {
		q, err := durable.Open(t.Context(), store, durable.Options{
			Queue: "orders", Partitions: 1, OnEvent: p.OnEvent, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		return q
	}
	first := start(t)
	q := open(first)
	ctx, request := first.provider.Tracer("test").Start(t.Context(), "request")
	id, err := first.Enqueue(ctx, q, durable.Message{ID: "m", Body: []byte("body"), Headers: map[string]string{"own": "header"}, Delay: 10 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, "m", id)
	request.End()
	q.Close()

	second := start(t)
	q = open(second)
	consume(t, q, second.Handler(func(ctx context.Context, d *durable.Delivery) error {
		assert.Equal(t, "header", d.Headers["own"])
		_, inner := second.provider.Tracer("test").Start(ctx, "cancel the order")
		inner.End()
		if d.Attempts == 0 {
			return errors.New("not yet")
		}
		return nil
	}), func() bool { return slices.Contains(second.names(), "ack orders") })
	q.Close()
	require.NoError(t, store.Close())

	require.Equal(t, []string{"request", "send orders"}, first.names())
	send := first.span(t, "send orders")
	require.Equal(t, request.SpanContext().SpanID(), send.Parent.SpanID())
	require.Equal(t, []string{
		"ack orders", "cancel the order", "cancel the order", "claim orders", "claim orders", "process orders", "process orders", "retry orders",
	}, second.names())
	kinds := map[string]trace.SpanKind{
		"claim orders": trace.SpanKindClient, "process orders": trace.SpanKindConsumer, "ack orders": trace.SpanKindClient, "retry orders": trace.SpanKindClient,
	}
	retry := second.span(t, "retry orders")
	require.Equal(t, "not yet", retry.Status.Description, "the error of the handler")
	types := map[string]string{"claim orders": "receive", "process orders": "process", "ack orders": "settle", "retry orders": "settle"}
	processes := map[trace.SpanID]bool{}
	for _, s := range second.exported.GetSpans() {
		require.Equal(t, request.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
		kind, ours := kinds[s.Name]
		if !ours {
			continue
		}
		assert.Equal(t, kind, s.SpanKind, s.Name)
		assert.Equal(t, send.SpanContext.SpanID(), s.Parent.SpanID(), s.Name)
		require.Len(t, s.Links, 1, s.Name)
		assert.Equal(t, send.SpanContext.SpanID(), s.Links[0].SpanContext.SpanID())
		assert.False(t, s.EndTime.Before(s.StartTime))
		a := attributes(s)
		assert.Equal(t, types[s.Name], a["messaging.operation.type"])
		assert.Equal(t, "timingwheel", a["messaging.system"])
		assert.Equal(t, "orders", a["messaging.destination.name"])
		assert.Equal(t, "m", a["messaging.message.id"])
		if s.Name == "process orders" {
			processes[s.SpanContext.SpanID()] = s.Status.Code == codes.Error
		}
	}
	require.Len(t, processes, 2)
	for _, s := range second.exported.GetSpans() {
		if s.Name == "cancel the order" {
			require.Contains(t, processes, s.Parent.SpanID(), "the context of the handler has the span")
		}
	}
	failures := 0
	for _, failed := range processes {
		if failed {
			failures++
		}
	}
	require.Equal(t, 1, failures)
	assert.Equal(t, trace.SpanKindProducer, send.SpanKind)
	assert.Equal(t, "send", attributes(send)["messaging.operation.type"])
	assert.Equal(t, "4", attributes(send)["messaging.message.body.size"])
}

func TestSpansOfBatchesTakeAndFailures(t *testing.T) {
	t.Parallel()
	p := start(t)
	q, err := durable.Open(t.Context(), memstore.New(memstore.Options{}), durable.Options{Queue: "q", Partitions: 1, OnEvent: p.OnEvent})
	require.NoError(t, err)
	defer q.Close()
	headers := map[string]string{"k": "v"}
	_, err = p.EnqueueBatch(t.Context(), q, []durable.Message{{ID: "a", Headers: headers}, {ID: "b", ExpireAt: time.Now().Add(-time.Hour)}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "v"}, headers, "the map of the caller does not change")
	send := p.span(t, "send q")
	require.Equal(t, "2", attributes(send)["messaging.batch.message_count"])
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	_, span := p.Process(t.Context(), d)
	require.NoError(t, d.Ack(t.Context()))
	span.End()
	require.Eventually(t, func() bool { // b expires when a receiver claims it
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := q.Take(ctx)
		return errors.Is(err, context.DeadlineExceeded) && len(p.names()) == 6
	}, time.Minute, time.Millisecond)
	require.Equal(t, []string{"ack q", "claim q", "claim q", "expire q", "process q", "send q"}, p.names())
	for _, s := range p.exported.GetSpans() {
		require.Equal(t, send.SpanContext.TraceID(), s.SpanContext.TraceID(), s.Name)
	}

	p.exported.Reset()
	_, err = p.Enqueue(t.Context(), q, durable.Message{ID: "c", MaxAttempts: -1})
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.Equal(t, codes.Error, p.span(t, "send q").Status.Code)
	require.NotEmpty(t, attributes(p.span(t, "send q"))["error.type"])

	p.exported.Reset()
	ambient, request := p.provider.Tracer("test").Start(t.Context(), "ambient")
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "panics", MaxAttempts: 1}) // without a trace
	require.NoError(t, err)
	d, err = q.Take(t.Context())
	require.NoError(t, err)
	require.Panics(t, func() { _ = p.Handler(func(context.Context, *durable.Delivery) error { panic("x") })(ambient, d) })
	require.NoError(t, d.Ack(t.Context()))
	request.End()
	process := p.span(t, "process q")
	require.Equal(t, codes.Error, process.Status.Code)
	require.Equal(t, "panic", attributes(process)["error.type"])
	require.NotEqual(t, request.SpanContext().TraceID(), process.SpanContext.TraceID(), "the span of a message without a trace begins one")
	require.Empty(t, process.Links)
	require.Nil(t, p.Handler(nil))
}

// writer is a propagator that writes headers.
type writer map[string]string

func (w writer) Inject(_ context.Context, c propagation.TextMapCarrier) {
	for k, v := range w {
		c.Set(k, v)
	}
}
func (writer) Extract(ctx context.Context, _ propagation.TextMapCarrier) context.Context { return ctx }
func (writer) Fields() []string                                                          { return nil }

// The queue accepts each message that it accepts without a tracer. Telemetry that does not fit is
// left out, and the trace context is kept if possible.
func TestTelemetryNeverFailsEnqueue(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		headers := map[string]string{}
		for i := range n {
			headers[fmt.Sprint("own", i)] = "v"
		}
		return headers
	}
	w3c := propagation.TraceContext{}
	for name, c := range map[string]struct {
		headers    map[string]string
		propagator propagation.TextMapPropagator
		added      []string
		omitted    string
	}{
		"most headers":         {many(64), w3c, nil, `["traceparent"]`},
		"room for one":         {many(63), propagation.NewCompositeTextMapPropagator(writer{"baggage": "a=b"}, w3c), []string{"traceparent"}, `["baggage"]`},
		"large baggage":        {nil, propagation.NewCompositeTextMapPropagator(writer{"baggage": strings.Repeat("b", 8188)}, w3c), []string{"traceparent"}, `["baggage"]`},
		"both do not fit":      {map[string]string{"own": strings.Repeat("v", 8188)}, w3c, nil, `["traceparent"]`},
		"invalid":              {many(1), writer{"": "v", "\xff": "v", "k": "\xff", "ok": "v"}, []string{"ok"}, `["","k"]`},
		"own header is larger": {map[string]string{"traceparent": "", "own": strings.Repeat("v", 8178)}, w3c, nil, `["traceparent"]`},
		"own header changes":   {map[string]string{"traceparent": "stale"}, w3c, nil, ""},
		"small":                {many(62), propagation.NewCompositeTextMapPropagator(writer{"baggage": "a=b"}, w3c), []string{"baggage", "traceparent"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			p.Tracer = durableotel.New(durableotel.Options{TracerProvider: p.provider, Propagator: c.propagator})
			q, err := durable.Open(t.Context(), memstore.New(memstore.Options{}), durable.Options{Queue: "q", Partitions: 1})
			require.NoError(t, err)
			defer q.Close()
			check := func(id string) {
				t.Helper()
				r, err := q.Get(t.Context(), id)
				require.NoError(t, err)
				added := []string{}
				for k, v := range r.Headers {
					if own, ok := c.headers[k]; !ok {
						added = append(added, k)
					} else if k != "traceparent" || c.omitted != "" {
						assert.Equal(t, own, v, k)
					}
				}
				for k := range c.headers {
					assert.Contains(t, r.Headers, k)
				}
				assert.ElementsMatch(t, c.added, added)
				assert.Equal(t, c.omitted, attributes(p.span(t, "send q"))["timingwheel.headers.omitted"])
				p.exported.Reset()
			}
			_, err = p.Enqueue(t.Context(), q, durable.Message{ID: "one", Headers: c.headers})
			require.NoError(t, err)
			check("one")
			_, err = p.EnqueueBatch(t.Context(), q, []durable.Message{{ID: "a", Headers: c.headers}, {ID: "b", Headers: c.headers}})
			require.NoError(t, err)
			check("b")
		})
	}
	p := start(t)
	q, err := durable.Open(t.Context(), memstore.New(memstore.Options{}), durable.Options{Queue: "q"})
	require.NoError(t, err)
	defer q.Close()
	for _, own := range []map[string]string{many(65), {"": "v"}, {"k": strings.Repeat("v", 8192)}} {
		_, err = p.Enqueue(t.Context(), q, durable.Message{Headers: own})
		require.ErrorIs(t, err, durable.ErrInvalid, "the limits hold for the message's own headers")
	}
}

// A handler that postpones its message, or wants it again, has not failed.
func TestPostponementIsNoError(t *testing.T) {
	t.Parallel()
	p := start(t)
	store := memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{Queue: "orders", OnEvent: p.OnEvent, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = p.Enqueue(t.Context(), q, durable.Message{ID: "m"})
	require.NoError(t, err)
	outcomes := []error{durable.Postpone(0), fmt.Errorf("wrapped: %w", durable.Again(0)), durable.Decline(assert.AnError), nil}
	consume(t, q, p.Handler(func(context.Context, *durable.Delivery) error {
		err := outcomes[0]
		outcomes = outcomes[1:]
		return err
	}), func() bool { return slices.Contains(p.names(), "ack orders") })
	q.Close()
	require.NoError(t, store.Close())
	failed := map[string]int{}
	for _, s := range p.exported.GetSpans() {
		failed[s.Name] += 0
		if s.Status.Code == codes.Error {
			failed[s.Name]++
		}
	}
	require.Equal(t, map[string]int{"send orders": 0, "claim orders": 0, "process orders": 1, "postpone orders": 1, "again orders": 0, "ack orders": 0}, failed)
}
