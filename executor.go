package timingwheel

import (
	"container/list"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/pool"
)

// Executor determines which goroutines run callbacks. A *sync.WaitGroup is an Executor, and
// [ExecutorFunc] adapts the methods of most pools. [Inline], [Goroutines] and the results of
// [Limit] are Executors.
//
// The wheel calls Go once per callback that is due, or with [Timeouts] once per batch. The call
// comes from one of the wheel's goroutines, which holds no lock, or in Manual mode from the caller
// of Advance or Flush. Go must call f exactly once, now or later, on any goroutine. It must not
// block for long, because the wheel hands over no other callback from the same shard meanwhile.
//
// f claims its timer and runs the callback. Until f is called, the timer stays pending and can be
// stopped or rescheduled. If it was stopped or is no longer due, f does nothing. A call to Go may
// still be under way when [TimingWheel.Stop] returns, but not once [TimingWheel.Shutdown] has
// returned nil. If f is called after the wheel was stopped, it does nothing.
type Executor interface{ Go(f func()) }

// ExecutorFunc turns a function, such as a method of a pool, into an [Executor]:
//
//	Executor: timingwheel.ExecutorFunc(func(f func()) { pool.Submit(f) })
type ExecutorFunc func(f func())

// Go calls e(f).
func (e ExecutorFunc) Go(f func()) { e(f) }

// Inline is an [Executor] that runs each callback on the wheel goroutine that finds it due, one at
// a time in each shard. It is for tiny callbacks that never block: one that blocks delays all other
// timers in its shard. In Manual mode callbacks run on the goroutine that calls Advance.
var Inline Executor = inline{}

// Goroutines is an [Executor] that starts a new goroutine for each callback, as [time.AfterFunc]
// does.
var Goroutines Executor = goroutines{}

type inline struct{}

func (inline) Go(f func()) { f() }

type goroutines struct{}

func (goroutines) Go(f func()) { go f() }

// Limit returns an [Executor] that runs at most n callbacks of a wheel, or n batches of [Timeouts],
// at a time. It reuses its goroutines, except in Manual mode. Other timers that are due stay
// pending, and can be stopped or rescheduled. Callbacks that wait for other callbacks may deadlock
// at the limit. The Executor serves only one wheel: [New] returns an error for a second wheel. If
// several wheels must share a limit, use a pool. Limit panics if n is not positive.
func Limit(n int) Executor {
	if n < 1 {
		panic(fmt.Sprintf("timingwheel: Limit: n is %d; it must be positive", n))
	}
	return &limit{n: n, running: make(chan struct{}, n)}
}

type limit struct { // a wheel makes a pool of it; only a Manual one calls Go
	n       int
	used    atomic.Bool   // by a wheel
	running chan struct{} // functions of Go
}

func (l *limit) Go(f func()) {
	go func() {
		l.running <- struct{}{}
		defer func() { <-l.running }()
		f()
	}()
}

// due is the room behind the wheel: a queue of handles of timers that have expired, and the
// goroutines that claim and run them. It is a [pool.Pool], or [dueCalls] for an executor and in
// Manual mode.
type due interface {
	Put(timers []Timer, more bool) // appends timers; more: a shard has more; Wake follows, except in More
	Wake()                         // runs or hands over what is queued
	Close()                        // discards what has not begun
	Idle() <-chan struct{}
	Running() int          // running callbacks, or running batches
	Waiting(n int) []Timer // timers that were handed over, and up to n at the head of the queue
}

type poolHost struct { // a pool.Host
	engine *engine
	due    due
}

func (h *poolHost) Run(timers []Timer) { h.engine.job.serve(timers) }

func (h *poolHost) Live() func(Timer) bool { return h.engine.liveFilter() }

// More does the work of drivers that are late, also of other pools, which it wakes.
func (h *poolHost) More() {
	c := &h.engine.config
	tick := c.ticks.Floor(c.Read())
	for _, s := range h.engine.shards {
		if own := s.alarm.due == h.due; s.alarm.driveIfLate(tick, own) && !own {
			go s.alarm.due.Wake()
		}
	}
}

