package wheelprometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/timingwheel-go/timingwheel/internal/figures"
)

const (
	namespace  = "timingwheel"
	wheelLabel = "wheel"
)

// metric exports one number of Stats.
type metric struct {
	figures.Metric
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// describe returns the metrics of figures.Table: the numbers, and the description of the histogram
// of lateness.
func describe(labels prometheus.Labels) (numbers []metric, lateness *prometheus.Desc) {
	for _, m := range figures.Table {
		name := prometheus.BuildFQName(namespace, "", m.Name)
		desc := prometheus.NewDesc(name, m.Help, []string{wheelLabel}, labels)
		switch m.Kind {
		case figures.Histogram:
			lateness = desc
		case figures.Counter:
			numbers = append(numbers, metric{m, desc, prometheus.CounterValue})
		default:
			numbers = append(numbers, metric{m, desc, prometheus.GaugeValue})
		}
	}
	return numbers, lateness
}
