package timingwheel

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// worker is the state of one goroutine that works on a shard: a driver, a worker that a driver or
// another worker has started, a spare, or a call of an executor.
//
//	state     wheelMu   transition                             to
//	starting  not held  run                                    serving
//	                    runSpare, if it is not needed          ended
//	serving   held      unlockToRun                            running
//	                    exit, if no work is left               ended
//	running   not held  takeOverFromParent, made by its spare  stuck
//	                    relock and finish                      serving
//	                    exit, after Goexit or a panic          ended
//	stuck     not held  relock and finish                      serving
//	                    exit, after Goexit or a panic          ended
//
// A running worker becomes stuck when its spare begins and continues in its place. A worker that
// runs callbacks without a spare is stuck from the beginning. pool.starting, pool.serving (which
// includes running and stuck workers), pool.running and pool.stuck count the states.
type worker[T any] struct {
	s      *shardOf[T]
	exec   func([]T) // runs one callback, or one batch of payloads
	values []T       // the buffer for exec

	// Guarded by wheelMu.
	parent        *worker[T] // the worker whose spare w is; nil once w has begun
	spareStarting bool       // its spare has not begun
	running       bool       // a callback, or a batch, is running; counted in pool.running
	stuck         bool       // counted in pool.stuck
	replaced      bool       // its spare began during its callbacks and continues for it
	serving       bool       // counted in pool.serving
	batch         *batch

	// Written by the worker's own goroutine.
	waiting  atomic.Bool // it has run its callbacks and waits for wheelMu
	unlocked bool        // it does not hold wheelMu
	claimed  uint32      // bit k: this worker has claimed entry k of batch
	backward bool        // the batch was another worker's: claim from the last entry to the first

	// Written once, before the spare begins.
	started int64  // ns: a reading of the clock when this spare was started
	taken   uint64 // counters.taken at that time
}

const (
	// lateSpare is the delay from which on a spare was not next in the run queue of its processor.
	lateSpare = time.Millisecond

	// returningMax is the largest number of workers that wait for wheelMu after their callbacks.
	// Above this number a replaced worker ends even if timers are due: each waiting worker holds a
	// stack, and the driver waits for the same lock.
	returningMax = 2048
)

// drive runs a driver. It is called with wheelMu held and returns without it. With the default
// executor the driver becomes a worker after advance. At that time either the alarm is set and will
// start another driver, or the owner is behind. If it is behind, the worker starts a spare before
// it runs a callback, and the spare continues the advance. So a callback that blocks does not delay
// the wheel.
func (s *shardOf[T]) drive() {
	if !s.pooled {
		s.driveExecutor()
		return
	}
	s.advance()
	w := s.newWorker()
	w.begin()
	defer w.exit()
	w.serve()
}

// runWorker runs a worker without a parent.
func (s *shardOf[T]) runWorker() {
	s.wheelMu.Lock()
	s.newWorker().run()
}

// startWorkers starts n workers without a parent. wheelMu is held.
func (s *shardOf[T]) startWorkers(n int) {
	for range n {
		s.owner.pool.starting++
		go s.runWorker()
	}
}

// runSpare runs a spare. The spare ends at once if its parent has run its callbacks and waits for
// wheelMu, and there are enough active workers. Otherwise the spare of each worker that waits for
// the lock would begin and start a spare of its own.
func (w *worker[T]) runSpare() {
	s, p := w.s, w.parent
	s.wheelMu.Lock()
	if p.waiting.Load() && s.owner.pool.oversubscribed(s.procs-1) {
		p.spareStarting = false
		s.owner.pool.starting--
		s.unlockAndDrain()
		return
	}
	w.run()
}

// run runs a worker that another worker or a driver has started. It is called with wheelMu held and
// returns without it.
func (w *worker[T]) run() {
	s := w.s
	pool := &s.owner.pool
	pool.starting--
	pool.begun++
	w.begin()
	defer w.exit()
	w.takeOverFromParent()
	w.serve()
}

