package pool

// worker is the state of a goroutine of the pool, guarded by mu.
//
//	state     mu        transition                           to
//	starting  not held  Wake, stall, runSpare, runExtra      serving
//	serving   held      run                                  running
//	                    endAndUnlock                         ended
//	running   not held  run, when Host.Run returns           serving
//	                    endAndUnlock, after Goexit or panic  ended
//
// A serving worker releases mu while it calls Host.More. A running worker is active from run until
// its batch ends, its spare begins, or active is cleared, after work was queued or by R5. It is not
// active at all during the first batch of an extra goroutine, and if it got no spare because the
// pool is full.
type worker[E any] struct {
	pool   *Pool[E]
	items  []E  // the batch that it runs next, or runs
	spare  bool // its spare has not begun
	seen   bool // its batch was there at the last stall
	shared bool // other workers have the same items
	extra  bool // it is an extra goroutine of R5 that has not run a batch
}

// newWorker returns a worker, which serves. mu is held.
func (p *Pool[E]) newWorker() *worker[E] {
	w := p.free
	if p.free = nil; w == nil {
		w = &worker[E]{pool: p}
	}
	return w
}

// serveAndUnlock runs batches while there is work and workers are needed. mu is held before.
func (w *worker[E]) serveAndUnlock() {
	defer w.endAndUnlock()
	for w.ready() {
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
	if w.extra = false; !w.spare { // else its spare will look at it
		p.free = w
	}
	p.setTimer() // there may be room now
	p.mu.Unlock()
}

// ready reports whether there is a batch for the worker. Otherwise the worker ends. mu is held, and
// released in between.
func (w *worker[E]) ready() bool {
	p := w.pool
	if len(w.items) > 0 {
		return true
	}
	for asked := false; !p.closed && p.room() > 0; asked = true {
		switch n := p.queue.Len(); {
		case n > 0 && (n > few || !p.more || p.asking || asked):
			return w.extra || len(p.active) < p.config.Active
		case p.asking || asked && !p.more:
			return false
		}
		p.more, p.asking = false, true
		p.setTimer()
		p.mu.Unlock()
		p.host.More()
		p.mu.Lock()
		if p.asking = false; p.queue.Len() > 0 || p.more {
			clear(p.active)
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
	p.mu.Unlock()
	if start {
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
	if n == 1 && p.config.Limit == 0 && !w.extra {
		n = p.size
	}
	if len(w.items) == 0 {
		w.items, w.seen = p.queue.Pop(w.items, n), false
	}
	if w.extra {
		return false
	}
	p.stalls.begun++
	if len(w.items) > p.config.PerCall {
		p.batched[w] = true
	}
	start = p.hasWork() && !w.spare
	if start && p.room() == 0 {
		return false
	}
	p.active[w] = true
	w.spare = w.spare || start
	return start
}

// endBatch is called when the batch has ended. mu is held.
func (w *worker[E]) endBatch() {
	p := w.pool
	if w.spare {
		p.size = min(2*p.size, batchMax)
	}
	if w.extra {
		p.stalls.begun++
	}
	delete(p.active, w)
	delete(p.batched, w)
	if w.shared {
		w.items = nil
	}
	clear(w.items)
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
