// Package boltstore stores durable queues in one file, through go.etcd.io/bbolt. The package is for
// a process that needs delayed messages to survive a crash and has no server. A program opens the
// file with [Open] and passes the [Store] to durable.Open.
//
// # One process
//
// The process that has the file open locks it. State that matters only while the process runs is in
// memory only: leases, tokens in use, deliveries under way, and members. The file holds the state
// that must survive: messages with their attempts and crashes, dead letters, and counters. No lease
// survives a crash or a restart: when the queue is opened again, every message that was claimed is
// scheduled at its original due time.
//
// Other processes use the file through the process that has it open, see [Options].Socket and
// [Connect].
//
// # Durability of a call that has returned
//
// Put returns after an fsync, and so does each transition that changes the file. Calls that arrive
// during a commit share the next one. Each call takes effect as a whole or not at all, and readers
// see a change only after it is synced.
//
// Claim and Extend write nothing, and neither does a Release of a message that has not begun. Begin
// is written asynchronously: the next commit records the message in the file as begun. If no commit
// is under way, the commit starts immediately, but Begin does not wait for it. When the queue is
// opened again after a crash or [Store.Close], each message recorded as begun counts one more
// crash. The next claim makes a message with Claim.MaxCrashes crashes a dead letter. A crash may go
// uncounted if the message began within the last one or two commits, which is some milliseconds. A
// message whose end was not yet synced is delivered again.
//
// # The clock
//
// The clock is the wall clock of the process, [Options].Now, in whole milliseconds. Due times are
// instants on this clock, so a message never begins before the clock shows its due time, even if
// the clock has been set since. A step forwards makes every message due whose due time it skips,
// and ends every lease whose end it skips: a message that was firing may run twice. A step
// backwards delays messages enqueued before the step, and prolongs leases, both by the size of the
// step. Begin reports a message as early if the message was claimed before the step and its due
// time is in the future again.
//
// # Size
//
// The file grows to the size that the largest number of messages needed, and never shrinks. Free
// pages are reused. Each commit writes the list of free pages, 8 bytes for each page, so commits
// write more after a peak: 2.8 MB if 1.4 GB are free. To get a small file again, let the queues run
// empty and start a new file, or copy the closed file with [Compact]. If an int has 32 bits, a file
// is at most 2 GiB long, and shorter if the address space has no room for its map.
//
// # Damaged files
//
// [Open] compares the size of the file with its meta pages and then reads the pages, see
// [Options].SkipCheck. For a truncated file, or one whose tree of pages is damaged, Open returns
// [ErrCorrupt] and leaves the file neither open nor locked. The pages have no checksums. If damage
// has changed only a value, the call that reads the record returns ErrCorrupt, or nothing detects
// the damage. An empty file counts as a new one.
//
// A store has failed if its file can no longer be written or read. Examples are a failed disk, a
// file that another program has changed, and a commit that has not ended within a minute. All calls
// then return [driver.ErrBroken] immediately. Close the store and open the file again, in a new
// process if it stays locked.
package boltstore