// liveFilter returns a filter that drops the entries of timers that were stopped or moved. It keeps
// the first entry of every other timer.
func (e *engine) liveFilter() func(Timer) bool {
	type marks [arena.PageSize / 64]uint64
	seen := make(map[*pageRef]*marks)
	return func(t Timer) bool {
		if !t.isDue() {
			return false
		}
		p := seen[t.ref]
		if p == nil {
			p = new(marks)
			seen[t.ref] = p
		}
		word, bit := &p[t.index&arena.PageMask/64], uint64(1)<<(t.index%64)
		first := *word&bit == 0
		*word |= bit
		return first
	}
}

// dueCalls runs timers, or hands them over, on the goroutine that calls Wake. Outside Manual mode
// each shard has its own, so that the callbacks of [Inline] do not overlap within a shard.
type dueCalls struct {
	engine   *engine
	executor Executor

	mu      sync.Mutex
	queue   pool.Queue[Timer]
	handed  list.List // of []Timer: batches whose functions have not begun
	serving bool      // a goroutine hands over
	going   int       // calls to Executor.Go that have not returned
	running int       // callbacks, or batches, that have begun and not returned
	free    []Timer   // memory of a batch
	idle    pool.Idle
}

func (c *dueCalls) Put(timers []Timer, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.Push(timers)
	c.queue.Sweep(c.engine.liveFilter)
}

// Wake runs or hands over all timers of the queue, unless another goroutine does. If a callback or
// Executor.Go exits the goroutine, another one continues.
func (c *dueCalls) Wake() {
	c.mu.Lock()
	if c.serving {
		c.mu.Unlock()
		return
	}
	c.serving = true
	defer func() {
		c.serving = false
		left := c.queue.Len() > 0
		c.mu.Unlock()
		if left { // the goroutine is exiting
			go c.Wake()
		}
	}()
	c.serve(math.MaxInt)
}

// serve takes up to most timers off the queue and returns how many it has run or handed over. mu is
// held before and after, even if a callback or Executor.Go unwinds.
func (c *dueCalls) serve(most int) (n int) {
	for most > 0 && c.queue.Len() > 0 {
		b := c.queue.Pop(c.free, c.engine.perCall)
		c.free = nil
		most -= len(b)
		if c.executor == Inline {
			n += c.inline(b)
		} else {
			n += c.hand(b)
		}
	}
	return n
}

// inline runs a batch on this goroutine. mu is held before and after.
func (c *dueCalls) inline(b []Timer) int {
	c.running++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		clear(b)
		c.free = b[:0]
		c.running--
		c.idle.Ended(c.running + c.going)
	}()
	return c.engine.job.serve(b)
}

// hand gives the executor a function that runs the batch without the timers that were stopped or
// moved. mu is held before and after. If Go unwinds, the function may be lost, so the batch returns
// to the queue. If the function is not lost, the claims decide.
func (c *dueCalls) hand(b []Timer) int {
	b = slices.DeleteFunc(b, func(t Timer) bool { return !t.isDue() })
	if len(b) == 0 {
		c.free = b
		return 0
	}
	c.going++
	handed := c.handed.PushBack(b)
	c.mu.Unlock()
	returned := false
	defer func() {
		c.mu.Lock()
		c.going--
		if !returned {
			c.handed.Remove(handed)
			c.queue.Return(b)
		}
		c.idle.Ended(c.running + c.going)
	}()
	c.executor.Go(func() { c.call(handed) })
	returned = true
	return len(b)
}

// call is the function that an executor gets.
func (c *dueCalls) call(handed *list.Element) {
	c.mu.Lock()
	if isClosed(c.engine.stopped) {
		c.mu.Unlock()
		return
	}
	c.handed.Remove(handed) // no effect if it is called again
	c.running++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		c.idle.Ended(c.running + c.going)
	}()
	c.engine.job.serve(handed.Value.([]Timer))
}

func (c *dueCalls) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = pool.Queue[Timer]{}
	for e := c.handed.Front(); e != nil; e = c.handed.Front() {
		c.handed.Remove(e) // after Init, the Remove in call would corrupt the list
	}
}

func (c *dueCalls) Idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle.Channel(c.running + c.going)
}

func (c *dueCalls) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

func (c *dueCalls) Waiting(n int) (timers []Timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.handed.Front(); e != nil && len(timers) < n; e = e.Next() {
		timers = append(timers, e.Value.([]Timer)...)
	}
	return append(timers, c.queue.Peek(n)...)
}
