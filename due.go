package timingwheel

import "github.com/timingwheel-go/timingwheel/internal/pool"

// due is the room behind the wheel: a queue of timers that have expired, and the goroutines that
// run them. It is a [pool.Pool], or [dueCalls] for an executor and in Manual mode.
//
// An entry of the queue is a handle. It claims nothing: until the claim, which is a
// compare-and-swap of the timer's word right before the callback, the timer is pending and can be
// stopped or moved. The handle then finds another kind or generation, or a later deadline.
//
//	D1  A Placed timer that is in no bucket has an entry in the queue, in a batch that has been
//	    taken from the queue, or in owner.expired.
type due interface {
	Put(timers []Timer, more bool) // appends timers; more: a shard has more; Wake follows, except in More
	Wake()                         // runs or hands over what is queued, on the calling goroutine or on others
	Close()                        // discards what has not begun
	Idle() <-chan struct{}
	Stats() pool.Stats
	Waiting(n int) []Timer // timers that were handed over, and up to n at the head of the queue
}