// takeOverFromParent continues the batch of the worker whose spare w is. If w begins late and no
// worker has taken a timer meanwhile, it starts a burst of workers. Probably the callback has woken
// another goroutine before it blocked, and that goroutine has taken the spare's place at the front
// of the run queue. The callbacks that follow would do the same to their spares, and each spare
// would wait for its turn in the queue.
func (w *worker[T]) takeOverFromParent() {
	s, p := w.s, w.parent
	if p == nil {
		return
	}
	pool := &s.owner.pool
	w.parent, p.spareStarting = nil, false
	if p.running && !p.stuck {
		p.replaced, p.stuck = true, true
		pool.stuck++
		pool.size = max(1, pool.size/2)
	}
	if b := p.batch; b != nil && b.listed && !b.returned {
		w.takeOver(p)
	}
	if s.owner.counters.taken > w.taken || s.Read()-w.started < int64(lateSpare) {
		pool.burst = burstMin
		return
	}
	s.startWorkers(min(s.owner.batchesDue(), pool.burst) - pool.starting)
	pool.burst = min(pool.burst*burstGrowth, burstMax)
}

// takeOver makes a spare continue the batch of its parent. If all entries are claimed, it only
// counts the claims.
func (w *worker[T]) takeOver(p *worker[T]) {
	pool, b := &w.s.owner.pool, p.batch
	if b.unclaimed() == 0 {
		if !b.open() {
			w.s.owner.countBatch(b)
			pool.unlist(b)
		}
		return
	}
	w.batch, w.backward = b, true
	b.users++
}

// serve claims and runs due timers until none is left. It is called with wheelMu held, and returns
// with it held.
//
// Cascading and placing arrivals have a lower priority: workers handle a quantum of this work when
// nothing is due, and after every 16th claim of the shard, so that it progresses while many
// callbacks are due.
//
// Rejected: a monitor that adds workers when it sees no progress. An idle Go program sleeps at
// least 1 ms in the network poller. With 10,000 callbacks of 1 ms each, this delay would recur many
// times.
func (w *worker[T]) serve() {
	s := w.s
	o := &s.owner
	w.serving = true
	o.pool.serving++
	if w.batch != nil {
		w.runBatch()
	}
	for !s.closed.Load() {
		ready := o.due.ready > 0
		switch {
		case w.replaced && o.pool.oversubscribed(s.procs):
			// Other workers continue in its place. Quick callbacks need no more workers.
			if !ready || o.pool.size > 1 || s.claims.returning.Load() > returningMax {
				return
			}
			w.runExtra()
		case o.backlog() && (!ready || o.pool.sinceCascade >= 16):
			o.pool.sinceCascade = 0
			o.cascadeQuantum()
			s.yield()
			w.advanceIfLate()
		case ready:
			if w.takeBatch() {
				w.runBatch()
			} else {
				w.runOne(never)
			}
		case !w.advanceIfLate():
			return
		}
	}
}

// advanceIfLate calls shard.advanceIfLate. If that made timers due, a replaced worker serves them
// itself, because the workers that replaced it do not know of these timers.
func (w *worker[T]) advanceIfLate() bool {
	if !w.s.advanceIfLate() {
		return false
	}
	w.replaced = false
	return true
}

// takeBatch takes a batch of due timers. It returns false if at most one timer is due, or if
// callbacks are not quick enough to be claimed without the lock.
func (w *worker[T]) takeBatch() bool {
	s := w.s
	o := &s.owner
	if s.perCall > 1 || o.pool.size == 1 || o.due.ready == 1 {
		return false
	}
	b := o.pool.newBatch()
	o.counters.mostDue = max(o.counters.mostDue, o.due.ready)
	b.entries, _ = o.fill(b.entries, o.pool.size, never)
	o.counters.taken += uint64(len(b.entries))
	o.pool.sinceCascade += len(b.entries) + 1
	if len(b.entries) == 0 {
		o.pool.drop(b)
		return false
	}
	o.pool.list(b)
	w.batch, w.backward = b, false
	return true
}

