package timingwheelprom_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/timingwheel-go/timingwheel"
	timingwheelprom "github.com/timingwheel-go/timingwheel/prometheus"
)

// A wheel on the /metrics page of a program. Its clock is driven by hand here, so that the figures are always the same.
func Example() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()

	wheels := timingwheelprom.NewCollector(timingwheelprom.Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(wheels)
	if err := wheels.Add("orders", tw); err != nil {
		fmt.Println(err)
		return
	}

	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {})
	tw.Advance(tw.Now().Add(time.Minute))

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
		if strings.HasPrefix(line, "timingwheel_timers_fired") || strings.HasPrefix(line, "timingwheel_timers_pending") ||
			strings.HasPrefix(line, "timingwheel_lateness_seconds_count") {
			fmt.Println(line)
		}
	}
	// Output:
	// timingwheel_lateness_seconds_count{wheel="orders"} 3
	// timingwheel_timers_fired_total{wheel="orders"} 3
	// timingwheel_timers_pending{wheel="orders"} 1
}
