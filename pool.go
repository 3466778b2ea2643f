package timingwheel

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

const (
	batchSize = 32 // largest number of callbacks of a batch

	// A spare that begins late starts burstMin workers. Each further late spare starts burstGrowth
	// times as many, up to burstMax.
	burstMin    = 64
	burstGrowth = 8
	burstMax    = 4096
)

// workerPool counts the workers of a shard and holds their batches. It is a plain data structure
// that belongs to the owner.
//
// A worker that runs a callback while more timers are due has a spare: a worker that was started
// for it. It has none if its earlier spare already continues in its place, or if enough other
// workers are starting. The worker starts the spare right before the callback, so the scheduler
// runs the spare as soon as the callback blocks. The spare continues the worker's batch and has a
// spare of its own. So no callback waits for another one that blocks, and only a callback that
// blocks costs a goroutine.
type workerPool struct {
	starting    int  // workers that were started and have not begun
	begun       uint // workers that have begun so far
	serving     int  // workers of the default executor that have begun
	stuck       int  // of serving: in a callback, while other workers continue in their place
	running     int  // callbacks, or batches of payloads, that have started and not returned
	submitting  int  // calls of Executor.Go that have not returned
	queuedCalls int  // calls handed to the executor that have not begun
	driving     bool // a driver with an executor is running; it sets the alarm when it ends

	size         int // timers that the next batch takes: 1 if callbacks have blocked
	burst        int // workers that the next late spare starts
	sinceCascade int // claims since the last cascadeQuantum

	launches uint64 // claims under the lock, each of one callback or one batch of payloads

	filled     uint64        // batches so far
	batches    []*batch      // the listed batches
	spareBatch *batch        // for the next worker
	idle       chan struct{} // closed once nothing runs; made by Shutdown
}

func (p *workerPool) init() { p.size, p.burst = 1, burstMin }

// active returns the number of workers that have begun and are not stuck.
func (p *workerPool) active() int { return p.serving - p.stuck }

// oversubscribed reports whether there are more active workers than processors.
func (p *workerPool) oversubscribed(procs int) bool { return p.active() > procs }

// busy reports whether a callback or a call of Executor.Go is running.
func (p *workerPool) busy() bool { return p.running > 0 || p.submitting > 0 }

// hasUnclaimed reports whether a batch has timers that may not be claimed yet.
func (p *workerPool) hasUnclaimed() bool {
	for _, b := range p.batches {
		if b.unclaimed() > 0 {
			return true
		}
	}
	return false
}

// ran is called after callbacks have run. begun is the value of p.begun before them. ran doubles
// the size of batches, up to batchSize, if the callbacks were so quick that no worker began
// meanwhile.
func (p *workerPool) ran(begun uint) {
	if p.begun == begun {
		p.size = min(2*p.size, batchSize)
	}
}

// list registers a batch whose entries are about to be claimed.
func (p *workerPool) list(b *batch) {
	p.filled++
	b.id, b.listed, b.returned, b.counted = p.filled, true, false, 0
	p.batches = append(p.batches, b)
}

// unlist removes a batch for whose entries all claims have been tried.
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

// drop is called when a worker stops reading b. The last one frees the batch for reuse.
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

// closeIdle closes the channel of idleChan if nothing is running.
func (p *workerPool) closeIdle() {
	if p.idle != nil && !p.busy() {
		close(p.idle)
		p.idle = nil
	}
}

// batch holds due timers that a worker claims one by one, each right before its callback. Until
// then the timers are pending. If a callback blocks, the worker's spare continues the batch.
//
//	state     entries                                 left by
//	free      none; it is spareBatch, or garbage      list, once it is filled
//	listed    may be unclaimed, or not yet counted    unlist
//	returned  due again; still listed until their     unlist
//	          other claims are counted
//	unlisted  all tried and counted                   drop, by the last user
//
// Workers read entries and id without a lock. The owner writes them before any worker does. All
// other fields belong to the owner.
type batch struct {
	entries  []entry
	id       uint64 // differs for each use, never 0: a Spent word names the batch of its claim
	counted  uint32 // bit k: the claim of entry k is counted
	users    int    // workers that may read entries
	listed   bool   // the batch is in workerPool.batches
	returned bool   // the unclaimed entries are due again, because of a Goexit
}

// unclaimed returns the number of timers that are pending and only in this batch. A postponed timer
// counts until a worker has tried to claim it.
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

// open reports whether a claim of an entry of the batch may still succeed. A timer that was moved
// to the inbox may get the same word again as its entry.
func (b *batch) open() bool {
	for k := range b.entries {
		if w, ok := b.entries[k].load(); ok {
			switch w.Kind() {
			case arena.Placed, arena.Staged:
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
