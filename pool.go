package timingwheel

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

const (
	batchSize = 32 // callbacks of one batch

	// burstMin workers are started together when a spare comes late. Each further late spare starts
	// burstGrowth times as many, up to burstMax.
	burstMin    = 64
	burstGrowth = 8
	burstMax    = 4096
)

// workerPool is the workers of a shard and what they are doing. It is pure data; the owner uses it.
//
// Whenever a worker runs a callback although more is due, a spare of its own is about to begin,
// unless its spare has begun before and goes on in its place, or enough other workers are on their
// way. The worker starts the spare last before the callback, so the scheduler runs the spare as
// soon as the callback blocks. The spare goes on with the worker's batch, and has a spare of its
// own. So no callback waits for another one that blocks, and only callbacks that do block cost a
// goroutine.
type workerPool struct {
	starting    int  // workers that were started and have not begun
	begun       uint // workers that have begun so far
	serving     int  // workers of the default executor that have begun
	stuck       int  // of serving: in a callback while others, mostly spares, go on in their place
	running     int  // callbacks, or batches of payloads, that have started and not returned
	submitting  int  // calls of the executor under way
	queuedCalls int  // calls handed to the executor that have not begun
	driving     bool // a driver with an executor is at work; it sets the alarm at its end

	size         int // timers that the next batch takes: 1 if callbacks have blocked
	burst        int // workers that the next late spare starts
	sinceCascade int // claims since the last quantum of the backlog

	launches uint64 // claims under the lock of one callback or one batch of payloads, to be run

	filled     uint64        // batches so far
	batches    []*batch      // with entries that may not be claimed yet
	spareBatch *batch        // for the next worker
	idle       chan struct{} // closed once nothing runs; made by Shutdown
}

func (p *workerPool) init(size int) { p.size, p.burst = size, burstMin }

// active returns the number of workers that have begun and are not stuck.
func (p *workerPool) active() int { return p.serving - p.stuck }

// oversubscribed reports whether there are more active workers than processors.
func (p *workerPool) oversubscribed(procs int) bool { return p.active() > procs }

// busy reports whether something runs that Shutdown waits for.
func (p *workerPool) busy() bool { return p.running > 0 || p.submitting > 0 }

// hasUnclaimed reports whether a worker has timers that it may not have claimed yet.
func (p *workerPool) hasUnclaimed() bool {
	for _, b := range p.batches {
		if b.unclaimed() > 0 {
			return true
		}
	}
	return false
}

// ran notes that callbacks have run. begun is c.begun from before them. Batches grow while
// callbacks are so quick that no worker begins meanwhile.
func (p *workerPool) ran(begun uint) {
	if p.begun == begun {
		p.size = min(2*p.size, batchSize)
	}
}

// list notes a batch that is about to be claimed.
func (p *workerPool) list(b *batch) {
	p.filled++
	b.id, b.listed, b.returned, b.counted = p.filled, true, false, 0
	p.batches = append(p.batches, b)
}

// unlist takes out a batch whose entries have all been tried.
func (p *workerPool) unlist(b *batch) {
	if k := slices.Index(p.batches, b); k >= 0 {
		p.batches = slices.Delete(p.batches, k, k+1)
	}
	b.listed = false
}

// newBatch returns an empty batch.
func (p *workerPool) newBatch() *batch {
	b := p.spareBatch
	if p.spareBatch = nil; b == nil {
		b = &batch{entries: make([]entry, 0, batchSize)}
	}
	b.users = 1
	return b
}

// drop notes that a worker does not read b any more.
func (p *workerPool) drop(b *batch) {
	if b.users--; b.users == 0 {
		clear(b.entries)
		b.entries = b.entries[:0]
		p.spareBatch = b
	}
}

// idleChan returns a channel that is closed once nothing is running, or nil if nothing is running
// now.
func (p *workerPool) idleChan() <-chan struct{} {
	if !p.busy() {
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	return p.idle
}

// closeIdle closes the channel of Shutdown if nothing is running any more.
func (p *workerPool) closeIdle() {
	if p.idle != nil && !p.busy() {
		close(p.idle)
		p.idle = nil
	}
}

// batch is the due timers that a worker claims one after the other, each right before its callback.
// Until then they are pending. If the callback blocks, the worker's spare goes on with the same
// batch.
//
// The entries are not written while a worker reads them without a lock, nor is id, which changes
// when the batch is filled again. All other fields belong to the owner.
type batch struct {
	entries  []entry
	id       uint64 // of this filling, never 0: a Spent word says by which batch its timer was claimed
	counted  uint32 // bit k: the claim of entry k is counted
	users    int    // workers that may read entries
	listed   bool   // it is in workerPool.batches
	returned bool   // a callback has called Goexit, and the unclaimed entries are due again
}

// unclaimed returns how many timers of the batch are pending and stand nowhere else. One that was
// postponed counts until a worker has tried to claim it.
func (b *batch) unclaimed() (n int) {
	if b.returned {
		return 0
	}
	for k := range b.entries {
		if !stale(b.entries[k]) {
			n++
		}
	}
	return n
}

// open reports whether a timer of the batch may still be claimed with it. A timer that was moved to
// the inbox, or a plan during a run, may get the same word again that its entry has.
func (b *batch) open() bool {
	for k := range b.entries {
		if w, ok := b.entries[k].load(); ok {
			switch w.Kind() {
			case arena.Placed, arena.Staged, arena.Running:
				return true
			}
		}
	}
	return false
}

// revoke makes every further claim of the batch fail.
func (b *batch) revoke() {
	for k := range b.entries {
		e := &b.entries[k]
		for {
			if w, placed := e.placed(); !placed || e.page.Swap(e.index, w, w.With(arena.Dead)) {
				break
			}
		}
	}
}
