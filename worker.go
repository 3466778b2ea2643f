package timingwheel

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/watch"
)

// worker is one goroutine's work on a shard.
type worker[T any] struct {
	s             *shardOf[T]
	exec          func([]T)     // runs one callback, or one batch of payloads
	record        *watch.Record // of what exec runs; nil: not watched
	planSlot      uint32        // plus 1: of the plan or FuncTimer that exec runs; 0: another callback
	parent        *worker[T]    // the worker whose spare this one is, until it begins
	spareStarting bool          // its spare has not begun
	stuck         bool          // counted in workerPool.stuck
	replaced      bool          // its spare has begun while it ran callbacks, and goes on in its place
	waiting       atomic.Bool   // it has run its callbacks and waits for the lock
	values        []T           // the buffer for exec

	batch    *batch
	claimed  uint32 // bit k: this worker has claimed entry k, which is no plan
	backward bool   // the batch was another worker's: go from its last entry to the first

	started    int64  // ns: a reading of the clock when it was started as a spare
	taken      uint64 // counters.taken at that time
	running    bool   // a callback, or a batch, is being run
	serving    bool   // counted in workerPool.serving
	hasPermit  bool   // it holds one of permits
	usedPermit bool   // it has run something since it got its permit or last kept it
	unlocked   bool   // it does not hold wheelMu
}

const (
	// lateSpare is the delay above which a spare was not the next in its processor's queue.
	lateSpare = time.Millisecond

	// returningMax is the number of workers that may wait for the lock after their callbacks. Above
	// this number a replaced worker ends even if more is due: each waiting worker holds a stack,
	// and the driver waits in the same queue.
	returningMax = 2048
)

// drive runs a driver. It is called with wheelMu held. With the default executor it ends by
// becoming a worker. Either the alarm is set and wakes another driver, or the owner is behind. In
// the second case the worker starts a spare before it runs a callback, and the spare does the rest.
// So a callback that blocks does not hold up the wheel.
func (s *shardOf[T]) drive() {
	s.engine.labels.Own()
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
// the lock, and there are enough active workers. Otherwise each worker that waits for the lock
// would let its spare begin, and the spare its own.
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
	s.engine.labels.Own()
	pool := &s.owner.pool
	pool.starting--
	pool.begun++
	w.begin()
	defer w.exit()
	w.takeOverFromParent()
	w.serve()
}

// takeOverFromParent takes over the batch of the worker whose spare w is. If w comes late and no
// worker has taken a timer meanwhile, it starts a burst of workers. In this case the callback
// blocks and has woken another goroutine before, which took the spare's place as next in its
// processor's queue. The callbacks that follow would do the same to their spares, each of which
// would wait for a turn of the queue.
func (w *worker[T]) takeOverFromParent() {
	s, p := w.s, w.parent
	if p == nil {
		return
	}
	pool := &s.owner.pool
	w.parent, p.spareStarting = nil, false
	hasPermit := w.acquirePermit()
	if p.running && !p.stuck {
		p.replaced, p.stuck = hasPermit, true
		pool.stuck++
		pool.size = max(1, pool.size/2)
	}
	if b := p.batch; b != nil && b.listed && !b.returned {
		w.takeOver(p, hasPermit)
	}
	if s.owner.counters.taken > w.taken || s.Read()-w.started < int64(lateSpare) {
		pool.burst = burstMin
		return
	}
	s.startWorkers(min(s.owner.batchesDue(), pool.burst, s.engine.permits.available(nil)) - pool.starting)
	pool.burst = min(pool.burst*burstGrowth, burstMax)
}

// acquirePermit takes a permit for a spare and reports whether the spare may run callbacks.
func (w *worker[T]) acquirePermit() bool {
	p := w.s.engine.permits
	if p == nil {
		return true
	}
	w.hasPermit = p.tryAcquire(nil)
	return w.hasPermit
}

