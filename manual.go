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
	for _, s := range e.shards {
		s.advance(now)
	}
	return e.runDue()
}

// runDue runs the due timers of all shards in order of ticks.
func (e *engine[T]) runDue() int {
	total := 0
	for {
		var s *shardOf[T]
		first := int64(never)
		for _, c := range e.shards {
			if at := c.firstUnhanded(); at < first {
				s, first = c, at
			}
		}
		if s == nil {
			return total
		}
		if e.executor == Inline {
			total += s.runBucket(first)
		} else {
			total += s.handBucket(first)
		}
	}
}

// firstUnhanded is the tick of the first due bucket that has not been handed to the executor.
func (s *shard) firstUnhanded() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := s.due.head; b != nil; b = b.next {
		if b.live > 0 && !b.handed {
			return b.at
		}
	}
	return never
}

// runBucket runs what is due at the tick on this goroutine and returns how many it claimed. If a
// callback panics or exits, the rest stays due for the next Advance.
func (s *shardOf[T]) runBucket(tick int64) int {
	w := worker[T]{s: s, upTo: tick + 1}
	s.mu.Lock()
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

// handBucket hands what is due at the tick to the executor and returns how many timers that is. Where
// a callback that the executor runs here unwinds, the next Advance hands over what is left.
func (s *shardOf[T]) handBucket(tick int64) int {
	s.mu.Lock()
	total := 0
	var marked []*bucket
	for b := s.due.head; b != nil; b = b.next {
		if b.handed {
			continue
		}
		if b.at > tick {
			break // a call takes the first timer in the list, so calls are given in that order
		}
		b.handed = true
		total += b.live
		marked = append(marked, b)
	}
	returned := false
	defer func() {
		if !returned {
			s.mu.Lock()
			for _, b := range marked {
				b.handed = false
			}
		}
		s.mu.Unlock()
	}()
	for k := 0; k < (total+s.batch-1)/s.batch && !s.stopped; k++ {
		s.handOne()
	}
	returned = true
	return total
}

// advance moves the clock of one shard and gathers what has become due. Timers are armed relative to
// the old clock until that is done; the lock is held throughout.
func (s *shard) advance(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.due.join(&s.fresh)
	s.prompt = nil
	for n := s.due.len(); n > 0; n-- {
		b := s.due.pop()
		s.ready -= b.live
		s.gather(b)
	}
	tick := s.ticks.floor(max(now, s.now))
	for {
		top, ok := s.queue.min()
		if !ok || top.at > tick {
			break
		}
		s.queue.popMin()
		s.cur = max(s.cur, top.at)
		empty := top.live == 0
		s.unslot(top)
		if !empty {
			top.horizon = top.at * s.ticks.d
			s.gather(top)
		}
	}
	s.cur = max(s.cur, tick)
	s.observe(now)
	s.checkLocked()
}

// gather makes a bucket due that has left its slot or waited for this Advance: timers of a coarse level
// and postponed ones go to where they belong now, the others stay, in the order in which they were armed.
func (s *shard) gather(b *bucket) {
	due := s.scratch[:0]
	var idx [chunkSize]uint32
	for b.live > 0 {
		for _, i := range idx[:s.drainChunk(b, &idx)] {
			n := s.nodes.must(i)
			switch {
			case b.flush || b.level == 0 && n.due() <= b.horizon:
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
		s.freeDue(b)
		return
	}
	byArming := func(i, j uint32) int { return cmp.Compare(s.armedAt(i), s.armedAt(j)) }
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

func (s *shard) armedAt(i uint32) uint64 { return s.seqs[i>>pageShift][i&pageMask] }
