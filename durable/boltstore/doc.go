// Package boltstore keeps durable queues in one file, through go.etcd.io/bbolt. It is for a process
// that needs delayed messages to survive a crash and has no server.
//
// # One process
//
// The process that has the file open locks it. State that matters only while the process runs is
// kept in memory: leases, tokens in use, deliveries under way, and members. The file holds the
// state that must survive: messages with their attempts and crashes, dead letters, and counters. No
// lease survives a crash or a restart: as soon as the queue is open, every message that was claimed
// is scheduled again at its earlier due time.
//
// Other processes use the file through the process that has it open, see Options.Socket and
// [Connect].
//
// # Durability of a call that has returned
//
// Put returns after an fsync, and so does each transition that changes the file. Calls that arrive
// during a commit share the next one. Each call takes place as a whole or not at all, and readers
// see a change only after it is synced.
//
// Claim and Extend write nothing, and neither does a Release of a message that has not begun. Begin
// is written behind: the next commit notes it in the file. That commit starts at once if none is
// under way, and Begin does not wait for it. When the queue is opened again after a crash or
// [Store.Close], each message with a note counts one crash more. The next claim makes it a dead
// letter if it has had Claim.MaxCrashes of them. A crash may not count if the message began within
// the last commit or two, which is some milliseconds. A message whose end was not synced yet is
// delivered again.
//
// # The clock
//
// The clock is the wall clock of the process, Options.Now, in whole milliseconds. Due times are
// instants on this clock, so a message never begins before the clock shows its due time, even if
// the clock was set meanwhile. A step forwards makes every message due whose due time was skipped,
// and ends every lease whose end was skipped: a message that was firing may run twice. A step
// backwards delays messages that were enqueued before it, and prolongs leases, both by the size of
// the step. Begin refuses a message as early if the message was claimed before the step and its due
// time is in the future again.
//
// # Size
//
// The file grows to the size that the largest number of messages took, and never shrinks. Free
// pages are used again. Each commit writes the list of free pages, 8 bytes for each, so commits
// write more after a peak: 2.8 MB if 1.4 GB are free. To make the file small again, let the queues
// run empty and start a new file, or copy the closed file with [Compact]. If an int has 32 bits, a
// file is at most 2 GiB long, and shorter if the address space has no room for its map.
//
// # Damaged files
//
// [Open] compares the size of the file with its meta pages and then reads the pages, see
// Options.SkipCheck. A file that is cut off, or whose tree of pages is damaged, is [ErrCorrupt],
// and is neither open nor locked afterwards. The pages have no checksums. If damage changed only a
// value, the call that reads the record returns ErrCorrupt, or the damage is not detected at all.
// An empty file counts as a new one.
//
// A store has failed if its file can no longer be written or read. Examples are a disk that is
// gone, a file that another program has changed, and a commit that has not ended within a minute.
// All calls then return [driver.ErrBroken] at once. Close the store and open the file again, in a
// new process if it stays locked.
package boltstore
