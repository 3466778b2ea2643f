// Package pebblestore keeps durable queues in a directory, through github.com/cockroachdb/pebble.
// The package is for a process that needs delayed messages to survive a crash but has no server. A
// program opens the directory with [Open] and passes the [Store] to durable.Open.
//
// # One process
//
// The process that has the directory open locks it, and only that process consumes. With
// Options.Socket it serves others, which enqueue and manage messages with [Connect]. [OpenSnapshot]
// reads a copy, and [Store.Backup] makes one. The directory holds messages with their attempts and
// crashes, dead letters, and counters. Leases, tokens in use and members are kept in memory only.
// When the queue is reopened, claimed messages are scheduled at their original due times.
//
// # Durability of a call that has returned
//
// Put, and each transition except Claim, Begin, Release and Extend, returns after its changes are
// synced to the disk. Calls that arrive together share a sync. Each call takes effect as a whole or
// not at all. A call that waits also waits for the syncs of earlier calls, on which its status may
// depend. Reads and claims do not wait: they may see a change that a power failure can still undo.
//
// Extend writes nothing, and neither does a Claim that begins no message and finds no crash. If no
// message has been claimed for some seconds, a Claim may wait for a sync that reserves tokens.
// Begin waits for a sync only if a message has crashed before. When the queue is reopened after a
// crash or [Store.Close], each message that had begun counts one more crash and is due again: see
// [driver.Backend]. A first crash may go uncounted if the message began milliseconds before it.
//
// # The clock
//
// The clock is the wall clock of the process, in whole milliseconds. A message never begins before
// the clock shows its due time, even if the clock has been set. A forward step makes due every
// message whose due time it skips, and ends every lease whose end it skips, so a message that was
// firing may run twice. A backward step delays messages enqueued before the step, and prolongs
// leases, both by the size of the step.
//
// # Faults
//
// If a write or a sync fails, the store closes the directory and opens it again in the background
// until that succeeds. Meanwhile all calls return [driver.ErrUnavailable], and the calls that were
// in progress may have taken effect. The process keeps its leases. Enqueue returns
// [driver.ErrFull] while little space is free, before the disk is full, so that queued messages can
// still be delivered and acknowledged.
package pebblestore
