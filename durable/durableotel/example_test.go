package durableotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durableotel"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/typed"
)

type order struct{ Number int }

// The messages of a typed queue are traced. The tracer enqueues the message that the typed queue
// has encoded, and wraps the handler that decodes it.
func Example_typed() {
	exported := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exported))
	tracer := durableotel.New(durableotel.Options{TracerProvider: provider, Propagator: propagation.TraceContext{}})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New(memstore.Options{})
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders", OnEvent: func(e durable.Event) {
		tracer.OnEvent(e)
		if e.Kind == durable.EventAcked {
			stop() // the last span is recorded
		}
	}})
	if err != nil {
		panic(err)
	}
	orders := typed.New[order](q, nil)

	message, err := orders.Encode(typed.Message[order]{ID: "order-42", Body: order{Number: 42}})
	if err != nil {
		panic(err)
	}
	if _, err := tracer.Enqueue(ctx, q, message); err != nil {
		panic(err)
	}
	err = q.Consume(ctx, tracer.Handler(orders.Handler(func(ctx context.Context, d *typed.Delivery[order]) error {
		fmt.Println("order", d.Body.Number, "in a span:", trace.SpanContextFromContext(ctx).IsValid())
		return nil
	})), durable.ConsumerOptions{})
	if err != nil {
		panic(err)
	}
	q.Close()

	spans := exported.GetSpans()
	for _, span := range spans {
		if span.SpanContext.TraceID() == spans[0].SpanContext.TraceID() {
			fmt.Println(span.Name)
		}
	}

	// Unordered output:
	// order 42 in a span: true
	// send orders
	// claim orders
	// process orders
	// ack orders
}

// A message is enqueued in a request and taken later, and both spans belong to the trace of the
// request.
func ExampleTracer() {
	exported := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exported))
	tracer := durableotel.New(durableotel.Options{TracerProvider: provider, Propagator: propagation.TraceContext{}})

	ctx := context.Background()
	store := memstore.New(memstore.Options{})
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
	if err != nil {
		panic(err)
	}
	defer q.Close()

	inRequest, request := provider.Tracer("shop").Start(ctx, "request")
	if _, err := tracer.Enqueue(inRequest, q, durable.Message{ID: "order-42"}); err != nil {
		panic(err)
	}
	request.End()

	d, err := q.Take(ctx)
	if err != nil {
		panic(err)
	}
	_, span := tracer.Process(ctx, d)
	if err := d.Ack(ctx); err != nil {
		panic(err)
	}
	span.End()

	for _, s := range exported.GetSpans() {
		fmt.Println(s.Name, s.SpanContext.TraceID() == request.SpanContext().TraceID())
	}
	// Output:
	// send orders true
	// request true
	// process orders true
}
