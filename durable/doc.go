// Package durable is a queue of delayed messages that survive a crash. They are delivered at least once and never early, precisely at their due
// times and without polling; they can be cancelled and rescheduled by id until they begin; those that fail again and again become dead
// letters.
//
// A [Store] keeps the messages: package memstore in memory, package boltstore in one file, package redisstore on Redis, be it a single server,
// one behind Sentinel, or a Cluster. [Open] makes a [Queue] in a store or joins one. [Queue.Enqueue] adds messages; [Queue.Consume] calls a handler for
// each that is due, and [Queue.Take] is the same in the style of a blocking queue.
//
// # How it works
//
// A queue has a fixed number of partitions, and an id belongs to one of them. A consumer owns some of the partitions, which all consumers
// agree on by rendezvous hashing over those that give signs of life. It claims what is due soon, with a lease, into a timing wheel of its own, so
// it fires each message when it is due, as exactly as timers go. Just before that it tells the store that the message begins; the store checks the
// lease's token and its clock. A claim is atomic, whoever owns the partition: ownership only keeps consumers from contending.
//
// A lease is extended while the handler runs. Where that fails, the handler's context is cancelled before the lease ends and somebody else may have the
// message. Tokens rise with each claim, and the store refuses whoever comes with an old one.
//
// What many goroutines ask for at the same time goes to the store together: a round trip, or an fsync, is shared by up to [driver.MaxBatch] of them.
//
// docs/durable.md in the repository says what is guaranteed, what a failure can cost with each store, and how to operate a queue.
package durable
