package timingwheel

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// poolHost runs the timers of a pool. It implements [pool.Host].
type poolHost[T any] struct {
	engine *engine[T]
	due    due
}

func (h *poolHost[T]) Run(timers []Timer) { h.engine.run(timers) }
func (h *poolHost[T]) More()              { h.engine.more(h.due) }

// more does the work of drivers that are late. It queues timers for d, and for others, which it
// wakes.
func (e *engine[T]) more(d due) {
	tick := e.ticks.Floor(e.Read())
	for _, s := range e.shards {
		if own := s.alarm.due == d; s.alarm.driveIfLate(tick, own) && !own {
			go s.alarm.due.Wake()
		}
	}
}

// run claims the timers of a batch and calls their callbacks, or one callback for all payloads. It
// returns the number of claims. It reads the clock once, at the beginning.
func (e *engine[T]) run(timers []Timer) int {
	c := claims[T]{engine: e, now: e.reading(), buffer: e.takeValues()}
	c.values = c.buffer.values
	c.tick = e.ticks.Floor(c.now)
	defer c.end()
	load(timers)
	if e.perCall > 1 {
		c.claimAll(timers)
		return c.n
	}
	for _, t := range timers {
		if c.claim(t) {
			c.call()
		}
	}
	return c.n
}

// claimAll claims timers and makes one call for all payloads. The wheel's Stop waits for the
// claims: only a few instructions lie between the last one and the call.
func (c *claims[T]) claimAll(timers []Timer) {
	e := c.engine
	e.claims.claiming.Add(1)
	for _, t := range timers {
		c.claim(t)
	}
	e.claims.claiming.Add(-1)
	if len(c.values) > 0 {
		c.call()
	}
}

// load reads the words of timers in a loop that does nothing else, so that the cache misses
// overlap.
func load(timers []Timer) (all arena.Word) {
	for _, t := range timers {
		if pg := t.ref.page.Load(); pg != nil {
			all |= pg.Load(t.index)
		}
	}
	return all
}

// claimState is what all batches of a wheel share.
type claimState[T any] struct {
	values   atomic.Pointer[valueBuffer[T]] // for reuse; may be nil
	lateness latenessCount
	claiming atomic.Int32 // batches with claims for one call that has not begun
}

// claims are the claims of one batch.
type claims[T any] struct {
	engine    *engine[T]
	now, tick int64 // the clock at the beginning of the batch
	n         int
	buffer    *valueBuffer[T]
	values    []T          // claimed payloads whose call has not begun
	counted   *countedFunc // of the call, if its calls are counted; else nil

	// The claimed slots of shard, which their words connect, wait to be pushed.
	shard       *shardOf[T]
	page        *arena.Page // of first
	first, last uint32      // slot; link
	slots       int

	// The lateness of claimed timers of one tick, which is not recorded yet.
	lateTick int64
	late     uint64
}

// claim claims a timer, appends its payload to values, and reports whether it did. It fails if the
// timer has been stopped, moved, claimed before, or discarded by the wheel's Stop. A timer that was
// postponed goes back to the inbox.
func (c *claims[T]) claim(t Timer) bool {
	s, _ := t.ref.shard.host.(*shardOf[T])
	pg := t.ref.page.Load()
	if pg == nil {
		return false
	}
	i := t.index
	for {
		w := pg.Load(i)
		switch k := w.Kind(); {
		case w.Gen() != t.gen:
			return false
		case k == arena.Placed && s.Manual && !s.inbox.order.collected(i):
			return false // it was moved, and this entry is an old one
		case k == arena.Placed && w.Tick() > c.tick:
			if s.returnMoved(pg, i, w) || s.closed.Load() {
				return false
			}
			continue
		case k != arena.Placed && k != arena.Flushed:
			return false
		}
		if c.shard != s {
			c.push()
			c.shard = s
		}
		values := s.values.At(i >> arena.PageShift) // before the claim: the wheel's Stop drops the table
		if values == nil {
			return false
		}
		counted := s.countCall(i, w)
		if !pg.Swap(i, w, w.With(arena.Spent).WithBits(uint64(c.last))) {
			if counted != nil && w.Kind() == arena.Placed {
				s.countedFuncs.waits.callEnded(counted)
			}
			continue
		}
		if c.n++; c.n > 1 && w.Tick() == c.lateTick {
			c.late++
		} else {
			c.recordFirst(w.Tick())
		}
		if w.Kind() == arena.Flushed {
			s.claims.flushBegun.Add(1)
		} else {
			s.claims.fired.Add(1)
		}
		c.counted = counted
		p := &values[i&arena.PageMask]
		if counted != nil {
			s.countedFuncs.clear(i)
			c.values = append(c.values, any(counted.f).(T))
		} else {
			c.values = append(c.values, *p)
		}
		if s.scanned {
			var zero T
			*p = zero
		}
		if c.last = i + 1; c.slots == 0 {
			c.first, c.page = i, pg
		}
		c.slots++
		return true
	}
}

// call calls the callback, or the function of all payloads, in values, within OnPanic and Around.
// It is the only place from which the engine calls a function of the user. A plan calls Around
// itself, because it knows the user's function.
func (c *claims[T]) call() {
	e := c.engine
	if c.counted != nil {
		defer e.funcTimers.calls.callEnded(c.counted)
	}
	f := uintptr(0)
	if e.around.hook != nil {
		f = e.job.callee(c.values)
	}
	if f != 0 {
		e.runAround(f, c.values)
	} else {
		e.job.guarded(c.values)
	}
	clear(c.values)
	c.values = c.values[:0]
}

// recordFirst records the lateness of a claimed timer, which is the first one of its tick.
func (c *claims[T]) recordFirst(tick int64) {
	c.recordLate()
	c.lateTick, c.late = tick, 1
	c.recordLate()
}

func (c *claims[T]) recordLate() {
	if c.late > 0 {
		c.engine.claims.lateness.record(time.Duration(c.now-c.engine.ticks.Begin(c.lateTick)), c.late)
		c.late = 0
	}
}

// push pushes the claimed slots of the shard.
func (c *claims[T]) push() {
	if c.slots == 0 {
		return
	}
	s := c.shard
	s.claims.spent.pushChain(c.page, c.first, c.last, c.slots)
	c.slots, c.last = 0, 0
	s.freeClaimed()
}

// end is called after the last claim, also after a panic and runtime.Goexit.
func (c *claims[T]) end() {
	c.push()
	c.recordLate()
	if len(c.values) == 0 { // else a callback has exited, which may have kept the memory
		c.buffer.values = c.values
		c.engine.claims.values.Store(c.buffer)
	}
}

// valueBuffer is memory for the payloads of a batch.
type valueBuffer[T any] struct {
	values []T
	one    [1]T // memory of values for callbacks
}

// takeValues returns memory for the payloads of a batch.
func (e *engine[T]) takeValues() *valueBuffer[T] {
	buffer := e.claims.values.Swap(nil)
	if buffer == nil {
		buffer = new(valueBuffer[T])
		if e.perCall == 1 { // otherwise one would keep the first payload when values grows
			buffer.values = buffer.one[:0]
		}
	}
	return buffer
}

// latenessCount is a histogram with a lock.
type latenessCount struct {
	mu sync.Mutex
	Histogram
}

func (l *latenessCount) record(d time.Duration, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordN(d, n)
}

func (l *latenessCount) snapshot() Histogram {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Histogram
}
