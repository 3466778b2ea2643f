// Package durableprometheus exports durable queues as Prometheus metrics.
//
//	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
//	…
//	queues := durableprometheus.NewCollector(durableprometheus.Options{})
//	prometheus.MustRegister(queues)
//	err = queues.Add("orders", q)
//
// Every series has the label queue, which is the name given to [Collector.Add]. Queues may be added
// and removed while the collector is registered.
//
// # Scrapes
//
// A scrape calls Stats on all queues concurrently. Each Stats call makes one or two store calls per
// partition, and one more. If the store does not answer within [Options].Timeout, the queue has
// only the series timingwheel_durable_up, which is 0. The collector does nothing between scrapes.
//
// # Several processes
//
// The numbers of messages and the counters describe the whole queue, in every process. Collect a
// queue in one process, or aggregate over processes with max, not with sum. Lateness and the
// messages that are prefetched or firing describe one process.
//
// docs/durable-operations.md in the repository lists every metric.
package durableprometheus
