package pool

import "time"

// worker is the state of a goroutine of the pool, guarded by mu.
//
//	state     mu        transition                           to
//	starting  not held  Wake, stall, runSpare                serving
//	serving   held      run                                  running
//	                    endAndUnlock                         ended
//	running   not held  run, when Host.Run returns           serving
//	                    endAndUnlock, after Goexit or panic  ended
//
// A serving worker releases mu while it calls Host.More. A running worker is active from take until
// its batch ends, its spare begins, or Wake, ready, stall or Close calls deactivateAll. A worker
// that is extra, or has no spare because the pool is full, is not active.
type worker[E any] struct {
	pool   *Pool[E]
	items  []E    // the batch that it runs next, or runs
	spare  bool   // its spare has not begun
	seen   bool   // its batch was running at the last stall
	shared bool   // other workers have the same items
	extra  bool   // it runs one call without being active: see R4
	epoch  uint64 // the worker is active if it equals pool.epoch
	one    [1]E   // initial array of items
}

// newWorker returns a worker, which serves. mu is held.
func (p *Pool[E]) newWorker() *worker[E] {
	w := p.free
	if p.free = nil; w == nil {
		w = &worker[E]{pool: p}
		w.items = w.one[:0]
	}
	return w
}

// deactivateAll stops counting the running workers as active. mu is held.
func (p *Pool[E]) deactivateAll() {
	p.epoch, p.active = p.epoch+1, 0
}

// deactivate stops counting the worker as active, and reports whether it was. mu is held.
func (w *worker[E]) deactivate() bool {
	if w.epoch != w.pool.epoch {
		return false
	}
	w.epoch = 0
	w.pool.active--
	return true
}

// serveAndUnlock runs batches until ready returns false. mu is held before.
func (w *worker[E]) serveAndUnlock() {
	defer w.endAndUnlock()
	for returned := false; w.ready(returned); returned = true {
		w.run()
	}
}

// endAndUnlock ends a worker. mu is held before, unless a callback has called runtime.Goexit, or
// panics and is about to crash the program. Then another worker continues.
func (w *worker[E]) endAndUnlock() {
	p := w.pool
	if len(w.items) > 0 {
		p.mu.Lock()
		w.recall()
		if w.endBatch(); p.hasWork() {
			go p.Wake()
		}
	}
	if !w.spare { // else its spare will look at it
		p.free = w
	}
	p.setTimer() // there may be room now
	p.mu.Unlock()
}

// ready reports whether the worker has to run a batch; if not, it ends. returned means that it has
// run one before. mu is held before and after, and released during Host.More.
func (w *worker[E]) ready(returned bool) bool {
	p := w.pool
	if len(w.items) > 0 {
		return true
	}
	for asked := false; !p.closed && p.room() > 0; asked = true {
		switch n := p.queue.Len(); {
		case n > 0 && (n > few || !p.more || p.asking || asked):
			w.extra = returned && p.size == 1 && p.enough()
			return w.extra || !p.enough()
		case p.asking || asked && !p.more:
			return false
		}
		p.more, p.asking = false, true
		p.setTimer()
		p.mu.Unlock()
		p.host.More()
		p.mu.Lock()
		if p.asking = false; p.queue.Len() > 0 || p.more {
			p.deactivateAll()
		}
	}
	return false
}

// run takes a batch from the queue and runs it. mu is held before and after, except if a callback
// exits the goroutine.
func (w *worker[E]) run() {
	p := w.pool
	start := w.take()
	p.setTimer()
	timed := p.stalls.timedSpares
	p.mu.Unlock()
	switch {
	case start && timed:
		time.AfterFunc(0, func() { p.runSpare(w) })
	case start:
		go p.runSpare(w)
	}
	p.host.Run(w.items)
	p.mu.Lock()
	w.endBatch()
}

// take takes a batch, and reports whether the worker has to start a spare. mu is held.
func (w *worker[E]) take() (start bool) {
	p := w.pool
	p.running++
	n := p.config.PerCall
	if n == 1 && p.config.Limit == 0 {
		n = p.size
	}
	if len(w.items) == 0 {
		w.items, w.seen = p.queue.Pop(w.items, n), false
		p.stalls.taken += (len(w.items) + p.config.PerCall - 1) / p.config.PerCall
	}
	if len(w.items) > p.config.PerCall {
		p.batched[w] = true
	}
	start = p.hasWork() && !w.spare
	if w.extra || start && p.room() == 0 {
		return false
	}
	w.epoch = p.epoch
	p.active++
	w.spare = w.spare || start
	return start
}

// endBatch is called when the batch has ended. mu is held.
func (w *worker[E]) endBatch() {
	p := w.pool
	if w.deactivate() && w.spare {
		p.size = min(2*p.size, batchMax)
		p.stalls.timedSpares = p.stalls.timedSpares && p.size < batchMax
	}
	delete(p.batched, w)
	if w.shared {
		w.items = w.one[:0]
	}
	clear(w.items)
	clear(w.one[:])
	w.items, w.shared, w.extra = w.items[:0], false, false
	p.running--
	p.idle.Ended(p.running)
}

// recall returns the batch to the queue if it has several callbacks. mu is held.
func (w *worker[E]) recall() {
	if p := w.pool; p.batched[w] {
		p.queue.Return(w.items)
		delete(p.batched, w)
	}
}
