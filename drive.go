package timingwheel

import "runtime"

// quantum is the number of timers that a driver or worker moves before it lets go of the lock, so that
// an add never waits behind a mass expiry: at 20 to 60 ns each it holds the lock for some 10 µs.
const quantum = 256

// wake is called on a goroutine of its own when the alarm goes off.
func (s *shard) wake() {
	s.mu.Lock()
	if s.stopped || s.driving {
		s.mu.Unlock()
		return
	}
	s.wakeAt = never
	s.counters.wakeups++
	s.drive()
}

// kick sees to it that somebody claims what is due. In Manual mode that is for the next Advance.
func (s *shard) kick() {
	switch {
	case s.manual || s.ready == 0:
	case s.pooled:
		if s.spares == 0 {
			s.spares++
			s.host.spawn()
		}
	case !s.driving:
		s.driving = true
		go s.resume()
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
	if s.pooled {
		for s.collect() {
			s.kick()
			s.yield()
		}
		s.driving = false
		if !s.stopped {
			s.resetAlarm()
		}
		s.host.serve()
		return
	}
	done := false
	defer func() {
		if !done {
			go s.resume() // a callback of an executor that runs it here has called runtime.Goexit
		}
	}()
	for {
		more := s.collect()
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

// handOver gives the executor one call for each batch that is due and has none. The calls run with
// no lock held. It reports whether there was any.
func (s *shard) handOver() bool {
	n := (s.ready+s.batch-1)/s.batch - s.owed
	for k := 0; k < n && !s.stopped; k++ {
		s.owed++
		s.mu.Unlock()
		s.host.hand()
		s.mu.Lock()
	}
	return n > 0
}

// collect reads the clock, takes expired buckets off the queue and moves timers of coarse buckets to
// finer ones, about quantum steps in all. It reports whether there is more to do.
func (s *shard) collect() bool {
	if s.stopped {
		return false
	}
	s.observe(s.clock())
	budget := s.expire(s.ticks.floor(s.now), quantum)
	for budget > 0 && s.cascade.head != nil {
		budget -= s.cascadeChunk()
	}
	return budget <= 0
}

// expire takes the buckets due by tick off the queue, as many as the budget allows, and returns what is
// left of it. With the default executor a bucket of the finest level is due as a whole: workers skip
// the postponed timers in it. An executor is handed one call for each timer, so there they are sorted
// out first, as on the coarser levels.
func (s *shard) expire(tick int64, budget int) int {
	for ; budget > 0; budget-- {
		top, ok := s.queue.min()
		if !ok || top.at > tick {
			s.cur = max(s.cur, tick)
			return budget
		}
		s.queue.popMin()
		s.cur = max(s.cur, top.at)
		s.takeOff(top)
	}
	return budget
}

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
		b.state = bucketCascading
		s.cascade.push(b)
	}
}

// cascadeChunk moves the timers of one chunk of an expired bucket to where they belong now, and returns
// the number of steps it took.
func (s *shard) cascadeChunk() int {
	b := s.cascade.head
	if b.live == 0 {
		s.cascade.pop()
		s.freeBucket(b)
		return 1
	}
	var idx [chunkSize]uint32
	var nodes [chunkSize]*node
	n := s.drainChunk(b, &idx)
	for k, i := range idx[:n] { // apart from placing, so that cache misses overlap
		nodes[k] = s.nodes.must(i)
	}
	for k, i := range idx[:n] {
		s.route(i, nodes[k])
	}
	if b.level > 0 {
		s.counters.moved += uint64(n)
	}
	return max(n, 1)
}
