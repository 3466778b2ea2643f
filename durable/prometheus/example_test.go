package durableprom_test

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
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	durableprom "github.com/timingwheel-go/timingwheel/durable/prometheus"
)

// A queue on the /metrics page of a program.
func Example() {
	ctx := context.Background()
	q, err := durable.Open(ctx, memstore.New(memstore.Options{}), durable.Options{Queue: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	queues := durableprom.NewCollector(durableprom.Options{})
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
		if strings.HasPrefix(line, "timingwheel_durable_up") || strings.HasPrefix(line, "timingwheel_durable_messages_pending") {
			fmt.Println(line)
		}
	}
	// Output:
	// timingwheel_durable_messages_pending{queue="orders"} 1
	// timingwheel_durable_up{queue="orders"} 1
}
