package wheelexpvar

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/figures"
)

// show returns st as a value that is encoded as a JSON object.
func show(st timingwheel.Stats) map[string]any {
	object := map[string]any{"name": st.Name, "lateness": showLateness(&st.Lateness)}
	for m, v := range figures.Numbers(&st) {
		if d, ok := v.(time.Duration); ok {
			object[m.Key()+"_seconds"] = d.Seconds()
		} else {
			object[m.Key()] = v
		}
	}
	return object
}

// lateness describes the histogram Stats.Lateness in seconds. The quantiles are upper bounds.
type lateness struct {
	Samples uint64  `json:"samples"`
	P50     float64 `json:"p50_seconds"`
	P90     float64 `json:"p90_seconds"`
	P99     float64 `json:"p99_seconds"`
	P999    float64 `json:"p999_seconds"`
	Max     float64 `json:"max_seconds"`
}

func showLateness(h *timingwheel.Histogram) lateness {
	return lateness{
		Samples: h.Count(),
		P50:     h.Quantile(0.5).Seconds(),
		P90:     h.Quantile(0.9).Seconds(),
		P99:     h.Quantile(0.99).Seconds(),
		P999:    h.Quantile(0.999).Seconds(),
		Max:     h.Max.Seconds(),
	}
}
