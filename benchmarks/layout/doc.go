// Package layout measures, apart from everything else, in which form a bucket keeps its timers best: a
// doubly linked list, an unrolled list of entries that a stop leaves behind, or an unrolled list of
// positions that a stop clears, which is what the wheel uses. There is no lock, no clock and no queue
// of buckets; slots, payloads and handles are the same on all sides.
//
// The benchmarks with ten million timers take up to 3 GB.
package layout
