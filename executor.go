package timingwheel

// driveExecutor runs a driver with an executor other than the default one. It is called with
// wheelMu held and returns without it.
func (s *shardOf[T]) driveExecutor() {
	pool := &s.owner.pool
	pool.driving = true
	done := false
	defer func() {
		if !done { // a callback that the executor runs here has called runtime.Goexit
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

// submitDue gives the executor its calls, with no lock held. It reports whether there were any.
// Timers that become due meanwhile wait, so a chain of zero delays that runs here does not keep the
// driver.
func (s *shardOf[T]) submitDue() bool {
	n := s.owner.batchesDue()
	s.submitUpTo(n)
	return n > 0
}

// submitUpTo gives the executor up to n of the calls that are still to be given. It returns the
// number of timers that these calls are for.
func (s *shardOf[T]) submitUpTo(n int) (timers int) {
	for ; n > 0 && !s.closed.Load(); n-- {
		if s.Manual {
			// Callbacks that run here may have stopped or moved other timers, and Advance counts
			// exactly.
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

// submitOne calls the executor without the lock, which is held before and after. The call counts as
// running until it returns, so that the executor may be closed after Shutdown.
//
// If the executor unwinds, or a callback that it runs here does, the call may have been kept or
// lost, and a call that has begun meanwhile may be another one. So queuedCalls is decremented. A
// call too many does nothing. A call too few would leave a due timer without one.
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
	s.engine.executor.Go(s.call)
	returned = true
}

// runCall is what an executor runs: it claims one batch and runs it, if there still is one.
func (s *shardOf[T]) runCall() {
	s.wheelMu.Lock()
	w := s.newWorker()
	w.begin()
	defer w.exit()
	s.owner.pool.queuedCalls = max(s.owner.pool.queuedCalls-1, 0)
	for w.runOne(never) == 0 && s.owner.due.ready > 0 && !s.closed.Load() {
		continue // it has looked at a quantum of timers that were stopped or postponed
	}
	s.ensureDriver()
}

// ensureDriver makes sure that a driver comes if due timers have no call or timers have to move. In
// Manual mode the next Advance serves them.
func (s *shardOf[T]) ensureDriver() {
	if !s.Manual && (s.owner.batchesDue() > 0 || s.owner.wheel.cascade.any()) {
		s.alarm.requestDriver()
	}
}