// runOne claims one callback, or one batch of payloads, under the lock and runs it. It returns the
// number of claimed timers. For limit see dueBefore.
func (w *worker[T]) runOne(limit int64) int {
	s := w.s
	o := &s.owner
	begun := o.pool.begun
	var counted *countedFunc
	w.values, counted = s.claimDue(w.values[:0], limit)
	n := len(w.values)
	o.counters.taken += uint64(n)
	o.pool.sinceCascade++
	if n == 0 {
		s.yield()
		return 0
	}
	lasting := false
	if s.perCall == 1 {
		lasting = s.entryBuffer[0].word.Is(arena.Lasting)
	}
	o.pool.launches++
	stuck := w.stuck
	w.unlockToRun(w.serving && !w.stuck && (o.due.ready > 0 || o.backlog()))
	run := !s.closed.Load()
	if !run { // the wheel is being stopped; halt waits for launched
		s.claims.dropped.Add(uint64(n))
		if counted != nil {
			s.engine.funcTimers.calls.callEnded(counted)
		}
		if lasting { // the runtime calls it instead
			time.AfterFunc(0, any(w.values[0]).(func()))
		}
	}
	s.claims.launched.Add(1)
	if run {
		w.call(counted, w.values)
	}
	w.relock()
	clear(w.values)
	w.values = w.values[:0]
	if !stuck { // without a spare, begun says nothing about the callbacks
		o.pool.ran(begun)
	}
	return n
}

// call runs a callback, or a batch of payloads. counted is the callback if its calls are counted,
// or nil.
func (w *worker[T]) call(counted *countedFunc, values []T) {
	if counted != nil {
		defer w.s.engine.funcTimers.calls.callEnded(counted)
	}
	w.exec(values)
}

// runExtra runs one more callback, or one more batch of payloads, although there are enough other
// workers for the due timers. The worker therefore starts no spare and counts as stuck from the
// beginning. If callbacks sleep for a millisecond each, workers that return from them do most of
// the work in this way, and no goroutine has to be started.
func (w *worker[T]) runExtra() {
	w.stuck = true
	w.s.owner.pool.stuck++
	if w.runOne(never) == 0 {
		w.finish()
	}
}

// runBatch claims and runs the entries of the batch one by one.
func (w *worker[T]) runBatch() {
	s := w.s
	o := &s.owner
	begun := o.pool.begun
	b := w.batch
	n := len(b.entries)
	sample := -1
	if o.counters.sample(n) {
		sample = rand.IntN(n)
	}
	w.unlockToRun(true)
	if cap(w.values) == 0 {
		w.values = make([]T, 1)
	}
	one := w.values[:1]
	late := int64(-1)
	for k := range n {
		if w.backward {
			k = n - 1 - k
		}
		e := &b.entries[k]
		now, tick := int64(-1), int64(0)
		if k == sample {
			now = s.Read()
			tick = e.word.Tick()
		}
		v, counted, ok := s.claim(e, b.id) // from here on the callback counts as begun, see halt
		if !ok {
			continue
		}
		w.claimed |= 1 << k
		if now >= 0 {
			late = now - s.ticks.Begin(tick)
		}
		one[0] = v
		w.call(counted, one)
	}
	w.relock()
	if late >= 0 {
		o.counters.lateness.Record(time.Duration(late))
	}
	clear(one)
	w.finishBatch()
	o.pool.ran(begun)
}

// unlockToRun releases wheelMu to run callbacks. more means that other work waits for the lock. In
// this case it starts workers for processors without one, and then a spare for w, unless a spare
// or enough workers are starting. The spare is started last, so that it is next in the run queue of
// the processor.
func (w *worker[T]) unlockToRun(more bool) {
	s := w.s
	pool := &s.owner.pool
	pool.running++
	w.running = true
	w.replaced = w.stuck
	others, spare := 0, (*worker[T])(nil)
	// A worker with a batch needs a spare of its own, because other spares do not serve its batch.
	if more && !w.spareStarting && (w.batch != nil || pool.starting <= s.owner.batchesDue()) {
		others = s.owner.workersToStart()
		spare = s.newWorker()
		spare.parent, spare.taken = w, s.owner.counters.taken
		w.spareStarting = true
		pool.starting += 1 + others
	}
	s.unlock()
	w.unlocked = true
	if spare == nil {
		return
	}
	for range others {
		go s.runWorker()
	}
	spare.started = s.Read()
	go spare.runSpare()
}

