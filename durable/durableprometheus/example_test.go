package durableprometheus_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durableprometheus"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The metrics of a queue are served on a page that Prometheus scrapes.
func Example() {
	ctx := context.Background()
	q, err := durable.Open(ctx, memstore.New(memstore.Options{}), durable.Options{Queue: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	queues := durableprometheus.NewCollector(durableprometheus.Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(queues)
	if err := queues.Add("orders", q); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := q.Enqueue(ctx, durable.Message{Delay: 30 * time.Minute}); err != nil {
		fmt.Println(err)
		return
	}

	printMetrics(registry, "timingwheel_durable_up", "timingwheel_durable_messages_pending")
	// Output:
	// timingwheel_durable_messages_pending{queue="orders"} 1
	// timingwheel_durable_up{queue="orders"} 1
}

// printMetrics scrapes a registry and prints the series with some names.
func printMetrics(registry *prometheus.Registry, names ...string) {
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer page.Close()
	resp, err := page.Client().Get(page.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for line := range strings.SplitSeq(string(text), "\n") {
		for _, name := range names {
			if strings.HasPrefix(line, name+"{") {
				fmt.Println(line)
			}
		}
	}
}

// Each partition has its own series, and all series have a label of the program.
func ExampleOptions() {
	ctx := context.Background()
	q, err := durable.Open(ctx, memstore.New(memstore.Options{}), durable.Options{Queue: "orders", Partitions: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	queues := durableprometheus.NewCollector(durableprometheus.Options{ConstLabels: prometheus.Labels{"service": "shop"}, Partitions: true})
	registry := prometheus.NewRegistry()
	registry.MustRegister(queues)
	if err := queues.Add("orders", q); err != nil {
		fmt.Println(err)
		return
	}

	printMetrics(registry, "timingwheel_durable_messages_due")
	// Output:
	// timingwheel_durable_messages_due{partition="0",queue="orders",service="shop"} 0
	// timingwheel_durable_messages_due{partition="1",queue="orders",service="shop"} 0
}

// cached is a source whose statistics another part of the program has read.
type cached durable.Stats

func (c cached) Stats(context.Context) (durable.Stats, error) { return durable.Stats(c), nil }

// The statistics come from a source of the program.
func ExampleSource() {
	queues := durableprometheus.NewCollector(durableprometheus.Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(queues)
	if err := queues.Add("orders", cached{Consumers: 3}); err != nil {
		fmt.Println(err)
		return
	}

	printMetrics(registry, "timingwheel_durable_consumers")
	// Output: timingwheel_durable_consumers{queue="orders"} 3
}
