package timingwheelprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/timingwheel-go/timingwheel"
)

const (
	namespace  = "timingwheel"
	wheelLabel = "wheel"
)

// metric is one number of Stats.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*timingwheel.Stats) float64
}

type metrics []metric

func newMetrics(labels prometheus.Labels) metrics {
	var all metrics
	add := func(kind prometheus.ValueType, name, help string, value func(*timingwheel.Stats) float64) {
		all = append(all, metric{newDesc(name, help, labels), kind, value})
	}
	addTimers(add)
	addCallbacks(add)
	addWheel(add)
	return all
}

func newDesc(name, help string, labels prometheus.Labels) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{wheelLabel}, labels)
}

// adding takes one metric.
type adding func(kind prometheus.ValueType, name, help string, value func(*timingwheel.Stats) float64)

type stats = timingwheel.Stats

// addTimers adds what happens to timers.
func addTimers(add adding) {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	add(gauge, "timers_pending", "Timers armed and neither claimed nor stopped.",
		func(s *stats) float64 { return float64(s.Pending) })
	add(gauge, "timers_due", "Pending timers that have expired and wait for a goroutine.",
		func(s *stats) float64 { return float64(s.Due) })
	add(gauge, "timers_due_max", "Most timers that one shard has had due when one was claimed.",
		func(s *stats) float64 { return float64(s.MostDue) })
	add(gauge, "overdue_seconds", "For how long the longest expired timer has waited to be claimed.",
		func(s *stats) float64 { return s.Overdue.Seconds() })
	add(counter, "timers_armed_total", "Timers added; each run of a plan is one.",
		func(s *stats) float64 { return float64(s.Armed) })
	add(counter, "timers_fired_total", "Callbacks and payloads claimed.",
		func(s *stats) float64 { return float64(s.Fired) })
	add(counter, "timers_stopped_total", "Timers stopped or removed before they fired.",
		func(s *stats) float64 { return float64(s.Stopped) })
	add(counter, "timers_discarded_total", "Timers that were pending when the wheel was stopped.",
		func(s *stats) float64 { return float64(s.Discarded) })
	add(counter, "timers_postponed_total", "Timers moved by Reschedule, to earlier times too.",
		func(s *stats) float64 { return float64(s.Postponed) })
	add(counter, "timers_rejected_total", "Timers that were to be added to the stopped wheel.",
		func(s *stats) float64 { return float64(s.Rejected) })
	add(counter, "timers_flushed_total", "Timers made due by Flush.",
		func(s *stats) float64 { return float64(s.Flushed) })
}

// addCallbacks adds what callbacks do.
func addCallbacks(add adding) {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	add(gauge, "callbacks_running", "Callbacks, or batches, that have started and not returned.",
		func(s *stats) float64 { return float64(s.Running) })
	add(gauge, "callbacks_slow_running", "Callbacks, or batches, that have been running for SlowAfter or longer.",
		func(s *stats) float64 { return float64(s.SlowRunning) })
	add(counter, "callbacks_slow_total", "Callbacks, or batches, that took SlowAfter or longer.",
		func(s *stats) float64 { return float64(s.Slow) })
	add(counter, "callback_panics_total", "Panics of callbacks that OnPanic was told of.",
		func(s *stats) float64 { return float64(s.Panics) })
	add(gauge, "workers", "Goroutines of the default executor.",
		func(s *stats) float64 { return float64(s.Workers) })
}

// addWheel adds what the wheel itself does and holds.
func addWheel(add adding) {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	add(counter, "cascades_total", "Moves of a timer from one wheel to a finer one.",
		func(s *stats) float64 { return float64(s.Moved) })
	add(counter, "wakeups_total", "Times that a driver was woken by its alarm.",
		func(s *stats) float64 { return float64(s.Wakeups) })
	add(gauge, "buckets", "Buckets with timers.",
		func(s *stats) float64 { return float64(s.Buckets) })
	add(gauge, "levels", "Wheels in use, of the shard that has most.",
		func(s *stats) float64 { return float64(s.Levels) })
	add(gauge, "shards", "Shards of the wheel.",
		func(s *stats) float64 { return float64(s.Shards) })
	add(gauge, "tick_seconds", "Granularity of deadlines.",
		func(s *stats) float64 { return s.Tick.Seconds() })
	add(gauge, "memory_bytes", "Memory held for timers, payloads, buckets and slots.",
		func(s *stats) float64 { return float64(s.Bytes) })
	add(gauge, "lateness_max_seconds", "Largest lateness that was recorded since the wheel was made.",
		func(s *stats) float64 { return s.Lateness.Max.Seconds() })
}
