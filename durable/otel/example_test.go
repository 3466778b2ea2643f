package durableotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	durableotel "github.com/timingwheel-go/timingwheel/durable/otel"
	"github.com/timingwheel-go/timingwheel/durable/typed"
)

type order struct{ Number int }

// A typed queue whose messages are traced: the tracer enqueues what the typed queue has encoded,
// and wraps the handler that decodes.
func Example_typed() {
	exported := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exported))
	tracer := durableotel.New(durableotel.Options{TracerProvider: provider, Propagator: propagation.TraceContext{}})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New(memstore.Options{})
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders", OnEvent: tracer.OnEvent})
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
		stop()
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