// relock locks wheelMu after callbacks have run.
func (w *worker[T]) relock() {
	s := w.s
	w.waiting.Store(true)
	s.claims.returning.Add(1)
	s.wheelMu.Lock()
	s.claims.returning.Add(-1)
	w.waiting.Store(false)
	w.unlocked = false
	w.finish()
}

// finish counts the end of a callback or of a batch.
func (w *worker[T]) finish() {
	if w.stuck {
		w.stuck = false
		w.s.owner.pool.stuck--
	}
	if w.running {
		w.running = false
		w.s.owner.pool.running--
		w.s.owner.pool.closeIdle()
	}
}

// finishBatch counts the claims of the batch and frees the slots that this worker has claimed. A
// batch that was put back early stays listed while other workers continue it, so that their claims
// are counted.
func (w *worker[T]) finishBatch() {
	s, b := w.s, w.batch
	o := &s.owner
	w.batch = nil
	if s.closed.Load() {
		return
	}
	o.countBatch(b)
	for k := range b.entries {
		if w.claimed>>k&1 == 1 {
			i := b.entries[k].index
			o.leaveBucket(i) // the timer was moved and moved back before it was claimed
			o.freed = append(o.freed, i)
		}
	}
	w.claimed = 0
	s.reclaim()
	if b.listed && (b.users == 1 || !b.returned && !b.open()) {
		o.pool.unlist(b)
	}
	o.pool.drop(b)
}

// newWorker returns a new or reused worker. wheelMu is held.
func (s *shardOf[T]) newWorker() *worker[T] {
	w := s.spareWorker
	if s.spareWorker = nil; w == nil {
		w = new(worker[T])
	}
	w.s = s
	return w
}

// begin sets how the worker runs callbacks. wheelMu is held.
func (w *worker[T]) begin() {
	e := w.s.engine
	w.values, w.s.valueBuffer = w.s.valueBuffer, nil
	w.exec = e.guarded
	if e.around.hook != nil {
		w.exec = w.runAround
	}
}

// runAround runs a callback or a batch within Options.Around. A plan does that itself, because it
// knows the user's function.
func (w *worker[T]) runAround(items []T) {
	e := w.s.engine
	if f := e.job.callee(items); f != 0 {
		e.runAround(f, items)
	} else {
		e.guarded(items)
	}
}

// exit ends the worker and unlocks wheelMu. It restores a consistent state also if a callback has
// called runtime.Goexit, or panics and is about to crash the program.
func (w *worker[T]) exit() {
	s := w.s
	pool := &s.owner.pool
	if w.unlocked {
		s.wheelMu.Lock()
		w.values = nil // the callback may have kept a reference
		w.finish()
		if b := w.batch; b != nil {
			if b.listed && !b.returned { // otherwise all entries were tried or put back
				w.putBack()
			}
			w.finishBatch()
		}
	}
	if w.serving {
		pool.serving--
		if w.unlocked && !w.spareStarting && s.owner.due.ready > 0 && !s.closed.Load() {
			s.startWorkers(1)
		}
	}
	s.reclaim() // otherwise the slots would keep the pages of an idle wheel
	if cap(w.values) > 0 && s.valueBuffer == nil && !s.closed.Load() {
		s.valueBuffer = w.values
	}
	// Do not reuse a worker whose callback has not returned or to which its spare still refers.
	if !w.unlocked && !w.spareStarting && !s.closed.Load() {
		*w = worker[T]{}
		s.spareWorker = w
	}
	if !w.serving && w.unlocked {
		s.ensureDriver()
	}
	s.unlockAndDrain()
}

