// Package durableprom exports durable queues as Prometheus metrics.
//
//	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
//	…
//	queues := durableprom.NewCollector(durableprom.Options{})
//	prometheus.MustRegister(queues)
//	err = queues.Add("orders", q)
//
// Every series has the label queue, the name given to Add. Queues may come and go while the
// collector is registered.
//
// A scrape calls Stats of each queue, all at the same time: a call of the store for each partition
// and one more. If the store does not answer within [Options].Timeout, the queue has only the
// series timingwheel_durable_up, which is 0. The collector does nothing between scrapes.
//
// The numbers of messages and the counters are those of the whole queue, whichever process asks:
// collect a queue in one process, or use max and not sum over processes. Lateness, the messages
// claimed and those that run are of this process.
//
// docs/durable-operations.md of the repository lists every metric.
package durableprom
