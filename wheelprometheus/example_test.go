package wheelprometheus_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelprometheus"
)

// The /metrics page of a program shows a wheel. The example moves the clock itself, so that the
// figures are always the same.
func ExampleCollector() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()

	wheels := wheelprometheus.NewCollector(wheelprometheus.Options{ConstLabels: prometheus.Labels{"service": "shop"}})
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
	// timingwheel_lateness_seconds_count{service="shop",wheel="orders"} 3
	// timingwheel_timers_fired_total{service="shop",wheel="orders"} 3
	// timingwheel_timers_pending{service="shop",wheel="orders"} 1
}

// A program without a registry of its own uses the default one. A wheel is removed when the program
// stops it.
func ExampleCollector_Remove() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	wheels := wheelprometheus.NewCollector(wheelprometheus.Options{})
	prometheus.MustRegister(wheels)
	err = wheels.Add("sessions", tw) // the label wheel="sessions"
	if err != nil {
		fmt.Println(err)
		return
	}
	tw.Stop()
	wheels.Remove("sessions") // at any time
	prometheus.Unregister(wheels)
	fmt.Println(wheels.Add("sessions", tw)) // the name is free again
	// Output: <nil>
}
