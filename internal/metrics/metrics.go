// Package metrics is the table of the figures that a wheel reports in timingwheel.Stats. Log
// records, expvar, Prometheus, the debug page and docs/metrics.md are all made from this table.
package metrics

import (
	"iter"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Kind says how a figure changes.
type Kind string

const (
	Counter   Kind = "C"         // only grows
	Gauge     Kind = "G"         // goes up and down
	Setting   Kind = "G, fixed"  // set when the wheel is made
	Histogram Kind = "histogram" // a timingwheel.Histogram
)

// Metric is one figure. It has no accessor, because this package cannot import the type Stats:
// Field names the value, and a test of the root package compares the table with the type.
type Metric struct {
	Field string // of Stats; a field of a field, such as Lateness.Max, repeats a part of a metric
	Name  string // in Prometheus, without the namespace
	Kind  Kind
	Unit  string
	Help  string // a sentence
	More  string // further sentences, for docs/metrics.md
	Main  bool   // log records have the figure even if it is 0
}

// Table lists every figure. Lists that are made from the table keep its order.
var Table = []Metric{
	{Field: "Pending", Name: "timers_pending", Kind: Gauge, Unit: "timers", Main: true,
		Help: "Timers armed and neither claimed nor stopped."},
	{Field: "Due", Name: "timers_due", Kind: Gauge, Unit: "timers",
		Help: "Pending timers that have expired and wait for a goroutine.",
		More: "With the default executor rarely above 0 at a scrape. In Manual mode timers that have become due since the last `Advance` began are not counted."},
	{Field: "MostDue", Name: "timers_due_max", Kind: Gauge, Unit: "timers",
		Help: "Most timers that one shard has had due when one was claimed."},
	{Field: "Overdue", Name: "overdue_seconds", Kind: Gauge, Unit: "s",
		Help: "For how long the longest expired timer has waited to be claimed.",
		More: "A timer expires with the tick to which its deadline was rounded up. Grows while nothing is claimed, because an `Inline` callback blocks or an executor does not run its calls. A timer that was armed after its deadline counts from the deadline. In Manual mode measured on the wheel's clock."},
	{Field: "Armed", Name: "timers_armed_total", Kind: Counter, Unit: "timers", Main: true,
		Help: "Timers added; each run of a plan is one."},
	{Field: "Fired", Name: "timers_fired_total", Kind: Counter, Unit: "timers", Main: true,
		Help: "Callbacks and payloads claimed."},
	{Field: "Stopped", Name: "timers_stopped_total", Kind: Counter, Unit: "timers", Main: true,
		Help: "Timers stopped or removed before they fired.",
		More: "A `Stop` that ends a plan during a run counts."},
	{Field: "Discarded", Name: "timers_discarded_total", Kind: Counter, Unit: "timers",
		Help: "Timers that were pending when the wheel was stopped."},
	{Field: "Postponed", Name: "timers_postponed_total", Kind: Counter, Unit: "moves",
		Help: "Moves by Reschedule that the wheel has noticed, to earlier times too.",
		More: "A move to a later deadline is noticed when the old bucket comes up. In Manual mode every `Reschedule` of a pending timer counts."},
	{Field: "Rejected", Name: "timers_rejected_total", Kind: Counter, Unit: "timers",
		Help: "Timers that were to be added to the stopped wheel.",
		More: "They never run."},
	{Field: "Flushed", Name: "timers_flushed_total", Kind: Counter, Unit: "timers",
		Help: "Timers made due by Flush."},
	{Field: "Lateness", Name: "lateness_seconds", Kind: Histogram, Unit: "s",
		Help: "How long after its deadline a timer was claimed, of those that were sampled.",
		More: "The deadline is rounded up to a tick."},
	{Field: "Lateness.Max", Name: "lateness_max_seconds", Kind: Gauge, Unit: "s",
		Help: "Largest lateness that was recorded since the wheel was made."},
	{Field: "Running", Name: "callbacks_running", Kind: Gauge, Unit: "callbacks", Main: true,
		Help: "Callbacks, or batches, that have started and not returned."},
	{Field: "SlowRunning", Name: "callbacks_slow_running", Kind: Gauge, Unit: "callbacks",
		Help: "Callbacks, or batches, that have been running for SlowAfter or longer.",
		More: "A callback that never returns stays here."},
	{Field: "Slow", Name: "callbacks_slow_total", Kind: Counter, Unit: "callbacks",
		Help: "Callbacks, or batches, that took SlowAfter or longer.",
		More: "Those that still run are included. Always 0 without `SlowAfter` and `OnSlow`."},
	{Field: "Panics", Name: "callback_panics_total", Kind: Counter, Unit: "panics",
		Help: "Panics of callbacks that OnPanic was told of.",
		More: "Without `OnPanic` a panic ends the program."},
	{Field: "Workers", Name: "workers", Kind: Gauge, Unit: "goroutines",
		Help: "Goroutines of the default executor."},
	{Field: "Moved", Name: "cascades_total", Kind: Counter, Unit: "moves",
		Help: "Moves of a timer from one wheel to a finer one."},
	{Field: "Wakeups", Name: "wakeups_total", Kind: Counter, Unit: "wake-ups",
		Help: "Times that a driver was woken by its alarm."},
	{Field: "Buckets", Name: "buckets", Kind: Gauge, Unit: "buckets",
		Help: "Buckets with timers."},
	{Field: "Levels", Name: "levels", Kind: Gauge, Unit: "wheels",
		Help: "Wheels in use, of the shard that has most."},
	{Field: "Shards", Name: "shards", Kind: Setting, Unit: "shards",
		Help: "Shards of the wheel."},
	{Field: "Tick", Name: "tick_seconds", Kind: Setting, Unit: "s",
		Help: "Granularity of deadlines."},
	{Field: "Bytes", Name: "memory_bytes", Kind: Gauge, Unit: "bytes",
		Help: "Memory held for timers, payloads, buckets and slots.",
		More: "Memory that callbacks refer to is not included."},
}

// Numbers yields the metrics that are fields of their own and no histogram, with their values: an
// int, a uint64 or a time.Duration each. stats points to a Stats.
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

func (m Metric) value(stats any) reflect.Value {
	v := reflect.ValueOf(stats).Elem()
	for name := range strings.SplitSeq(m.Field, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// Float returns the value of a metric that is no histogram, a duration in seconds.
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

// Key returns the field in snake case.
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
