package expvars

import "github.com/timingwheel-go/timingwheel"

// stats is timingwheel.Stats as JSON.
type stats struct {
	Name        string   `json:"name"`
	TickSeconds float64  `json:"tick_seconds"`
	Shards      int      `json:"shards"`
	Pending     int      `json:"pending"`
	Due         int      `json:"due"`
	MostDue     int      `json:"most_due"`
	Overdue     float64  `json:"overdue_seconds"`
	Armed       uint64   `json:"armed"`
	Fired       uint64   `json:"fired"`
	Stopped     uint64   `json:"stopped"`
	Discarded   uint64   `json:"discarded"`
	Postponed   uint64   `json:"postponed"`
	Rejected    uint64   `json:"rejected"`
	Flushed     uint64   `json:"flushed"`
	Moved       uint64   `json:"moved"`
	Wakeups     uint64   `json:"wakeups"`
	Running     int      `json:"running"`
	Workers     int      `json:"workers"`
	Panics      uint64   `json:"panics"`
	Slow        uint64   `json:"slow"`
	SlowRunning int      `json:"slow_running"`
	Buckets     int      `json:"buckets"`
	Levels      int      `json:"levels"`
	Bytes       uint64   `json:"bytes"`
	Lateness    lateness `json:"lateness"`
}

// lateness is its histogram in seconds, as upper bounds of quantiles.
type lateness struct {
	Samples uint64  `json:"samples"`
	Mean    float64 `json:"mean_seconds"`
	P50     float64 `json:"p50_seconds"`
	P90     float64 `json:"p90_seconds"`
	P99     float64 `json:"p99_seconds"`
	P999    float64 `json:"p999_seconds"`
	Max     float64 `json:"max_seconds"`
}

func show(st timingwheel.Stats) stats {
	return stats{
		Name:        st.Name,
		TickSeconds: st.Tick.Seconds(),
		Shards:      st.Shards,
		Pending:     st.Pending,
		Due:         st.Due,
		MostDue:     st.MostDue,
		Overdue:     st.Overdue.Seconds(),
		Armed:       st.Armed,
		Fired:       st.Fired,
		Stopped:     st.Stopped,
		Discarded:   st.Discarded,
		Postponed:   st.Postponed,
		Rejected:    st.Rejected,
		Flushed:     st.Flushed,
		Moved:       st.Moved,
		Wakeups:     st.Wakeups,
		Running:     st.Running,
		Workers:     st.Workers,
		Panics:      st.Panics,
		Slow:        st.Slow,
		SlowRunning: st.SlowRunning,
		Buckets:     st.Buckets,
		Levels:      st.Levels,
		Bytes:       st.Bytes,
		Lateness:    showLateness(&st.Lateness),
	}
}

func showLateness(h *timingwheel.Histogram) lateness {
	return lateness{
		Samples: h.Count(),
		Mean:    h.Mean().Seconds(),
		P50:     h.Quantile(0.5).Seconds(),
		P90:     h.Quantile(0.9).Seconds(),
		P99:     h.Quantile(0.99).Seconds(),
		P999:    h.Quantile(0.999).Seconds(),
		Max:     h.Max.Seconds(),
	}
}
