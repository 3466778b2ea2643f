// Package durable is a queue of delayed messages that survive a crash: cancel the unpaid order
// after 30 minutes, remind before the meeting, try a failed delivery again tomorrow. Messages are
// delivered at least once and never early, at their due times and without polling. They can be
// cancelled and rescheduled by id until they begin. Messages that fail again and again become dead
// letters.
//
// A [Store] keeps the messages: package memstore in memory, package boltstore in one file, package
// redisstore on Redis (a single server, Sentinel or Cluster). [Open] makes a [Queue] in a store, or
// joins one. [Queue.Enqueue] adds a message. [Queue.Consume] calls a handler for each message that
// is due, and [Queue.Take] returns one message at a time.
//
//	store, err := boltstore.Open("orders.db", boltstore.Options{})
//	...
//	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
//	...
//	_, err = q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: 30 * time.Minute})
//	...
//	err = q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
//		return cancelUnpaid(ctx, d.ID) // nil acknowledges; an error tries again later
//	}, durable.ConsumerOptions{})
//
// # When to use something else
//
//   - A timeout that may be lost with the process needs no store: use package timingwheel.
//   - The order of deliveries is not guaranteed, and a handler may run twice for a message. Use a
//     log or a transaction if the order matters or handlers cannot be idempotent.
//   - Bodies are small: up to 1 MiB by default. Keep large data elsewhere, and its name in the
//     message.
//   - Recurring jobs have no schedule here. A handler enqueues the next message itself.
//
// # States
//
// The store knows where each message is:
//
//	scheduled  waits for its due time                leased: a consumer claims it ahead of time
//	                                                 firing: it is due when it is claimed
//	leased     a consumer has claimed it             firing: the consumer begins it when it is due
//	                                                 scheduled: released, or the lease has ended
//	firing     it has begun: Cancel answers Firing   gone: acknowledged or expired
//	                                                 scheduled: failed, released, or crashed
//	                                                 dead: its last attempt has failed, it was
//	                                                 rejected, or it has crashed too often
//	dead       is kept as a dead letter              scheduled: replayed
//	                                                 gone: purged, or dropped by a bound
//
// A scheduled or leased message is also gone after Cancel, and scheduled with another due time
// after Reschedule. A message with Replace takes the place of a scheduled, leased or dead one.
// While the queue is paused no message becomes firing.
//
// These words have one meaning throughout the package:
//
//   - due: its due time has passed on the store's clock.
//   - in flight: it is leased or firing.
//   - to claim: to take a lease. To begin: to become firing.
//   - delivered: its handler was called, or Take has returned it.
//   - running: a handler has been called for it and has not returned. A message that is firing may
//     still wait for a handler, for a moment.
//   - settled: it was acknowledged, failed, buried, released or expired. The delivery is over.
//   - crash: the lease of a firing message has ended before it was settled.
//   - prefetched: it is leased by this process, and has not begun.
//
// # Guarantees
//
//   - Nothing acknowledged is lost. If Enqueue returns no error, the message is delivered until it
//     is acknowledged, cancelled, dead or expired. How safe this is depends on the store: boltstore
//     fsyncs, redisstore is as safe as the append-only file and the replication of its server,
//     memstore forgets everything with the process.
//   - Never early. No handler is called before the store's clock shows the due time. There is no
//     bound on how late a message is if consumers or the store cannot keep up.
//   - At least once. A delivery is repeated after a crash, after a pause that is longer than the
//     lease, and after a lost reply.
//   - Fenced. [Delivery].Token rises with each delivery of a message. The store refuses older
//     tokens with [ErrLeaseLost].
//   - Cancel and Reschedule are exact. No handler is called after Cancelled, even if the reply to
//     the first copy of the call was lost.
//   - One message for each id, while it is queued or dead.
//
// # How it works
//
// A queue has a fixed number of partitions. The id of a message decides its partition. Each
// consumer owns some partitions; all consumers compute the same assignment from the list of those
// that have sent a heartbeat lately. A consumer claims messages shortly before they are due, with a
// lease, into a timing wheel of its own, and tells the store when a message begins. The store
// compares the token and the clock. Ownership only keeps consumers from contending: a claim is
// atomic, so two owners of a partition do no harm.
//
// The consumer extends a lease while the handler runs. If that fails, it cancels the handler's
// context before the lease ends and another consumer may get the message.
//
// Calls that many goroutines make at the same time share a round trip or an fsync, up to
// [driver.MaxBatch] of them. A single caller does not wait for others.
//
// In the repository docs/durable.md has the guarantees in full and says what a failure can cost
// with each store, docs/durable-operations.md says how to operate a queue, and
// docs/internals/durable-design.md how it is built.
package durable