// putBack makes the unclaimed entries of the batch due again. Other workers may continue the batch,
// so it stays listed and their claims are counted.
func (w *worker[T]) putBack() {
	s, b := w.s, w.batch
	if s.closed.Load() {
		return
	}
	left := make([]entry, 0, len(b.entries))
	for k := range b.entries {
		e := &b.entries[k]
		switch {
		case stale(*e):
		case e.page.Load(e.index) == e.word:
			left = append(left, *e)
		default:
			s.returnMoved(e)
		}
	}
	s.owner.due.putBack(left)
	b.returned = true
}

// claimDue claims up to s.perCall due timers under the lock and appends their payloads to values.
// If perCall is 1, counted is the payload if its calls are counted, or nil. claimDue counts the
// claims immediately, so a callback that blocks delays no counter. claimDue returns early if no due
// timer is left or if it has examined a quantum of timers. For limit see dueBefore.
//
// For batches of payloads, claimDue reads the clock at each call to measure the lateness, and in
// Manual mode it uses the wheel's clock. For single callbacks the lateness is sampled.
func (s *shardOf[T]) claimDue(values []T, limit int64) (claimed []T, counted *countedFunc) {
	o := &s.owner
	o.counters.mostDue = max(o.counters.mostDue, o.due.ready)
	now := int64(-1)
	switch {
	case s.Manual:
		now = s.now.Load()
	case s.perCall > 1 || o.counters.sample(1):
		now = s.Read()
	}
	for steps := 0; steps < quantum && len(values) < s.perCall && o.dueBefore(limit); {
		entries, examined := o.fill(s.entryBuffer[:0], min(s.perCall-len(values), chunkSize), limit)
		s.entryBuffer = entries
		if examined == 0 {
			break
		}
		for k := range entries {
			tick := entries[k].word.Tick()
			if v, f, ok := s.claim(&entries[k], 0); ok {
				values, counted = append(values, v), f
				o.noteClaim(&entries[k], tick, now)
			}
		}
		steps += examined
	}
	return values, counted
}

// claim claims the timer of an entry and returns its payload, and the same as counted if its calls
// are counted. id is the id of the batch, or 0 under the lock. claim returns false if the timer was
// stopped, moved or claimed by another worker, or if the wheel was stopped.
func (s *shardOf[T]) claim(e *entry, id uint64) (v T, counted *countedFunc, ok bool) {
	values := s.values.At(e.index >> arena.PageShift)
	if values == nil || s.closed.Load() {
		return v, nil, false
	}
	if e.word.Is(arena.Counted) {
		// If the claim fails because another timer has the slot, this may be its function, or nil.
		if counted = s.countedFuncs.at(e.index); counted != nil {
			counted.calls.Add(1)
		}
	}
	if !e.page.Swap(e.index, e.word, e.word.With(arena.Spent).WithBits(id)) {
		if counted != nil {
			s.engine.funcTimers.calls.callEnded(counted)
		}
		s.returnMoved(e)
		return v, nil, false
	}
	if counted != nil {
		s.countedFuncs.clear(e.index)
		return any(counted.f).(T), counted, true
	}
	p := &values[e.index&arena.PageMask]
	v = *p
	if s.scanned {
		var zero T
		*p = zero
	}
	return v, nil, true
}

// returnMoved stages the timer of an entry if the timer is pending with another deadline. The Moved
// flag makes the owner remove the timer from a bucket that may contain it again.
func (s *shardOf[T]) returnMoved(e *entry) {
	for {
		w, placed := e.placed()
		if !placed {
			return
		}
		s.armMu.Lock()
		swapped := !s.closed.Load() && e.page.Swap(e.index, w, w.With(arena.Staged)|arena.Moved)
		if swapped {
			s.stage(e.index, w.Tick())
		}
		s.armMu.Unlock()
		if swapped || s.closed.Load() {
			return
		}
	}
}
