package timingwheel

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// driveExecutor runs a driver that submits due timers to an executor. It is called with wheelMu
// held and returns without it.
func (s *shardOf[T]) driveExecutor() {
	pool := &s.owner.pool
	pool.driving = true
	done := false
	defer func() {
		if !done { // a callback has called runtime.Goexit on this goroutine
			s.wheelMu.Lock()
			pool.driving = false
			s.alarm.requestDriver()
			s.unlockAndDrain()
		}
	}()
	for !s.closed.Load() {
		more := !s.step()
		if s.owner.wheel.cascade.any() {
			s.owner.cascadeQuantum()
			more = true
		}
		if handed := s.submitDue(); !more && !handed {
			break
		}
		s.yield()
	}
	pool.driving = false
	s.alarm.reset()
	done = true
	s.unlockAndDrain()
}

// submitDue submits a call for each due batch, with no lock held, and reports whether there was
// any. Timers that become due meanwhile wait for the next call of submitDue. So a callback that
// runs on this goroutine and arms itself with zero delay does not keep the driver here.
func (s *shardOf[T]) submitDue() bool {
	n := s.owner.batchesDue()
	s.submitUpTo(n)
	return n > 0
}

// submitUpTo submits up to n of the missing calls. It returns the number of timers for which it has
// submitted calls.
func (s *shardOf[T]) submitUpTo(n int) (timers int) {
	for ; n > 0 && !s.closed.Load(); n-- {
		if s.Manual {
			// Callbacks on this goroutine may have stopped or moved other timers, and the result of
			// Advance must be exact.
			s.drainAll()
		}
		if s.owner.batchesDue() <= 0 {
			break
		}
		timers += min(s.perCall, s.owner.uncovered())
		s.submitOne()
	}
	return timers
}

// submitOne calls Executor.Go without wheelMu, which is held before and after the call. The call
// counts as running until it returns, so that the executor may be closed after Shutdown.
//
// If Go unwinds by a panic or Goexit, the executor may have kept the function or lost it, and a
// call that has begun meanwhile may be another one. submitOne then decrements queuedCalls: a call
// too many does nothing, but without a call a due timer would never run.
func (s *shardOf[T]) submitOne() {
	pool := &s.owner.pool
	pool.submitting++
	pool.queuedCalls++
	s.unlock()
	returned := false
	defer func() {
		s.wheelMu.Lock()
		pool.submitting--
		pool.closeIdle()
		if !returned {
			pool.queuedCalls = max(pool.queuedCalls-1, 0)
			s.unlock()
		}
	}()
	s.run.Go(s.call)
	returned = true
}

// runCall is the function that an executor gets. It claims one batch and runs it. It does nothing
// if no timer is due.
func (s *shardOf[T]) runCall() {
	s.wheelMu.Lock()
	w := s.newWorker()
	w.begin()
	defer w.exit()
	s.owner.pool.queuedCalls = max(s.owner.pool.queuedCalls-1, 0)
	for w.runOne(never) == 0 && s.owner.due.ready > 0 && !s.closed.Load() {
		continue // runOne has examined a quantum of timers that were stopped or postponed
	}
	s.ensureDriver()
}

// ensureDriver starts a driver if due timers have no call or buckets have to cascade. In Manual
// mode the next Advance serves them.
func (s *shardOf[T]) ensureDriver() {
	if !s.Manual && (s.owner.batchesDue() > 0 || s.owner.wheel.cascade.any()) {
		s.alarm.requestDriver()
	}
}

// Limit returns an [Executor] that runs at most n callbacks, or batches of [Timeouts], of a wheel
// at a time, on goroutines that it reuses. Further timers that are due stay pending, and can be
// stopped or rescheduled. The shards of the wheel take turns. Callbacks that wait for other
// callbacks may deadlock at the limit. One value serves one wheel: [New] returns an error for a
// second one. Wheels that have to share a limit use a pool. Limit panics if n is not positive.
func Limit(n int) Executor {
	if n < 1 {
		panic(fmt.Sprintf("timingwheel: Limit: n is %d; it must be positive", n))
	}
	return &limit{free: n}
}

// limit is the Executor that [Limit] returns. It counts calls by shard instead of keeping them.
type limit struct {
	used atomic.Bool // by a wheel

	mu   sync.Mutex
	free int           // goroutines that may be started
	next []*limitQueue // the shards with waiting calls; the first one is served next
}

// limitQueue is the Executor of a shard. All its calls are the same function.
type limitQueue struct {
	limit   *limit
	call    func()
	waiting int // calls; guarded by limit.mu
}

// Go runs f as soon as fewer than n functions are running.
func (l *limit) Go(f func()) { (&limitQueue{limit: l, call: f}).Go(f) }

func (q *limitQueue) Go(func()) {
	l := q.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.waiting++; q.waiting == 1 {
		l.next = append(l.next, q)
	}
	if l.free > 0 {
		l.free--
		go l.serve()
	}
}

// serve runs waiting calls until there are none. A call that exits its goroutine is followed by
// another goroutine.
func (l *limit) serve() {
	ended := false
	defer func() {
		if !ended {
			go l.serve()
		}
	}()
	for call := l.take(); call != nil; call = l.take() {
		call()
	}
	ended = true
}

// take removes and returns a waiting call of the first shard, which goes to the end of the queue.
// If no call is waiting, take returns nil, and the goroutine has to end.
func (l *limit) take() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next) == 0 {
		l.free++
		return nil
	}
	q := l.next[0]
	l.next = l.next[1:]
	if q.waiting--; q.waiting > 0 {
		l.next = append(l.next, q)
	}
	return q.call
}
