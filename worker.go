package timingwheel

import (
	"runtime/debug"
	"time"
)

// shardOf is a shard with its payloads: pages parallel to those of the slab.
type shardOf[T any] struct {
	shard
	values []*[pageSize]T
	engine *engine[T]
	call   func() // claims and runs one batch: what the executor is given
	buffer []T    // of the worker that ended last, for the next one
}

// plainPage is a page of the slab with its payloads, where these hold no pointers: a collection has to look at
// each object, if only at its mark, so it is quicker with one than with two.
type plainPage[T any] struct {
	nodes  [pageSize]node
	values [pageSize]T
}

func (s *shardOf[T]) openPage(p int) *[pageSize]node {
	if p == len(s.values) {
		s.values = append(s.values, nil)
	}
	if !s.scanned {
		pg := new(plainPage[T])
		s.values[p] = &pg.values
		return &pg.nodes
	}
	s.values[p] = new([pageSize]T)
	s.funcs, _ = any(s.values).([]*[pageSize]func())
	return new([pageSize]node)
}

// value is the payload of slot i.
func (s *shardOf[T]) value(i uint32) *T {
	pg := s.values[i>>pageShift]
	if pg == nil { // never, see slab.must
		return nil
	}
	return &pg[i&pageMask]
}

func (s *shardOf[T]) closePage(p int) { s.values[p] = nil }

func (s *shardOf[T]) drop(i uint32) {
	var zero T
	*s.value(i) = zero
}

func (s *shardOf[T]) clear() { s.values, s.buffer, s.spareLot = nil, nil, nil }

func (s *shardOf[T]) spawn() { go s.begin() }

func (s *shardOf[T]) hand() { s.engine.executor.Go(s.call) }

// arm adds a timer with its payload. mu is held.
func (s *shardOf[T]) arm(deadline int64, v T) Timer {
	if s.stopped {
		s.counters.rejected++
		return Timer{}
	}
	i, n := s.add(deadline)
	*s.value(i) = v
	s.checkLocked()
	return Timer{&s.shard, i, n.gen}
}

// begin is the life of a worker that was started as a spare.
func (s *shardOf[T]) begin() {
	s.labels.own()
	s.lock()
	s.spares--
	s.begun++
	s.recallLots()
	s.serve()
}

// serve claims and runs what is due until nothing is. It is entered with mu held and returns without.
//
// Whenever a worker runs a callback while more was due when it left the lock, at least one spare worker has
// been started and waits for a processor. If the callback blocks, the scheduler runs the spare, which
// first starts the next one: so no callback waits for another that blocks, and what a goroutine for
// each callback costs is paid only for those that do block. While callbacks are quick the same few
// workers run them all. Rejected: a watcher that adds workers when no progress is seen. An idle Go
// program sleeps at least 1 ms in the network poller, which 10,000 callbacks of 1 ms each pay again
// and again.
//
// Timers that move between wheels come second: a quantum of them whenever nothing is due, and after
// every 16th claim, so that they get their share while many quick callbacks are due.
func (s *shardOf[T]) serve() {
	w := worker[T]{s: s}
	w.begin()
	defer w.end()
	w.buffer, s.buffer = s.buffer, nil
	w.serving = true
	s.serving++
	for s.ready > 0 || s.cascade.any() {
		if s.ready > 0 {
			w.work()
		}
		if s.cascade.any() && (s.ready == 0 || w.unmoved >= 16) {
			w.unmoved = 0
			s.move()
			s.yield()
			s.look()
		}
	}
}

// work claims and runs what is due: a lot of callbacks, or one of them, or one batch of payloads. Lots grow
// while callbacks are so quick that the spare worker does not get to begin meanwhile.
func (w *worker[T]) work() {
	s := w.s
	begun := s.begun
	if s.batch == 1 && s.lotSize > 1 && s.ready > 1 && w.takeLot() {
		w.starts = s.addSpares(manySpares)
		w.runLot()
	} else {
		w.keepLot()
		batch := w.claim()
		w.starts = s.addSpares(manySpares)
		w.run(batch)
	}
	if s.begun == begun {
		s.lotSize = min(2*s.lotSize, chunkSize)
	}
}

// worker is one goroutine's work on a shard.
type worker[T any] struct {
	s      *shardOf[T]
	exec   func([]T)   // runs one batch
	record *watched[T] // of what exec is about; nil: not watched
	buffer []T
	lot    *lot

	unread    int   // claims since the last reading of the clock for their lateness; 0: none yet
	sampleAt  int   // the entry of the lot that tells its lateness; -1: none
	sampleDue int64 // its deadline
	sampledAt int64 // when it was claimed; -1: it was not

	unmoved  int   // claims since the last quantum of moving
	upTo     int64 // Manual: claim what is due before this tick only; 0: everything
	starts   int   // spares that are counted and have to be started
	busy     bool  // a claimed batch, or a lot, is being run
	holding  bool  // it is the lot
	unlocked bool
	serving  bool
}

// begin says how the worker runs callbacks. mu is held.
func (w *worker[T]) begin() {
	e := w.s.engine
	w.exec = e.run
	if e.watch != nil {
		w.record = e.watch.join()
		w.exec = w.record.exec
	}
}

