package durableprometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/timingwheel-go/timingwheel/durable"
)

const (
	namespace      = "timingwheel"
	subsystem      = "durable"
	queueLabel     = "queue"
	partitionLabel = "partition"
)

// metric is a metric whose value a scrape reads from a T.
type metric[T any] struct {
	name  string
	kind  prometheus.ValueType
	help  string
	value func(T) float64
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// countMetrics are metrics of the whole queue or, with Options.Partitions, of each partition.
var countMetrics = []metric[*durable.Counts]{
	{"messages_pending", gauge, "Scheduled messages, including due ones.",
		func(c *durable.Counts) float64 { return float64(c.Scheduled) }},
	{"messages_due", gauge,
		"Scheduled messages whose due time has passed and that no consumer has claimed.",
		func(c *durable.Counts) float64 { return float64(c.Due) }},
	{"messages_leased", gauge, "Messages that consumers have claimed ahead of time or begun.",
		func(c *durable.Counts) float64 { return float64(c.InFlight) }},
	{"messages_unreadable", gauge,
		"Scheduled messages that consumers could not read. They stay in the queue.",
		func(c *durable.Counts) float64 { return float64(c.Unreadable) }},
	{"messages_dead", gauge, "Dead letters.",
		func(c *durable.Counts) float64 { return float64(c.Dead) }},
	{"dead_bytes", gauge, "Bytes of the bodies of dead letters.",
		func(c *durable.Counts) float64 { return float64(c.DeadBytes) }},
	{"paused", gauge, "1 if the partition, or any partition of the queue, is paused; otherwise 0.",
		func(c *durable.Counts) float64 {
			if c.Paused {
				return 1
			}
			return 0
		}},
	{"messages_enqueued_total", counter, "Messages that were stored.",
		func(c *durable.Counts) float64 { return float64(c.Enqueued) }},
	{"messages_acked_total", counter, "Messages that were handled.",
		func(c *durable.Counts) float64 { return float64(c.Acked) }},
	{"messages_retried_total", counter, "Deliveries that failed and were scheduled again.",
		func(c *durable.Counts) float64 { return float64(c.Retried) }},
	{"messages_buried_total", counter, "Messages that became dead letters.",
		func(c *durable.Counts) float64 { return float64(c.Buried) }},
	{"messages_cancelled_total", counter, "Messages that were cancelled.",
		func(c *durable.Counts) float64 { return float64(c.Cancelled) }},
	{"messages_expired_total", counter,
		"Messages that were removed undelivered after their ExpireAt.",
		func(c *durable.Counts) float64 { return float64(c.Expired) }},
	{"dead_trimmed_total", counter,
		"Dead letters that were dropped because of the limits of number, bytes or age.",
		func(c *durable.Counts) float64 { return float64(c.Trimmed) }},
	{"messages_lost_total", counter,
		"Messages and keys that are missing because the store evicted them or they were deleted.",
		func(c *durable.Counts) float64 { return float64(c.Lost) }},
	{"crashes_total", counter, "Deliveries that ended because their leases expired.",
		func(c *durable.Counts) float64 { return float64(c.Crashed) }},
}

// queueMetrics are metrics of the whole queue only; the last two are of this process.
var queueMetrics = []metric[*durable.Stats]{
	{"partitions", gauge, "Partitions.",
		func(s *durable.Stats) float64 { return float64(len(s.Partitions)) }},
	{"messages_overdue", gauge,
		"Messages that are due but not yet in a handler, whether claimed or not.",
		func(s *durable.Stats) float64 { return float64(s.Overdue) }},
	{"overdue_seconds", gauge, "Time since the first overdue message was due; 0 if there is none.",
		func(s *durable.Stats) float64 { return s.OverdueFor.Seconds() }},
	{"oldest_run_seconds", gauge,
		"Time since the longest-running message was passed to its handler or returned by Take; 0 if none runs.",
		func(s *durable.Stats) float64 { return s.OldestRun.Seconds() }},
	{"partitions_unowned", gauge,
		"Partitions that no consumer of any process owned at the time of the last heartbeats.",
		func(s *durable.Stats) float64 { return float64(s.Unowned) }},
	{"consumers", gauge, "Consumers of all processes, by their heartbeats.",
		func(s *durable.Stats) float64 { return float64(s.Consumers) }},
	{"messages_prefetched", gauge, "Messages that this process has claimed and not yet begun.",
		func(s *durable.Stats) float64 { return float64(s.Prefetched) }},
	{"messages_firing", gauge, "Messages that this process has begun and not yet settled.",
		func(s *durable.Stats) float64 { return float64(s.Firing) }},
}

const (
	upName = "up"
	upHelp = "1 if the store answered this scrape in time; otherwise 0, and the queue has no other series."

	latenessName = "lateness_seconds"
	latenessHelp = "Time from the due time of a message to its delivery by this process."
)

// desc describes a metric with the label queue and other labels.
func desc(name, help string, constant prometheus.Labels, labels ...string) *prometheus.Desc {
	full := prometheus.BuildFQName(namespace, subsystem, name)
	return prometheus.NewDesc(full, help, append([]string{queueLabel}, labels...), constant)
}

// described is a metric with its description.
type described[T any] struct {
	metric[T]
	desc *prometheus.Desc
}

func describeAll[T any](metrics []metric[T], constant prometheus.Labels, labels ...string) []described[T] {
	all := make([]described[T], len(metrics))
	for i, m := range metrics {
		all[i] = described[T]{m, desc(m.name, m.help, constant, labels...)}
	}
	return all
}

// send reads the metric from a value.
func (d *described[T]) send(out chan<- prometheus.Metric, from T, labels ...string) {
	out <- prometheus.MustNewConstMetric(d.desc, d.kind, d.value(from), labels...)
}
