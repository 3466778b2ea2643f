package timingwheel

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// advance is memory that calls to Advance reuse, and the flag that one is running.
type advance struct {
	running atomic.Bool
	timers  []Timer
	all     []collected
}

type collected struct {
	tick  int64
	shard int
	stamp uint64
	timer Timer
}

func (c collected) compare(o collected) int {
	return cmp.Or(cmp.Compare(c.tick, o.tick), cmp.Compare(c.shard, o.shard), cmp.Compare(c.stamp, o.stamp))
}

// collectedFlag is a flag of a stamp: an Advance has collected the timer, and a Reschedule has not
// moved it since.
const collectedFlag = 1 << 63

// setStamp gives record i of a Manual shard the next stamp when its timer is armed or moved. Timers
// of one tick run in the order of their stamps. mu is held.
func (ib *inbox) setStamp(i uint32) {
	ib.stamp++
	ib.shard.page(i).stamps[i&arena.PageMask].Store(ib.stamp)
}

// stamp returns the stamp of a timer of a Manual wheel, or nil if the wheel is stopped.
func (t Timer) stamp() *atomic.Uint64 {
	p := t.ref.shard.page(t.index)
	if p == nil {
		return nil
	}
	return &p.stamps[t.index&arena.PageMask]
}

func (t Timer) isCollected() bool {
	stamp := t.stamp()
	return stamp != nil && stamp.Load()&collectedFlag != 0
}

// advanceTo moves the clock of a Manual wheel, never back, and runs or hands over the due timers.
// It returns the number of timers that it has claimed or handed over.
func (e *engine) advanceTo(t time.Time) int {
	if !e.opts.Manual {
		panic("timingwheel: Advance called on a wheel that is not Manual")
	}
	if !e.advance.running.CompareAndSwap(false, true) {
		panic("timingwheel: Advance called while another Advance on the same wheel is under way")
	}
	defer e.advance.running.Store(false)
	now, _ := e.config.Instant(t)
	now = min(now, e.config.ticks.Begin(clock.LastTick)-1)
	e.dropStale()
	timers, all := e.advance.timers[:0], e.advance.all[:0]
	for k, s := range e.shards {
		all = s.collectDue(all, k, now)
	}
	slices.SortFunc(all, collected.compare)
	for k := range all {
		timers = append(timers, all[k].timer)
	}
	e.dues[0].Put(timers, false)
	clear(timers)
	clear(all)
	if e.advance.timers, e.advance.all = timers, all; len(all) > quantum {
		e.advance.timers, e.advance.all = nil, nil
	}
	return e.serveDue()
}

// dropStale drops the entries of timers that were stopped or moved. Entries are left in the queue
// if a callback has panicked or exited. Their timers are due no later than those that this
// Advance collects.
func (e *engine) dropStale() {
	c := e.dues[0].(*dueCalls)
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.queue.Pop(nil, c.queue.Len())
	c.queue.Push(slices.DeleteFunc(left, func(t Timer) bool { return !t.isDue() }))
}

// serveDue runs or hands over the due timers of a Manual wheel. If a callback has recovered from a
// Flush that has unwound, timers are left in the queue, so serveDue makes a second pass. It makes
// no third one, because callbacks may do the same again.
func (e *engine) serveDue() int {
	c := e.dues[0].(*dueCalls)
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.serve(c.queue.Len())
	return n + c.serve(c.queue.Len())
}

// collectDue moves the clock of shard k of a Manual wheel and appends the timers that have become
// due to all. Callers arm timers relative to the old clock until the new one is stored. A
// Reschedule that comes before that leaves the timer where it is, perhaps in expired.
func (s *shard) collectDue(all []collected, k int, now int64) []collected {
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return all
	}
	s.owner.drainAll()
	o := &s.owner
	now = max(now, s.now.Load())
	o.tick = s.config.ticks.Floor(now)
	for !o.expire() {
	}
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	s.now.Store(now)
	s.config.Manual.Store(now)
	for _, t := range o.expired {
		_, w := t.load()
		switch {
		case w.Kind() != arena.Placed: // stopped, or moved to the inbox
		case w.Tick() <= o.tick:
			if stamp := t.stamp().Or(collectedFlag); stamp&collectedFlag == 0 {
				all = append(all, collected{w.Tick(), k, stamp, t})
			}
		case *o.store.pos(t.index) == 0:
			o.put(t.index, w)
		}
	}
	o.clearExpired()
	return all
}
