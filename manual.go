package timingwheel

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// advanceTo moves the clock of a Manual wheel, never back, and runs or hands over what was due. It
// returns how many timers it claimed or handed over.
func (e *engine[T]) advanceTo(t time.Time) int {
	if !e.manual {
		panic("timingwheel: Advance of a wheel that is not Manual")
	}
	if !e.advancing.CompareAndSwap(false, true) {
		panic("timingwheel: Advance while another Advance of the same wheel is under way")
	}
	defer e.advancing.Store(false)
	now, _ := e.instant(t)
	now = min(now, math.MaxInt64-1) // the last reading is never reached: it stands for "not at all"
	served := 0
	for _, s := range e.shards {
		served += s.advance(now)
	}
	return served + e.dispatch()
}

// dispatch runs what is due in Manual mode, or hands it over, and returns how many timers that was.
func (e *engine[T]) dispatch() int {
	if e.executor == Inline {
		return e.runDue()
	}
	return e.handDue()
}

// runDue runs the due timers of all shards in order of ticks and returns how many it has claimed.
func (e *engine[T]) runDue() int {
	total := 0
	for {
		var s *shardOf[T]
		first := int64(never)
		for _, c := range e.shards {
			if at := c.firstDueTick(); at < first {
				s, first = c, at
			}
		}
		if s == nil {
			return total
		}
		total += s.runBucket(first)
	}
}

// firstDueTick is the tick of the first due bucket with timers.
func (s *shard) firstDueTick() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.firstDue(); b != nil {
		return b.at
	}
	return never
}

// runBucket runs what is due at the tick on this goroutine and returns how many it claimed. If a
// callback panics or exits, the rest stays due for the next Advance.
func (s *shardOf[T]) runBucket(tick int64) int {
	w := worker[T]{s: s, upTo: tick + 1}
	s.mu.Lock()
	w.begin()
	defer w.end()
	w.buffer, s.buffer = s.buffer, nil
	total := 0
	for s.dueBefore(w.upTo) {
		batch := w.claim()
		total += len(batch)
		w.run(batch)
	}
	return total
}

// dueBefore reports whether the first due bucket with timers is one before the tick.
func (s *shard) dueBefore(tick int64) bool {
	b := s.firstDue()
	return b != nil && b.at < tick
}

// handover is calls that the executor of a Manual wheel is to be given for one due bucket.
type handover struct {
	tick  int64
	shard *shard
	calls int
}

// handDue gives the executor the calls for what is due, in order of ticks, and returns for how many timers
// they are. A call takes the first timer of its shard that is due, so the plan only says whose turn it is:
// callbacks that the executor runs here may claim, stop or flush what the plan has later. If one of them
// has recovered from a Flush that unwound, calls may be missing in the end, so there is a second plan, but
// no third: the callbacks of that may do so again.
func (e *engine[T]) handDue() (timers int) {
	for range 2 {
		var plan []handover
		for _, s := range e.shards {
			plan = s.planCalls(plan)
		}
		if len(plan) == 0 {
			break
		}
		slices.SortStableFunc(plan, func(a, b handover) int { return cmp.Compare(a.tick, b.tick) })
		for _, h := range plan {
			h.shard.mu.Lock()
			timers += h.shard.handUpTo(h.calls)
			h.shard.mu.Unlock()
		}
	}
	return timers
}

// planCalls appends the calls for each due bucket of the shard. After a Flush its buckets may be out of
// the order of ticks; the calls are for the first in the list nevertheless.
func (s *shard) planCalls(plan []handover) []handover {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls() <= 0 {
		return plan
	}
	timers, given, tick := 0, s.owed, int64(0)
	for b := s.due.head; b != nil; b = b.next {
		timers += b.live
		tick = max(tick, b.at)
		if calls := (timers+s.batch-1)/s.batch - given; calls > 0 {
			plan = append(plan, handover{tick, s, calls})
			given += calls
		}
	}
	return plan
}

// advance moves the clock of one shard and gathers what has become due. It returns for how many of these
// timers an executor has calls already, left from timers that were stopped or with room in their batch. Timers are armed relative to
// the old clock until that is done; the lock is held throughout.
func (s *shard) advance(now int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return 0
	}
	waiting := min(s.ready, s.owed*s.batch)
	s.settleWheel()
	s.admit()
	tick := s.ticks.floor(max(now, s.now))
	for {
		top, ok := s.queue.min()
		if !ok || top.at > tick {
			break
		}
		s.queue.popMin()
		s.moveTo(max(s.cur, top.at))
		empty := top.live == 0
		s.unslot(top)
		if !empty {
			top.horizon = top.at * s.ticks.d
			s.gather(top)
		}
	}
	s.moveTo(max(s.cur, tick))
	s.observe(now)
	s.checkLocked()
	return s.ready - waiting - s.uncovered()
}

// admit makes due what became so since the last Advance began.
func (s *shard) admit() {
	for s.fresh.head != nil {
		b := s.fresh.pop()
		b.state = bucketDue
		s.ready += b.live
		s.due.push(b)
	}
	s.prompt = nil
}

// gather makes a bucket due that has left its slot: timers of a coarse level and postponed ones go to
// where they belong now, the others stay, in the order in which they were armed.
func (s *shard) gather(b *bucket) {
	due := s.scratch[:0]
	var idx [chunkSize]uint32
	for b.live > 0 {
		for _, i := range idx[:s.drainChunk(b, &idx)] {
			n := s.nodes.must(i)
			switch {
			case b.level == 0 && n.due() <= b.horizon:
				due = append(due, i)
			default:
				s.place(i, n, s.ticks.ceil(n.due()))
				if b.level > 0 {
					s.counters.moved++
				}
			}
		}
	}
	if len(due) == 0 {
		s.freeBucket(b)
		return
	}
	byArming := func(i, j uint32) int { return cmp.Compare(*s.order(i), *s.order(j)) }
	if !slices.IsSortedFunc(due, byArming) {
		slices.SortFunc(due, byArming)
	}
	b.state = bucketDue
	for _, i := range due {
		s.append(b, i, s.nodes.must(i))
	}
	s.ready += len(due)
	s.due.push(b)
	if cap(due) <= quantum {
		s.scratch = due[:0]
	}
}
