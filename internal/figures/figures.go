// Package figures has the table of the figures that a wheel reports in timingwheel.Stats. Expvar,
// Prometheus, the debug page and docs/operating.md are generated from this table.
package figures

import (
	"iter"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Kind describes how a figure changes.
type Kind string

const (
	Counter   Kind = "C"         // never decreases
	Gauge     Kind = "G"         // increases and decreases
	Setting   Kind = "G, fixed"  // fixed when the wheel is made
	Histogram Kind = "histogram" // a timingwheel.Histogram
)

// Metric describes one figure. A Metric has no accessor function, because this package cannot
// import the type Stats: Field names the value, and a test of the root package compares the table
// with the type.
type Metric struct {
	Field string // the field of Stats; a path such as Lateness.Max is a part of another metric
	Name  string // the name in Prometheus, without the namespace
	Kind  Kind
	Unit  string
	Help  string // one sentence
	More  string // further sentences for docs/operating.md
}

// Table lists all figures. Lists that are generated from the table keep its order.
var Table = []Metric{
	{Field: "Pending", Name: "timers_pending", Kind: Gauge, Unit: "timers",
		Help: "Timers that are armed and neither claimed nor stopped."},
	{Field: "Due", Name: "timers_due", Kind: Gauge, Unit: "timers",
		Help: "Timers that have expired, or were flushed, and wait for a goroutine.",
		More: "With the default executor, a scrape rarely finds a value above 0."},
	{Field: "Overdue", Name: "overdue_seconds", Kind: Gauge, Unit: "s",
		Help: "Time for which the earliest expired timer has waited to be claimed.",
		More: "A timer expires at the tick to which its deadline was rounded up. The value grows while no timer is claimed, for example because an `Inline` callback blocks or an executor does not run the functions it gets. If a timer was armed after its deadline, the time is measured from the deadline. In Manual mode, it is measured on the wheel's clock."},
	{Field: "Armed", Name: "timers_armed_total", Kind: Counter, Unit: "timers",
		Help: "Timers that were armed; each run of a plan counts as one."},
	{Field: "Fired", Name: "timers_fired_total", Kind: Counter, Unit: "timers",
		Help: "Timers whose callback or payload was claimed."},
	{Field: "Stopped", Name: "timers_stopped_total", Kind: Counter, Unit: "timers",
		Help: "Timers that were stopped or removed before they fired.",
		More: "A plan that is stopped during a run does not count."},
	{Field: "Discarded", Name: "timers_discarded_total", Kind: Counter, Unit: "timers",
		Help: "Timers that were pending when the wheel was stopped."},
	{Field: "Postponed", Name: "timers_postponed_total", Kind: Counter, Unit: "moves",
		Help: "Moves of timers to later or earlier deadlines.",
		More: "A move to a later deadline is counted when the timer's old bucket expires. In Manual mode, every move is counted immediately."},
	{Field: "Rejected", Name: "timers_rejected_total", Kind: Counter, Unit: "timers",
		Help: "Timers that were added after the wheel was stopped.",
		More: "They never run."},
	{Field: "Flushed", Name: "timers_flushed_total", Kind: Counter, Unit: "timers", Help: "Timers that Flush claimed."},
	{Field: "Lateness", Name: "lateness_seconds", Kind: Histogram, Unit: "s",
		Help: "Time from a timer's deadline, rounded up to a tick, to the start of the batch in which it was claimed."},
	{Field: "Lateness.Max", Name: "lateness_max_seconds", Kind: Gauge, Unit: "s",
		Help: "Largest lateness recorded since the wheel was made."},
	{Field: "Running", Name: "callbacks_running", Kind: Gauge, Unit: "callbacks",
		Help: "Callbacks, or batches of payloads, that have started and not yet returned."},
	{Field: "Panics", Name: "callback_panics_total", Kind: Counter, Unit: "panics",
		Help: "Panics in callbacks that were passed to OnPanic.",
		More: "Without `OnPanic`, a panic crashes the program."},
	{Field: "Expired", Name: "keyed_entries_expired", Kind: Gauge, Unit: "entries",
		Help: "Entries of a keyed.Map that have expired and wait to be reported.",
		More: "The value grows while the expire function blocks. For other wheels it is 0."},
	{Field: "Moved", Name: "cascades_total", Kind: Counter, Unit: "timers",
		Help: "Times that a timer cascaded to a finer level."},
	{Field: "Wakeups", Name: "wakeups_total", Kind: Counter, Unit: "wake-ups",
		Help: "Times that an alarm woke the wheel."},
	{Field: "Buckets", Name: "buckets", Kind: Gauge, Unit: "buckets", Help: "Buckets that contain timers."},
	{Field: "Levels", Name: "levels", Kind: Gauge, Unit: "levels",
		Help: "Levels in use in the shard with the most levels."},
	{Field: "Shards", Name: "shards", Kind: Setting, Unit: "shards", Help: "Shards of the wheel."},
	{Field: "Tick", Name: "tick_seconds", Kind: Setting, Unit: "s", Help: "Granularity of deadlines."},
	{Field: "Bytes", Name: "memory_bytes", Kind: Gauge, Unit: "bytes",
		Help: "Memory held for timers, payloads, buckets and slots.",
		More: "Memory that callbacks refer to is not included."},
}

// Numbers returns an iterator over the metrics that are fields of Stats and not histograms, and
// their values. A value is an int, a uint64 or a time.Duration. stats is a pointer to a Stats.
func Numbers(stats any) iter.Seq2[Metric, any] {
	return func(yield func(Metric, any) bool) {
		for _, m := range Table {
			if m.Kind == Histogram || strings.Contains(m.Field, ".") {
				continue
			}
			if !yield(m, m.value(stats).Interface()) {
				return
			}
		}
	}
}

// value returns the field of m in the Stats to which stats points.
func (m Metric) value(stats any) reflect.Value {
	v := reflect.ValueOf(stats).Elem()
	for name := range strings.SplitSeq(m.Field, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// Float returns the value of a metric that is not a histogram. Durations are in seconds. stats is a
// pointer to a Stats.
func (m Metric) Float(stats any) float64 {
	switch v := m.value(stats).Interface().(type) {
	case int:
		return float64(v)
	case uint64:
		return float64(v)
	default:
		return v.(time.Duration).Seconds()
	}
}

// Key returns the name of the field in snake case.
func (m Metric) Key() string {
	var key strings.Builder
	for i, r := range m.Field {
		if unicode.IsUpper(r) && i > 0 {
			key.WriteByte('_')
		}
		key.WriteRune(unicode.ToLower(r))
	}
	return key.String()
}
