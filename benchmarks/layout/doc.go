// Package layout compares three forms of the list of a bucket in isolation: a doubly linked list,
// an unrolled list whose entries stay when a timer is stopped, and an unrolled list of positions
// that stopping clears. The wheel uses the last one. There is no lock, no clock and no queue of
// buckets. Slots, payloads and handles are the same for all forms.
//
// The benchmarks with ten million timers need up to 3 GB.
package layout
