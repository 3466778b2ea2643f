package timingwheel

import (
	"cmp"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// advanceTo moves the clock of a Manual wheel, never back, and runs or submits the due timers. It
// returns the number of timers that it has claimed or submitted.
func (e *engine[T]) advanceTo(t time.Time) int {
	if !e.Manual {
		panic("timingwheel: Advance of a wheel that is not Manual")
	}
	if !e.advancing.CompareAndSwap(false, true) {
		panic("timingwheel: Advance while another Advance of the same wheel is under way")
	}
	defer e.advancing.Store(false)
	now, _ := e.Instant(t)
	now = min(now, e.ticks.Begin(clock.LastTick)-1)
	served := 0
	for _, s := range e.shards {
		served += e.advanceShard(s, now)
	}
	return served + e.dispatch()
}

// advanceShard moves the clock of one shard and gathers the timers that have become due. It returns
// the number of these timers for which the executor already has calls: calls for timers that were
// stopped, or calls whose batches have room. Callers arm timers relative to the old clock until
// the new one is stored.
func (e *engine[T]) advanceShard(s *shardOf[T], now int64) int {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0
	}
	o := &s.owner
	s.setClaiming(true)
	s.drainAll()
	waiting := min(o.due.ready, o.pool.queuedCalls*s.perCall)
	o.due.openBucket = nil
	for o.due.nextAdvance.head != nil {
		o.gather(o.due.nextAdvance.pop(), o.tick) // timers that became due during the last Advance
	}
	now = max(now, s.now.Load())
	tick := s.ticks.Floor(now)
	for b := o.wheel.pop(tick); b != nil; b = o.wheel.pop(tick) {
		o.tick = b.key
		o.gather(b, o.wheel.cur)
	}
	o.tick = max(o.tick, tick)
	s.armMu.Lock()
	s.inbox.now = now
	s.now.Store(now)
	s.armMu.Unlock()
	return o.due.ready - waiting - o.uncovered()
}

// dispatch runs or submits the due timers of a Manual wheel and returns their number.
func (e *engine[T]) dispatch() int {
	n := 0
	if e.shards[0].run == Inline {
		n = e.runDue()
	} else {
		n = e.submitAllDue()
	}
	for _, s := range e.shards {
		s.wheelMu.Lock()
		if !s.closed.Load() {
			s.setClaiming(s.owner.due.ready > 0)
		}
		s.unlockAndDrain()
	}
	return n
}

// runDue runs the due timers of all shards in order of ticks and returns the number of claimed
// timers.
func (e *engine[T]) runDue() int {
	total := 0
	for {
		var s *shardOf[T]
		first := int64(never)
		for _, c := range e.shards {
			c.wheelMu.Lock()
			if at := c.owner.dueTick(); at < first {
				s, first = c, at
			}
			c.unlockAndDrain()
		}
		if s == nil {
			return total
		}
		total += s.runUpTo(first)
	}
}

// runUpTo runs the timers that are due at the tick or before on this goroutine and returns the
// number of claimed timers. If a callback panics or exits, the other timers stay due for the next
// Advance.
func (s *shardOf[T]) runUpTo(tick int64) int {
	s.wheelMu.Lock()
	w := s.newWorker()
	w.begin()
	defer w.exit()
	total := 0
	for s.owner.dueBefore(tick + 1) {
		total += w.runOne(tick + 1)
	}
	return total
}

// submission is the number of calls that the executor of a Manual wheel gets for one due bucket.
type submission struct {
	tick  int64
	shard int
	calls int
}

// submitAllDue gives the executor the calls for everything that is due, in order of ticks, and
// returns the number of timers that these calls are for.
//
// A call takes the first due timer of its shard, so the list of submissions only says which shard
// is next. Callbacks that the executor runs on this goroutine may claim, stop or flush timers that
// come later in the list. If such a callback has recovered from a Flush that unwound, calls may be
// missing at the end, so submitAllDue collects a second list. It collects no third one, because
// the callbacks of the second list may do the same again.
func (e *engine[T]) submitAllDue() (timers int) {
	for range 2 {
		var list []submission
		for k := range e.shards {
			list = e.collectSubmissions(list, k)
		}
		if len(list) == 0 {
			break
		}
		slices.SortStableFunc(list, func(a, b submission) int { return cmp.Compare(a.tick, b.tick) })
		for _, c := range list {
			s := e.shards[c.shard]
			s.wheelMu.Lock()
			timers += s.submitUpTo(c.calls)
			s.unlockAndDrain()
		}
	}
	return timers
}

// collectSubmissions appends a submission for each due bucket of the shard with index k. After a
// Flush the due timers may not be in order of ticks. The submissions keep the order of the list.
func (e *engine[T]) collectSubmissions(list []submission, k int) []submission {
	s := e.shards[k]
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return list
	}
	s.drainAll()
	o := &s.owner
	if o.batchesDue() <= 0 {
		return list
	}
	timers, given, tick := 0, o.pool.queuedCalls, int64(0)
	add := func(n int, at int64) {
		timers += n
		tick = max(tick, at)
		if calls := (timers+s.perCall-1)/s.perCall - given; calls > 0 {
			list = append(list, submission{tick, k, calls})
			given += calls
		}
	}
	for _, e := range o.due.entries[o.due.taken:] {
		add(1, e.word.Tick())
	}
	for b := range o.due.buckets.all {
		add(b.live, b.at)
	}
	return list
}
