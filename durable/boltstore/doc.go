// Package boltstore keeps durable queues in one file, through go.etcd.io/bbolt. It is for a process that needs delayed messages to
// survive a crash, and no server.
//
// # One process
//
// The file is locked by the process that has it open, so what is true of a running process only lives in memory: leases, tokens in use,
// what is firing, members. The file holds what must survive: messages with their attempts and crashes, dead letters, and
// counters. After a crash or a restart there is no lease to wait for: every message that was claimed is scheduled
// again as soon as the queue is open, at the due time it had.
//
// Other processes use the file through the process that has it open, see Options.Socket and [Connect].
//
// # What a call that has returned promises
//
// Put, and each transition that changes what must survive, returns after an fsync. Calls that arrive while a commit is under way share the
// next one. Each of them takes place as a whole or not at all, and readers see no change before it is safe.
//
// Claim, Extend, and Release of what has not begun write nothing. Begin is written behind: it is noted in the file with the next commit,
// which starts at once if none is under way, and does not wait for it. When the queue is opened again after a crash or [Store.Close], each
// message that was noted and had not ended counts one crash more, and is dead at the next claim if it has had Claim.MaxCrashes of them. One
// that had begun within the last commit or two, some milliseconds, may not count; one whose end was not safe yet is delivered again.
//
// # The clock
//
// The clock is the wall clock of the process, Options.Now, in whole milliseconds. Due times are instants on it, so nothing is begun before the clock
// shows its due time, whatever the clock did in between. A step forwards makes all due that lies in between, and ends the
// leases that would have ended in between: what was firing may run twice. A step backwards delays what was enqueued before by
// as much, and leases last longer by as much; what had been claimed and not begun is refused as early until its time comes again.
//
// # Size
//
// The file grows to what the largest number of messages took, and never shrinks: what is free is used again. Each commit writes the list of free
// pages, 8 bytes for each, so after a peak commits write more: 2.8 MB where 1.4 GB are free. To make the file small again let the queues run
// empty and begin with a new file, or copy it with [Compact] while it is closed. Where an int has 32 bits a file ends at 2 GiB, or earlier
// where there is no room for its map.
//
// # Damaged files
//
// [Open] compares the size of the file with its meta pages and then reads the pages, see
// Options.SkipCheck. A file that is cut off, or whose tree of pages is damaged, is [ErrCorrupt], and is
// neither open nor locked afterwards. The pages have no checksums: a value that was changed, and nothing
// else, is found when the record is read, as ErrCorrupt of that call, or not at all. An empty file is a
// new one.
//
// A store whose file can no longer be written or read, because the disk is gone, another program has
// changed the file, or a commit has not ended within a minute, has failed: all calls return
// [driver.ErrBroken] at once. Close the store and open the file again, in a new process if it stays locked.
package boltstore
