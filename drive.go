package timingwheel

import "runtime"

// quantum is the number of timers that a driver or worker moves before it lets go of the lock, so that
// an add never waits behind a mass expiry: at 20 to 60 ns each it holds the lock for some 10 µs.
const quantum = 256

// wake is called on a goroutine of its own when the alarm goes off.
func (s *shard) wake() {
	s.lock()
	if s.stopped || s.driving {
		s.mu.Unlock()
		return
	}
	s.noAlarm()
	s.counters.wakeups++
	s.drive()
}

// kick sees to it that somebody claims what is due and moves what has expired. In Manual mode that is
// for the next Advance.
func (s *shard) kick() {
	switch {
	case s.manual:
	case s.pooled:
		s.startSpares(s.addSpares(1)) // under the lock: those that begin may start more
	case !s.driving && (s.calls() > 0 || s.cascade.any()):
		s.driving = true
		go s.resume()
	}
}

// manySpares is the number of spares that may be started at once, where callbacks block.
const manySpares = 128

// addSpares counts the spares that have to be started, and leaves starting them to the caller, who may let go of the
// lock before, but must do nothing that can block. It is one where there is something to do and no spare, or up to most
// where callbacks are blocking just now: twice as many as the last time while at least half of what was claimed since
// then is still being run. So the workers that many blocking callbacks need are not started one by another, and those that
// have been blocked for long do not make a crowd of workers come for others that are quick.
func (s *shard) addSpares(most int) int {
	if s.spares > 0 || s.ready == 0 && !s.cascade.any() && !s.lotsReady() {
		return 0
	}
	batch := uint64(s.batch) // what runs is counted in batches, what has fired one by one
	claimed, stay := (s.counters.fired-s.firedBefore+batch-1)/batch, s.running-s.runningBefore
	s.firedBefore, s.runningBefore = s.counters.fired, s.running
	s.together = max(1, min(2*s.together, most))
	if claimed == 0 || stay < 0 || uint64(2*stay) < claimed {
		s.together = 1
	}
	s.spares = max(1, min(s.together, s.calls()))
	return s.spares
}

func (s *shard) startSpares(n int) {
	for range n {
		s.host.spawn()
	}
}

func (s *shard) resume() {
	s.mu.Lock()
	s.drive()
}

// drive takes what is due off the wheel and sees it claimed. It is entered with mu held and returns
// without it. With the default executor the driver ends by becoming a worker: the alarm is already set
// and starts another driver, so a callback that blocks does not hold up the wheel.
func (s *shard) drive() {
	s.driving = true
	s.labels.own()
	if s.pooled {
		for s.expire() {
			s.kick()
			s.yield()
		}
		s.driving = false
		if !s.stopped {
			s.resetAlarm()
		}
		s.together, s.firedBefore, s.runningBefore = 0, s.counters.fired, s.running
		s.host.serve()
		return
	}
	s.driveExecutor()
}

// driveExecutor is drive with an executor that is not our own.
func (s *shard) driveExecutor() {
	done := false
	defer func() {
		if !done {
			go s.resume() // a callback of an executor that runs it here has called runtime.Goexit
		}
	}()
	for {
		more := s.expire()
		if s.cascade.any() {
			s.move()
			more = true
		}
		handed := s.handOver()
		if !more && !handed || s.stopped {
			break
		}
		s.yield()
	}
	s.driving = false
	if !s.stopped {
		s.resetAlarm()
	}
	s.mu.Unlock()
	done = true
}

// yield lets others have the lock. A mere unlock and lock would mostly take it again before a waiter
// is awake.
func (s *shard) yield() {
	waiting := s.waiting.Load() > 0
	s.mu.Unlock()
	if waiting {
		runtime.Gosched()
	}
	s.mu.Lock()
}

// calls is the number of calls that are still to be given to the executor, or of which workers have still to
// come: one for each batch that is due.
func (s *shard) calls() int { return (s.ready+s.batch-1)/s.batch - s.owed }

// handOver gives the executor its calls, with no lock held. It reports whether there was any. What
// becomes due meanwhile waits, so that a chain of zero delays that runs here does not keep the driver.
func (s *shard) handOver() bool {
	n := s.calls()
	s.handUpTo(n)
	return n > 0
}

// handUpTo gives the executor up to n of the calls that are still to be given. It returns for how many
// timers they are.
func (s *shard) handUpTo(n int) (timers int) {
	for ; n > 0 && !s.stopped && s.calls() > 0; n-- {
		timers += min(s.batch, s.uncovered())
		s.handOne()
	}
	return timers
}

// uncovered is the number of timers that are due and for which the executor has no call.
func (s *shard) uncovered() int { return max(0, s.ready-s.owed*s.batch) }

// handOne calls the executor without the lock, which is held before and after. The call counts as
// something that runs until it returns, so that the executor may be closed after Shutdown.
//
// Where the executor unwinds, or a callback that it runs here does, nobody knows whether it has kept the
// call, and one that has begun meanwhile may be another. So one is not counted any more: a call too many
// does nothing, one too few would leave a timer that is due without one.
func (s *shard) handOne() {
	s.handing++
	s.owed++
	s.mu.Unlock()
	returned := false
	defer func() {
		s.mu.Lock()
		s.handing--
		s.settle()
		if !returned {
			s.owed = max(s.owed-1, 0)
			s.mu.Unlock()
		}
	}()
	s.host.hand()
	returned = true
}

// expire reads the clock and takes expired buckets off the queue, a quantum of them. It reports whether
// there may be more.
func (s *shard) expire() bool {
	if s.stopped {
		return false
	}
	s.settleWheel()
	s.observe(s.clock())
	tick := s.ticks.floor(s.now)
	for range quantum {
		top, ok := s.queue.min()
		if !ok || top.key > tick {
			s.moveTo(max(s.cur, tick))
			return false
		}
		s.queue.popMin()
		s.moveTo(max(s.cur, top.key))
		s.takeOff(top)
	}
	return true
}

// look takes what has expired meanwhile off the queue, between two quanta of moving: the alarm's
// goroutine may have to wait for a processor.
func (s *shard) look() {
	if s.driving || s.stopped || s.ticks.floor(s.clock()) < s.wakeAt {
		return
	}
	for s.expire() {
		s.yield()
	}
	if !s.driving && !s.stopped {
		s.resetAlarm()
	}
}

// takeOff makes an expired bucket due, or sets its timers moving. With the default executor a bucket of
// the finest level is due as a whole: workers skip the postponed timers in it. An executor is handed
// one call for each timer, so there they are sorted out first, as on the coarser levels.
func (s *shard) takeOff(b *bucket) {
	empty := b.live == 0
	s.unslot(b)
	switch {
	case empty:
	case b.level == 0 && s.pooled:
		b.state = bucketDue
		b.horizon = b.at * s.ticks.d
		s.due.push(b)
		s.ready += b.live
	default:
		s.cascade.push(b)
	}
}
