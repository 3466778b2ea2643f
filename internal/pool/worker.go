package pool

import (
	"slices"
	"sync/atomic"
)

// worker is the state of a goroutine of the pool.
//
//	state     mu        transition                                        to
//	starting  not held  Wake, stall, runSpare, runExtra                   serving
//	serving   held      run                                               running
//	                    serve, if there is no work or enough workers      ended
//	running   not held  run, when Host.Run returns                        serving
//	                    end, after Goexit or a panic                      ended
//
// A serving worker releases mu while it calls Host.More. A running worker is active from run until
// its batch ends, a new epoch begins, or its spare begins. It is not active at all during the first
// batch of an extra goroutine, and if it got no spare because the pool is full. The fields are
// guarded by mu.
type worker[E any] struct {
	pool    *Pool[E]
	batch   *batch[E] // what it runs next, or runs; nil: none
	own     *batch[E] // for reuse, unless another worker has it
	epoch   uint64    // the epoch in which it is active; 0: none
	spare   bool      // its spare has not begun
	extra   bool      // it is an extra goroutine of R5 that has not run a batch
	running bool

	back atomic.Bool // it has run its batch and waits for mu
}

// batch is a sequence of items that a worker has taken from the queue.
type batch[E any] struct {
	items []E
	seen  bool // it was there at the last stall
	users int  // workers that have it
	first [1]E // memory of items
}

// serve runs batches until there is no work or there are enough workers. It is called with mu held
// and returns without it.
func (w *worker[E]) serve() {
	defer w.end()
	for w.ready() {
		w.run()
	}
}

// end ends a worker. It releases mu. If a callback has called runtime.Goexit, or panics and is
// about to crash the program, mu is not held before, and another worker continues.
func (w *worker[E]) end() {
	p := w.pool
	if w.running {
		p.mu.Lock()
		if slices.Contains(p.batches, w.batch) {
			p.queue.Return(w.batch.items)
		}
		if w.endBatch(); p.hasWork() {
			go p.Wake()
		}
	}
	if w.batch != nil { // the pool was closed
		w.batch.users--
	}
	if w.batch, w.extra = nil, false; !w.spare { // else its spare will look at it
		p.freeWorker = w
	}
	p.setTimer() // there may be room now
	p.mu.Unlock()
}

// ready reports whether the worker has a batch to run. Otherwise the worker ends. mu is held, and
// released in between.
func (w *worker[E]) ready() bool {
	p := w.pool
	for asked := false; !p.closed; {
		switch n := p.queue.Len(); {
		case w.batch != nil:
			return true
		case p.room() <= 0:
			return false
		case n == 0 && p.asking:
			return false
		case n == 0 || n <= few && p.more && !p.asking && !asked:
			p.more, p.asking = false, true
			p.setTimer()
			p.mu.Unlock()
			p.host.More()
			p.mu.Lock()
			p.asking, asked = false, true
			if p.queue.Len() == 0 && !p.more {
				return false
			}
			p.beginEpoch()
		case p.active >= p.config.Active && !w.extra:
			return false
		default:
			w.take()
		}
	}
	return false
}

// take takes a batch from the queue. mu is held.
func (w *worker[E]) take() {
	p := w.pool
	n := p.config.PerCall
	if p.batched() && !w.extra {
		n = p.size
	}
	b := w.own
	if b == nil || b.users > 0 {
		b = new(batch[E])
		b.items = b.first[:0]
		w.own = b
	}
	b.items = p.queue.Pop(b.items, n)
	b.users, b.seen = 1, false
	if w.batch = b; p.batched() && len(b.items) > 1 {
		p.batches = append(p.batches, b)
	}
}

// batched reports whether a batch may have several callbacks.
func (p *Pool[E]) batched() bool { return p.config.PerCall == 1 && p.config.Limit == 0 }

// run runs the batch. mu is held before and after, except if a callback exits the goroutine.
func (w *worker[E]) run() {
	p := w.pool
	start := w.activate()
	p.stats.Running++
	p.setTimer()
	w.running = true
	p.mu.Unlock()
	if start {
		go p.runSpare(w)
	}
	p.host.Run(w.batch.items)
	w.back.Store(true)
	p.mu.Lock()
	w.back.Store(false)
	w.endBatch()
}

// activate makes the worker active, unless it is extra, and reports whether it has to start a
// spare. mu is held.
func (w *worker[E]) activate() (start bool) {
	p := w.pool
	if w.extra {
		return false
	}
	p.stalls.begun++
	start = p.hasWork() && !w.spare
	if start && p.room() <= 1 { // for the worker itself
		return false
	}
	p.active++
	w.epoch = p.epoch
	w.spare = w.spare || start
	return start
}

// endBatch counts the end of the batch. mu is held.
func (w *worker[E]) endBatch() {
	p := w.pool
	if w.deactivate(); w.spare {
		p.size = min(2*p.size, batchMax)
	}
	if w.extra {
		p.stalls.begun++
	}
	b := w.batch
	if i := slices.Index(p.batches, b); i >= 0 {
		p.batches = slices.Delete(p.batches, i, i+1)
	}
	if b.users--; b.users == 0 {
		clear(b.items)
		b.items = b.items[:0]
	}
	w.batch, w.extra, w.running = nil, false, false
	p.stats.Running--
	p.idle.Ended(p.stats.Running)
}

// deactivate makes the worker no longer active, and reports whether it was. mu is held.
func (w *worker[E]) deactivate() bool {
	was := w.epoch == w.pool.epoch
	if was {
		w.pool.active--
	}
	w.epoch = 0
	return was
}
