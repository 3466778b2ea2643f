//go:build unix

package chaos

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durableotel"
	"github.com/timingwheel-go/timingwheel/durable/durableprometheus"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// observed opens a queue on a server. The client waits for each reply for readTimeout.
func observed(t *testing.T, server *redistest.Server, readTimeout time.Duration, onEvent func(durable.Event)) *durable.Queue {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: readTimeout, MaxRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{AllowLossOnCrash: true})
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), store, durable.Options{
		Queue: "orders", Partitions: 2, RetryFor: waitLimit, OnEvent: onEvent, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q
}

// spans returns the spans with a name that belong to a message.
func spans(all tracetest.SpanStubs, name, id string) (found tracetest.SpanStubs) {
	for _, s := range all {
		for _, a := range s.Attributes {
			if s.Name == name && a.Key == attribute.Key("messaging.message.id") && a.Value.AsString() == id {
				found = append(found, s)
			}
		}
	}
	return found
}

// The server is paused while a traced handler runs, which enqueues two more messages: one call
// waits for the server, the other gives up. All spans belong to the trace of the request, each
// begins and ends once, and each has the status of its call.
func TestOneTraceAcrossAServerPause(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	exported := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exported))
	defer func() { assert.NoError(t, provider.Shutdown(context.Background())) }()
	tracer := durableotel.New(durableotel.Options{TracerProvider: provider, Propagator: propagation.TraceContext{}})
	q := observed(t, server, 200*time.Millisecond, tracer.OnEvent)

	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	_, err := tracer.Enqueue(ctx, q, durable.Message{ID: "order", Delay: 50 * time.Millisecond})
	require.NoError(t, err)
	request.End()

	var paused, continued time.Time
	going := make(chan time.Time, 1)
	handler := func(ctx context.Context, d *durable.Delivery) error {
		if d.ID != "order" {
			return nil
		}
		server.Pause()
		paused = time.Now()
		brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, err := tracer.Enqueue(brief, q, durable.Message{ID: "given up", Delay: time.Hour})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		time.AfterFunc(500*time.Millisecond, func() {
			going <- time.Now()
			server.Continue()
		})
		_, err = tracer.Enqueue(ctx, q, durable.Message{ID: "receipt"})
		continued = <-going
		assert.NoError(t, err)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Consume(ctx, tracer.Handler(handler), durable.ConsumerOptions{}) }()
	require.Eventually(t, func() bool {
		all := exported.GetSpans()
		return len(spans(all, "ack orders", "order")) > 0 && len(spans(all, "ack orders", "receipt")) > 0
	}, waitLimit, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)

	all := exported.GetSpans()
	seen := map[string]bool{}
	for _, s := range all {
		assert.Equal(t, request.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
		assert.False(t, s.EndTime.Before(s.StartTime), s.Name)
		assert.False(t, seen[s.SpanContext.SpanID().String()], "%s ends twice", s.Name)
		seen[s.SpanContext.SpanID().String()] = true
	}
	parent := tracetest.SpanStub{SpanContext: request.SpanContext()}
	for _, id := range []string{"order", "receipt"} {
		send := spans(all, "send orders", id)
		require.Len(t, send, 1, id)
		assert.Equal(t, parent.SpanContext.SpanID(), send[0].Parent.SpanID(), id)
		for _, name := range []string{"claim orders", "process orders", "ack orders"} {
			found := spans(all, name, id)
			require.Len(t, found, 1, "%s of %s", name, id)
			assert.Equal(t, codes.Unset, found[0].Status.Code, "%s of %s", name, id)
			assert.Equal(t, send[0].SpanContext.SpanID(), found[0].Parent.SpanID(), "%s of %s", name, id)
		}
		parent = spans(all, "process orders", "order")[0]
	}
	waited := spans(all, "send orders", "receipt")[0]
	assert.Equal(t, codes.Unset, waited.Status.Code)
	assert.True(t, waited.StartTime.After(paused) && waited.EndTime.After(continued), "%v to %v is not across %v", waited.StartTime, waited.EndTime, continued)
	assert.True(t, spans(all, "ack orders", "order")[0].EndTime.After(continued))
	failed := spans(all, "send orders", "given up")
	require.Len(t, failed, 1)
	assert.Equal(t, codes.Error, failed[0].Status.Code)
	assert.Contains(t, failed[0].Status.Description, context.DeadlineExceeded.Error())
	assert.True(t, failed[0].EndTime.Before(continued))
	assert.Equal(t, parent.SpanContext.SpanID(), failed[0].Parent.SpanID())
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, stats.Crashed)
	assert.Empty(t, spans(all, "retry orders", "order"))
}

