// Package durable implements a queue of delayed messages that survive a crash: cancel the unpaid
// order after 30 minutes, send a reminder before the meeting, retry a failed delivery tomorrow.
// Each message is delivered at least once, never before its due time, and without polling. A
// message can be cancelled or rescheduled by its id until its delivery begins. A message that keeps
// failing becomes a dead letter.
//
// A [Store] holds the messages: package memstore in memory, package pebblestore in a directory,
// package redisstore on Redis, package pgstore in PostgreSQL. [Open] opens a [Queue] in a store and
// creates the queue if it does not exist. [Queue.Enqueue] adds a message. [Queue.Consume] calls a
// handler for each message that is due. [Queue.Take] returns one message at a time.
//
//	store, err := pebblestore.Open("orders", pebblestore.Options{})
//	...
//	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
//	...
//	_, err = q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: 30 * time.Minute})
//	...
//	err = q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
//		return cancelUnpaid(ctx, d.ID) // nil acknowledges the message; an error retries it later
//	}, durable.ConsumerOptions{})
//
// # When to use something else
//
//   - A timeout that may be lost with the process needs no store. Use package timingwheel.
//   - The queue does not guarantee an order of delivery, and a handler may run twice for one
//     message. Use a log or a transaction if the order matters or a handler cannot be idempotent.
//   - Bodies are small, up to 1 MiB by default. Store large data elsewhere and put a reference in
//     the message.
//   - The queue is not a workflow engine: a handler enqueues the next step. The queue keeps no
//     results: a handler stores them under the message id. There are no priorities: urgent messages
//     get their own queue and consumers.
//
// # States
//
// The store records the state of each message:
//
//	scheduled  waits for its due time               -> leased     claimed ahead of its due time
//	                                                -> firing     claimed when it is due
//	leased     claimed by a consumer                -> firing     begun, because it is due
//	                                                -> scheduled  released, or the lease expired
//	firing     begun                                -> removed    acknowledged, expired, interrupted
//	                                                -> scheduled  failed, postponed, released,
//	                                                              crashed, or due again
//	                                                -> dead       failed for the last time, rejected,
//	                                                              or crashed too often
//	dead       kept as a dead letter                -> scheduled  replayed
//	                                                -> removed    deleted, or dropped by a limit
//
// Cancel also removes a scheduled or leased message. With [Interrupt], it removes a firing message
// when its delivery ends. Reschedule changes the due time of a scheduled or leased message. A
// message with Replace set replaces a scheduled, leased or dead message with the same id. While the
// queue is paused, no message becomes firing.
//
// The documentation uses these terms:
//
//   - due: the due time has passed on the store's clock.
//   - in flight: leased or firing.
//   - claim: take a lease on a message.
//   - begin: make a claimed message firing.
//   - prefetched: leased by this process and not begun.
//   - delivered: passed to a handler, or returned by Take.
//   - running: its handler was called and has not returned. A firing message may wait briefly for a
//     handler.
//   - settled: acknowledged, failed, postponed, buried, released or expired. The delivery is over.
//   - crash: the lease of a firing message expired before the message was settled.
//
// # Recurring messages
//
// A message with a Repeat is recurring. It is one message: at any time it waits for its next run or
// is running. A run is the delivery for one time in the series, retries included. After the run has
// ended, the message is due at the next future time in the series, so missed times are skipped.
// Intervals are counted from the first due time. A cron expression follows the clocks in its zone,
// as in package schedule. If the clocks are set forward past one or more times, one run at the
// change replaces them. If the clocks are set back by an hour, a daily run takes place once, and
// half-hourly runs take place in both hours.
//
// All runs have the same id. [Delivery].Planned, the time of the run, tells them apart.
//
// A run that fails is retried like any other delivery. If the last attempt fails, or the handler
// returns [Reject], the run ends with [EventRunFailed] instead of a dead letter, and the next one
// is planned. After ConsumerOptions.MaxCrashes crashes in one run, the series stops until
// [Queue.Replay] resumes it: the message is due at [driver.Never], and Record.Reason says why.
//
// Reschedule moves the next run, and intervals are then counted from its new time. For a running
// message, SetRepeat, Replace and Cancel take effect when the run ends. A series ends at ExpireAt.
//
// If the store's clock is set back by up to three hours or ten periods, whichever is longer, runs
// keep their planned times, so that no run takes place twice. If it is set back further while a
// consumer runs, the consumer plans the next run again.
//
// # Guarantees
//
//   - No lost messages. After Enqueue returns nil, the message is delivered, repeatedly if
//     necessary, until it is acknowledged, cancelled, dead or expired. Durability depends on the
//     store: pebblestore calls fsync, pgstore and redisstore are as durable as their servers' logs
//     and replicas, and memstore loses everything when the process ends.
//   - Never early. No handler is called before the due time on the store's clock. Lateness is
//     unbounded if the consumers or the store cannot keep up.
//   - At least once. A message may be redelivered after a crash, after the process was suspended
//     for longer than the lease, and after a lost reply.
//   - Fenced. [Delivery].Token is a fencing token that rises with each delivery of a message. The
//     store rejects an older token with [ErrLeaseLost].
//   - Exact results from Cancel and Reschedule. After ResultCancelled no handler is called, even if
//     the first reply was lost and the call was retried.
//   - Unique ids. A queue holds at most one queued or dead message per id.
//
// # How it works
//
// A queue has a fixed number of partitions. The message id determines the partition. Each consumer
// owns some of the partitions, according to its capacity. All consumers compute the same assignment
// from the heartbeats that consumers have recently sent. A consumer claims messages shortly before
// they are due, with a lease, and puts them into a timing wheel in memory. When a message is due,
// the consumer begins it in the store, which checks the token and the clock. Ownership is a hint:
// claims are atomic, and consumers with free handlers take overdue messages from any partition.
//
// The consumer extends the lease while the handler runs. If an extension fails, the consumer
// cancels the handler's context before the lease expires and another consumer can get the message.
//
// Up to [driver.MaxBatch] concurrent calls share a round trip or an fsync. A single call does not
// wait for others.
//
// In the repository, docs/durable.md describes what each store may lose if it fails,
// docs/durable-operations.md how to operate a queue, and docs/durable-design.md the design.
package durable