// end leaves the lock and the shard in order, also when a callback has called runtime.Goexit, or is
// panicking and about to crash the program.
func (w *worker[T]) end() {
	s := w.s
	if w.unlocked {
		s.mu.Lock()
		w.buffer = nil // whoever left the callback early may still refer to it
		w.finish(nil)
		s.kick()
	}
	if w.serving {
		s.serving--
	}
	w.keepLot()
	if w.record != nil {
		s.engine.watch.leave(w.record)
	}
	if s.buffer == nil && !s.stopped {
		s.buffer = w.buffer
	}
	s.mu.Unlock()
}

// claim takes up to one batch of what is due: from here on it is not pending any more. A timer that
// was postponed goes back to the wheel instead. It gives up after quantum steps, perhaps with nothing
// claimed, so that the lock is not held for long.
func (w *worker[T]) claim() []T {
	s := w.s
	w.unmoved++
	if want := min(s.batch, s.ready); cap(w.buffer) < want {
		w.buffer = make([]T, 0, max(want, min(s.batch, 2*cap(w.buffer))))
	}
	batch := w.buffer[:0]
	s.counters.mostDue = max(s.counters.mostDue, s.ready)
	sampled := w.reads(1)
	if sampled && !s.manual {
		s.observe(s.clock())
	}
	for steps := 0; steps < quantum && len(batch) < cap(batch); steps++ {
		if w.upTo != 0 && !s.dueBefore(w.upTo) {
			break
		}
		i, n, ok := s.next()
		if !ok {
			break
		}
		if n == nil {
			continue
		}
		if sampled {
			s.counters.lateness.record(time.Duration(s.now - n.due()))
		}
		batch = append(batch, *s.value(i))
		s.claimed(i, n)
	}
	if len(batch) > 0 {
		s.running++
		w.busy = true
	}
	return batch
}

// reads decides whether to read the clock for the lateness of one of so many claims. A reading costs as much as
// the rest of a claim, so single callbacks have it once in 16, beginning with a worker's first.
func (w *worker[T]) reads(claims int) bool {
	if w.s.batch > 1 || w.s.manual {
		return true
	}
	first := w.unread == 0
	w.unread += claims
	if !first && w.unread <= 16 {
		return false
	}
	w.unread = claims
	return true
}

// run runs a claimed batch without the lock, which is held before and after.
func (w *worker[T]) run(batch []T) {
	s := w.s
	if len(batch) == 0 {
		w.startSpares()
		s.yield()
		return
	}
	w.leave()
	w.exec(batch)
	s.lock()
	w.unlocked = false
	w.finish(batch)
}

// leave lets go of the lock to run callbacks. Starting a goroutine takes longer than a claim, so the spares that are
// due are started without the lock.
func (w *worker[T]) leave() {
	w.s.mu.Unlock()
	w.unlocked = true
	w.startSpares()
}

func (w *worker[T]) startSpares() {
	w.s.startSpares(w.starts)
	w.starts = 0
}

// finish notes that the claimed batch has run and forgets its payloads.
func (w *worker[T]) finish(batch []T) {
	if !w.busy {
		return
	}
	w.busy = false
	clear(batch)
	w.finishLot()
	w.s.finished()
}

// next takes the first timer off the due buckets. The node is nil where the timer was postponed and has
// gone back to the wheel; ok is false where nothing is due.
func (s *shard) next() (i uint32, n *node, ok bool) {
	b := s.firstDue()
	if b == nil {
		return 0, nil, false
	}
	if b == s.prompt {
		s.prompt = nil
	}
	pos, i := s.first(b)
	n = s.nodes.must(i)
	s.take(b, pos)
	s.ready--
	if n.due() > b.horizon && !b.flush {
		s.route(i, n)
		return i, nil, true
	}
	return i, n, true
}

// firstDue returns the first due bucket with timers, having freed the empty ones before it.
func (s *shard) firstDue() *bucket {
	for {
		b := s.due.head
		if b == nil || b.live > 0 {
			return b
		}
		s.due.pop()
		s.freeDue(b)
	}
}

// freeDue frees a due bucket that all timers have left.
func (s *shard) freeDue(b *bucket) {
	if b == s.prompt {
		s.prompt = nil
	}
	if b.flush {
		s.flushed--
	}
	s.freeBucket(b)
}

// claimed ends the pending state of a timer that has been taken off a due bucket. A plan keeps its slot.
func (s *shard) claimed(i uint32, n *node) {
	s.pending--
	s.lastGone()
	s.counters.fired++
	if n.deadline < 0 {
		n.pos = posNone
		return
	}
	s.release(i, n)
}

// finished notes the end of a callback or batch.
func (s *shard) finished() {
	s.running--
	s.settle()
}

// busy reports whether something runs that Shutdown waits for.
func (s *shard) busy() bool { return s.running > 0 || s.handing > 0 }

// settle tells Shutdown if nothing runs any more.
func (s *shard) settle() {
	if s.idle != nil && !s.busy() {
		close(s.idle)
		s.idle = nil
	}
}

// runOne is what an executor runs: it claims one batch and runs it, if there still is one.
func (s *shardOf[T]) runOne() {
	w := worker[T]{s: s}
	s.mu.Lock()
	w.begin()
	defer w.end()
	s.owed = max(s.owed-1, 0)
	w.buffer, s.buffer = s.buffer, nil
	w.run(w.claim())
	s.kick()
}

// guard calls f and reports a panic. runtime.Goexit passes through.
func guard(f func(), report func(any, []byte)) {
	normal := false
	defer func() {
		if normal {
			return
		}
		if v := recover(); v != nil {
			report(v, debug.Stack())
		}
	}()
	f()
	normal = true
}