// takeOver lets a spare go on with the batch of its parent. If all entries are claimed, only
// counting them is left. A spare without a permit makes the others due again.
func (w *worker[T]) takeOver(p *worker[T], hasPermit bool) {
	pool, b := &w.s.owner.pool, p.batch
	if b.unclaimed() == 0 {
		if !b.open() {
			w.s.owner.countBatch(b)
			pool.unlist(b)
		}
		return
	}
	if !hasPermit {
		p.putBack()
		return
	}
	w.batch, w.backward = b, true
	b.users++
}

// serve claims and runs due timers until none is left. It is called and returns with wheelMu held.
//
// Moving timers between levels and placing arrivals come second: workers handle a quantum whenever
// nothing is due, and after every 16th claim of the shard, so that this work gets its share while
// many callbacks are due.
//
// Rejected: a watcher that adds workers when it sees no progress. An idle Go program sleeps at
// least 1 ms in the network poller, which 10,000 callbacks of 1 ms each would pay again and again.
func (w *worker[T]) serve() {
	s := w.s
	o := &s.owner
	w.serving = true
	o.pool.serving++
	if w.batch != nil {
		w.runBatch()
	}
	for !s.closed.Load() {
		ready := w.ready()
		switch {
		case w.replaced && o.pool.oversubscribed(s.procs):
			// Others go on in its place. Quick callbacks need no more workers.
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

// ready reports whether a timer is due and w may run it. If w gets no permit, its shard is queued
// for one.
func (w *worker[T]) ready() bool {
	s := w.s
	p := s.engine.permits
	switch {
	case s.owner.due.ready == 0:
		return false
	case p == nil:
		return true
	case !w.hasPermit:
		w.usedPermit, w.hasPermit = false, p.tryAcquire(s)
	case w.usedPermit:
		w.usedPermit = false
		p.yield(w)
	}
	return w.hasPermit
}

// advanceIfLate does the work of a driver that should have come, see shard.advanceIfLate. The
// workers on which a replaced worker relies do not know of the timers that it has made due, so it
// serves these itself.
func (w *worker[T]) advanceIfLate() bool {
	if !w.s.advanceIfLate() {
		return false
	}
	w.replaced = false
	return true
}

// takeBatch takes a batch of due timers, if more than one is due and callbacks are quick enough to
// be claimed without the lock.
func (w *worker[T]) takeBatch() bool {
	s := w.s
	o := &s.owner
	if s.perCall > 1 || o.pool.size == 1 || o.due.ready == 1 || s.engine.permits.available(nil) == 0 {
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

// runOne claims one callback, or one batch of payloads, under the lock and runs it. It returns how
// many timers it has claimed. For limit see dueBefore.
func (w *worker[T]) runOne(limit int64) int {
	s := w.s
	o := &s.owner
	begun := o.pool.begun
	fired := o.counters.fired
	w.values = s.claimDue(w.values[:0], limit)
	fired = o.counters.fired - fired // without plans
	n := len(w.values)
	o.counters.taken += uint64(n)
	o.pool.sinceCascade++
	if n == 0 {
		s.yield()
		return 0
	}
	lasting := false
	if s.perCall == 1 {
		e := &s.collected[0]
		w.planSlot = planSlot(e)
		lasting = s.lasting.has(e.index, e.word.Gen())
	}
	o.pool.launches++
	alone := w.unlockToRun(w.serving && !w.stuck && (o.due.ready > 0 || o.backlog()))
	run := !s.closed.Load()
	if !run { // the wheel is being stopped, and halt waits for launched
		s.claims.dropped.Add(fired)
		if lasting { // the runtime makes the call
			time.AfterFunc(0, any(w.values[0]).(func()))
		}
	}
	s.claims.launched.Add(1)
	if run {
		w.exec(w.values)
	}
	w.relock()
	clear(w.values)
	w.values = w.values[:0]
	if !alone { // else it has no spare that could have begun
		o.pool.ran(begun)
	}
	return n
}

// runExtra runs one more callback, or one more batch of payloads, although other workers are enough
// for what is due. The worker therefore needs no spare and counts as stuck from the beginning. If
// callbacks sleep for a millisecond each, workers that come back from them do most of the work in
// this way, and no goroutine has to be started for it.
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
			tick, _ = s.decode(e.word, s.ticks.Floor(now))
		}
		v, ok := s.claim(e, b.id) // from here on the callback has begun, see halt
		if !ok {
			continue
		}
		if !e.word.Has(arena.Plan) {
			w.claimed |= 1 << k
		}
		if now >= 0 {
			late = max(0, now-s.ticks.Begin(tick)) // a plan that was flushed is early
		}
		one[0] = v
		w.planSlot = planSlot(e)
		w.exec(one)
	}
	w.relock()
	if late >= 0 {
		o.counters.lateness.Record(time.Duration(late))
	}
	clear(one)
	w.finishBatch()
	o.pool.ran(begun)
}

// unlockToRun releases the lock to run callbacks. more says that other work waits behind them. In
// this case unlockToRun starts workers for processors that have none. It also starts a spare,
// unless one is coming or enough workers are on their way. It starts the spare last, so that the
// spare stands next in the processor's queue. If no permit is left for a spare, the worker counts
// as stuck from the beginning, like one that runs an extra callback. unlockToRun reports whether
// that is so.
func (w *worker[T]) unlockToRun(more bool) (alone bool) {
	s := w.s
	pool := &s.owner.pool
	pool.running++
	w.running = true
	w.replaced = w.stuck
	others, spare := 0, (*worker[T])(nil)
	// If the worker has a batch it needs a spare of its own, because the spares of others do not
	// serve this batch.
	switch {
	case !more || w.spareStarting || w.batch == nil && pool.starting > s.owner.batchesDue():
	case w.batch == nil && !s.owner.backlog() && s.engine.permits.available(s) == 0:
		w.stuck = true
		pool.stuck++
	default:
		others = max(0, min(s.owner.workersToStart(), s.engine.permits.available(nil)-1))
		spare = s.newWorker()
		spare.parent, spare.taken = w, s.owner.counters.taken
		w.spareStarting = true
		pool.starting += 1 + others
	}
	alone = w.stuck
	s.unlock()
	w.unlocked = true
	if spare == nil {
		return alone
	}
	for range others {
		go s.runWorker()
	}
	spare.started = s.Read()
	go spare.runSpare()
	return alone
}

// relock takes the lock again after callbacks have run.
func (w *worker[T]) relock() {
	s := w.s
	w.waiting.Store(true)
	s.claims.returning.Add(1)
	s.wheelMu.Lock()
	s.claims.returning.Add(-1)
	w.waiting.Store(false)
	w.unlocked, w.usedPermit = false, true
	w.finish()
}

// finish notes the end of a callback or batch.
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

// finishBatch counts the claims of the batch and gives back the slots that this worker has claimed.
// A batch that was put back before all entries were tried stays listed while other workers go on
// with it, so that their claims are counted.
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
			o.leaveBucket(i) // it was moved away and back to the same tick before it was claimed
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

// newWorker returns a worker. wheelMu is held.
func (s *shardOf[T]) newWorker() *worker[T] {
	w := s.spareWorker
	if s.spareWorker = nil; w == nil {
		w = new(worker[T])
	}
	w.s = s
	return w
}

// begin chooses how the worker runs callbacks. wheelMu is held.
func (w *worker[T]) begin() {
	e := w.s.engine
	w.values, w.s.buffer = w.s.buffer, nil
	w.exec = e.job.run
	if e.observed() {
		w.exec = w.runObserved
	}
	if e.watch != nil {
		w.record = e.watch.Join()
	}
}

// runObserved runs a callback or a batch under the name of its function. It measures the call and
// sets the profile labels, also if the call panics or exits.
func (w *worker[T]) runObserved(items []T) {
	e := w.s.engine
	pc := e.job.callee(items)
	if i := w.planSlot - 1; w.planSlot > 0 {
		if code, ok := w.s.callees.of(i); ok {
			pc = code
		}
	}
	if w.record != nil {
		w.record.Begin(pc, len(items))
		defer w.record.End()
	}
	if e.labels != nil {
		defer e.labels.End()
		e.labels.Begin(pc)
	}
	e.job.run(items)
}

// planSlot returns the worker's planSlot for an entry.
func planSlot(e *entry) uint32 {
	if e.word.Has(arena.Plan) {
		return e.index + 1
	}
	return 0
}

// exit leaves the lock and the shard in order, also if a callback has called runtime.Goexit, or
// panics and is about to crash the program.
func (w *worker[T]) exit() {
	s := w.s
	pool := &s.owner.pool
	if w.unlocked {
		s.wheelMu.Lock()
		w.values = nil // the callback may still refer to it
		w.finish()
		if b := w.batch; b != nil {
			if b.listed && !b.returned { // else another worker has tried or put back all entries
				w.putBack()
			}
			w.finishBatch()
		}
	}
	if w.hasPermit {
		w.hasPermit = false
		s.engine.permits.release()
	}
	if w.serving {
		pool.serving--
		if w.unlocked && !w.spareStarting && s.owner.due.ready > 0 && !s.closed.Load() {
			s.startWorkers(1)
		}
	}
	s.reclaim() // otherwise the slots would keep pages of an idle wheel
	if w.record != nil {
		s.engine.watch.Leave(w.record)
	}
	if cap(w.values) > 0 && s.buffer == nil && !s.closed.Load() {
		s.buffer = w.values
	}
	// Otherwise a callback has left the worker early, or its spare still refers to it.
	if !w.unlocked && !w.spareStarting && !s.closed.Load() {
		*w = worker[T]{}
		s.spareWorker = w
	}
	if !w.serving && w.unlocked {
		s.ensureDriver()
	}
	s.unlockAndDrain()
}

// putBack makes the entries of the batch due that are not claimed. Other workers may go on with the
// batch, so it stays listed and their claims are counted.
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

// claimDue claims due timers under the lock, up to s.perCall of them, and appends their payloads to
// values. The claims are counted at once, so a callback that blocks holds nothing. claimDue ends
// early if nothing is left or if it has looked at a quantum of timers. For limit see dueBefore.
//
// The lateness of batches of payloads is measured with one reading of the clock for each call, and
// in Manual mode by the wheel's clock. The lateness of single callbacks is sampled.
func (s *shardOf[T]) claimDue(values []T, limit int64) []T {
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
		entries, looked := o.fill(s.collected[:0], min(s.perCall-len(values), chunkSize), limit)
		s.collected = entries
		if looked == 0 {
			break
		}
		for k := range entries {
			tick, _ := o.decode(entries[k].word, o.tick)
			if v, ok := s.claim(&entries[k], 0); ok {
				values = append(values, v)
				o.noteClaim(&entries[k], tick, now)
			}
		}
		steps += looked
	}
	return values
}

// claim takes the timer of an entry and returns its payload. id is that of the batch, or 0 under
// the lock. It returns false if the timer was stopped, moved or claimed by another worker, or if
// the wheel was stopped. A plan keeps its slot and its payload.
func (s *shardOf[T]) claim(e *entry, id uint64) (v T, ok bool) {
	values := s.values.At(e.index >> arena.PageShift)
	if values == nil || s.closed.Load() {
		return v, false
	}
	if e.word.Has(arena.Plan) {
		return s.claimPlan(e, &values[e.index&arena.PageMask])
	}
	if !e.page.Swap(e.index, e.word, e.word.With(arena.Spent).WithBits(id)) {
		s.returnMoved(e)
		return v, false
	}
	s.forget(e.word)
	p := &values[e.index&arena.PageMask]
	v = *p
	if s.scanned {
		var zero T
		*p = zero
	}
	return v, true
}

// claimPlan is claim for a plan. Its word does not tell afterwards that the claim is to be counted.
func (s *shardOf[T]) claimPlan(e *entry, p *T) (v T, ok bool) {
	if !e.page.Swap(e.index, e.word, e.word.With(arena.Running)) {
		s.returnMoved(e)
		return v, false
	}
	return *p, true
}

// returnMoved puts the timer of an entry into the inbox if it is pending with another deadline. If
// a bucket has the timer again, the Moved flag makes the owner take it out there.
func (s *shardOf[T]) returnMoved(e *entry) {
	for {
		w, placed := e.placed()
		if !placed {
			return
		}
		tick, ok := s.decode(w, s.ticks.Floor(s.now.Load()))
		if !ok {
			continue
		}
		s.armMu.Lock()
		swapped := !s.closed.Load() && e.page.Swap(e.index, w, w.With(arena.Staged)|arena.Moved)
		if swapped {
			s.stage(e.index, tick)
			s.inbox.skipSamples()
		}
		s.armMu.Unlock()
		if swapped || s.closed.Load() {
			return
		}
	}
}

// permits is a semaphore that limits the running callbacks of a wheel to [Options.MaxRunning]. A
// worker acquires a permit before it claims a timer. It keeps the permit until it ends, or until it
// returns from a callback or a batch while another shard waits. Invariants, whenever mu is free:
//
//	R1  free is MaxRunning less the permits that workers hold or are about to get
//	R2  if a shard is queued, free is 0
//
// A worker that finds due timers and gets no permit queues its shard, so no due timer waits while a
// permit is free. Order of locks: wheelMu, then mu.
type permits[T any] struct {
	mu    sync.Mutex
	free  int
	queue []*shardOf[T] // of the shards with inQueue
}

// tryAcquire takes a permit. If none is free, it queues s, unless s is nil.
func (p *permits[T]) tryAcquire(s *shardOf[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		return true
	}
	if s != nil {
		p.enqueue(s)
	}
	return false
}

// available returns the number of free permits. If there is none, it queues s, unless s is nil. A
// nil p stands for no limit.
func (p *permits[T]) available(s *shardOf[T]) int {
	if p == nil {
		return math.MaxInt
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 && s != nil {
		p.enqueue(s)
	}
	return p.free
}

// yield is called for a worker with a permit whose shard has more due timers. If a shard is queued,
// it gets the permit, and the worker's shard goes to the end of the queue.
func (p *permits[T]) yield(w *worker[T]) {
	p.mu.Lock()
	first := p.dequeue()
	if first != nil {
		p.enqueue(w.s)
		w.hasPermit = first == w.s
		w.replaced = false // the workers that replaced it are too few
	}
	p.mu.Unlock()
	if !w.hasPermit {
		go p.runWorker(first)
	}
}

// release takes a permit back and gives it to the first shard in the queue.
func (p *permits[T]) release() {
	p.mu.Lock()
	first := p.dequeue()
	if first == nil {
		p.free++
	}
	p.mu.Unlock()
	if first != nil {
		go p.runWorker(first)
	}
}

// enqueue appends a shard to the queue, unless it is queued already. mu is held.
func (p *permits[T]) enqueue(s *shardOf[T]) {
	if !s.inQueue {
		s.inQueue = true
		p.queue = append(p.queue, s)
	}
}

// dequeue removes and returns the first shard of the queue, or nil. mu is held.
func (p *permits[T]) dequeue() *shardOf[T] {
	if len(p.queue) == 0 {
		return nil
	}
	s := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	s.inQueue = false
	return s
}

// runWorker runs a worker for a shard that got a permit.
func (p *permits[T]) runWorker(s *shardOf[T]) {
	s.wheelMu.Lock()
	w := s.newWorker()
	w.hasPermit = true
	s.owner.pool.starting++
	w.run()
}