// A scrape of a queue whose server is paused returns after the timeout. The queue is exported as
// down, other queues are not affected, and the queue is up again when the server continues.
func TestScrapeDuringAServerPauseTimesOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	q := observed(t, server, waitLimit, nil)
	other, err := durable.Open(t.Context(), memstore.New(memstore.Options{}), durable.Options{Queue: "other"})
	require.NoError(t, err)
	defer other.Close()
	_, err = q.Enqueue(t.Context(), durable.Message{Delay: time.Hour})
	require.NoError(t, err)

	collector := durableprometheus.NewCollector(durableprometheus.Options{Timeout: 300 * time.Millisecond})
	require.NoError(t, errors.Join(collector.Add("orders", q), collector.Add("other", other)))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer page.Close()
	scrape := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit/2)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, page.URL, nil)
		require.NoError(t, err)
		response, err := page.Client().Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, string(text))
		return string(text)
	}
	const up, down = "timingwheel_durable_up{queue=\"orders\"} 1\n", "timingwheel_durable_up{queue=\"orders\"} 0\n"
	const pending, otherUp = "timingwheel_durable_messages_pending{queue=\"orders\"} 1\n", "timingwheel_durable_up{queue=\"other\"} 1\n"
	text := scrape()
	require.Contains(t, text, up)
	require.Contains(t, text, pending)

	server.Pause()
	for range 3 {
		text := scrape()
		require.Contains(t, text, down)
		require.Contains(t, text, otherUp)
		require.Equal(t, 1, strings.Count(text, `queue="orders"`), "no stale series:\n%s", text)
	}
	server.Continue()
	require.Eventually(t, func() bool {
		text = scrape()
		return strings.Contains(text, up)
	}, waitLimit, 50*time.Millisecond)
	require.Contains(t, text, pending)
}

// The due times, and then all keys, of a partition are deleted under a running consumer, as by a
// server that evicts keys. The alert "records are missing" fires, the queue reports the keys, and
// Healthy says what to do until it is done. The message whose record is left is delivered.
func TestAlertFiresForLostKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	reported := make(chan error, 100)
	q := observed(t, server, waitLimit, func(e durable.Event) {
		if e.Kind == durable.EventError {
			reported <- e.Err
		}
	})
	collector := durableprometheus.NewCollector(durableprometheus.Options{})
	require.NoError(t, collector.Add("orders", q))
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(collector))
	lost := func() float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "timingwheel_durable_messages_lost_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return -1
	}
	handled := make(chan string, 10)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_ = q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error { handled <- d.ID; return nil }, durable.ConsumerOptions{})
	}()
	_, err := q.Enqueue(t.Context(), durable.Message{ID: "kept", Delay: 4 * time.Second})
	require.NoError(t, err)
	client := server.Client(t)
	names := client.Keys(t.Context(), "tw:{orders:"+strconv.Itoa(contract.PartitionOf("kept", 2))+"}:*").Val()
	require.Len(t, names, 6)
	for _, gone := range [][]string{{names[0][:len(names[0])-1] + "d"}, names} {
		if len(gone) > 1 {
			assert.Equal(t, "kept", <-handled)
		}
		require.NoError(t, client.Del(t.Context(), gone...).Err())
		select {
		case err := <-reported:
			require.ErrorIs(t, err, durable.ErrUnsafe)
			require.ErrorContains(t, err, gone[0])
		case <-time.After(waitLimit):
			require.Fail(t, "nothing was reported")
		}
		require.InDelta(t, len(gone), lost(), 0.1, "the counter is lost with the other keys")
		require.ErrorContains(t, q.Healthy(t.Context()), "run an audit with repair")
	}
	_, err = q.Audit(t.Context(), true)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return q.Healthy(t.Context()) == nil }, waitLimit, 100*time.Millisecond)
	require.Empty(t, reported)
}
