// Package pool runs what a queue holds on a set of goroutines, so that a quick callback needs no
// goroutine of its own and a blocked one delays no other. It knows nothing of timers: its host puts
// items into the queue, and the pool gives them back to the host to be run.
//
// A goroutine of the pool is a worker. A worker takes a batch of items from the queue and, before
// it runs them, starts its spare, which is another goroutine. If a callback blocks, the scheduler
// runs the spare next, because the spare was started last. The spare becomes a worker and takes the
// batch over: the host skips the items that it has claimed. If no callback blocks, the worker runs
// several batches before its spare begins, and the spare finds nothing to do. A worker without work
// ends. A running worker is active while the pool expects it back at the queue soon.
//
// The rules, each with a benchmark that needs it:
//
//	R1  Wake makes the calling goroutine a worker. Running workers are no longer active, so the new
//	    worker runs what is in the queue. (BusyStream/busy=0)
//	R2  A batch has at most size callbacks, 1 to 32. The size doubles if a batch ends before the spare
//	    of its worker begins, and halves if the spare begins first, unless the worker is no longer
//	    active. With Limit, or PerCall above 1, it only tells whether callbacks block. (Burst)
//	R3  A worker starts its spare last, right before it runs a batch, unless the pool is full, its
//	    earlier spare has not begun, or no other work waits: a batch of several calls is work. Once
//	    the spare begins, the worker is no longer active. (BusyBlocked)
//	R4  A worker without a batch ends if Config.Active workers are active. While callbacks are quick
//	    and Limit is 0, one is enough: several would contend for the host's memory (Burst). While
//	    callbacks block, a worker that returns from one does not end, and runs the next one without a
//	    spare and without being active: its stack has grown (BurstBlocking). A worker asks the host
//	    for more before it ends on an empty queue, and if few items are left and the host has more.
//	    On a busy machine, workers thus do the work of a host that gets no processor. (BusySpread)
//	R5  While work waits and the pool is not full, a timer of 1 ms runs. When it goes off, its
//	    goroutine becomes a worker, and batches that ran already when it last went off return to the
//	    queue. If workers took fewer than 100 callbacks since it was set, the batch size is 1. If it
//	    was 1 already, callbacks may wake goroutines before they block. The scheduler runs a woken
//	    goroutine next, and a spare behind all busy goroutines. So, until the size is 32, expired
//	    timers start the spares: the scheduler looks at timers first. (BusyBlockedWaking)
//
// Invariants, whenever mu is free:
//
//	P1  A live item is in the queue or in a batch until Run has returned for it, or until Close.
//	P2  If the queue has items or the host has more, and no Wake is owed (see Put), then a worker is
//	    starting or serving, or an active worker has a spare that has not begun, or the pool is full.
//	P3  Until Close, a running batch of several callbacks is in batched and its worker has a spare
//	    that has not begun, unless the batch was taken over or returned to the queue.
//	P4  An active worker is running.
//	P5  After Close the queue is empty, and no batch begins.
package pool

import (
	"math"
	"sync"
	"time"
)

const (
	batchMax    = 32               // R2
	stallAfter  = time.Millisecond // R5
	progressMin = 100              // R5
	few         = 512              // R4
)

// Host is the owner of the items. Its methods are called without a lock, unless stated.
type Host[E any] interface {
	// Run runs items. If a callback takes long, or exits its goroutine, the pool passes the same
	// items to Run again, on another goroutine. So Run claims each item before it runs it, unless
	// it gets only one at a time: see Config. Run does not keep or write items. A panic that Run
	// does not recover crashes the program.
	Run(items []E)

	// Live returns a function that reports whether an item still has to be run. The function is
	// called for each item of the queue, with the lock of the pool.
	Live() func(E) bool

	// More is called by a worker if the queue is empty, or nearly empty and the host has more. More
	// puts into the pool what has become due meanwhile, and owes no Wake for it.
	More()
}

// Config is the configuration of a pool.
type Config struct {
	Active  int // a worker ends if this many others are active: see R4
	Limit   int // largest number of batches that run concurrently, each of one callback; 0: no limit
	PerCall int // largest number of items that one callback gets; 0 means 1
}

// Pool is a queue of items with the goroutines that run them. Its methods may be called
// concurrently. Make one with [New].
type Pool[E any] struct {
	host   Host[E]
	config Config

	mu      sync.Mutex
	closed  bool
	queue   Queue[E]
	more    bool                // the host has more
	asking  bool                // a worker calls More
	size    int                 // see R2; 1 until callbacks have proved quick
	active  int                 // see R4
	epoch   uint64              // active workers have this one; inactive ones have another
	batched map[*worker[E]]bool // see P3
	free    *worker[E]          // for reuse; may be nil
	running int                 // workers that run a batch
	stalls  stalls
	idle    Idle
}

// stalls is the state of R5.
type stalls struct {
	timer       *time.Timer // nil until it is set for the first time
	set         bool        // the timer is set, or its goroutine has not begun
	taken       int         // callbacks that workers took since the timer was set
	timedSpares bool        // expired timers start the spares
}

// New returns an empty pool.
func New[E any](host Host[E], c Config) *Pool[E] {
	c.PerCall = max(1, c.PerCall)
	return &Pool[E]{host: host, config: c, size: 1, epoch: 1, batched: map[*worker[E]]bool{}}
}

// Put appends items to the queue. more reports whether the host has more items, for which it waits
// until a worker calls [Host.More]. After one or several calls to Put, the caller owes a call to
// Wake. Put does nothing after Close.
func (p *Pool[E]) Put(items []E, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.more = p.more || more
		p.queue.Push(items)
		p.queue.Sweep(p.host.Live)
	}
}

// Wake makes the calling goroutine a worker, and returns when the goroutine is no longer needed. A
// callback may call runtime.Goexit, so Wake may not return.
func (p *Pool[E]) Wake() {
	p.mu.Lock()
	p.deactivateAll()
	p.newWorker().serveAndUnlock()
}

// Close discards the queue. Afterwards no batch begins. A batch that has begun continues: the
// host's own claims decide whether its callbacks still begin. All goroutines of the pool end, the
// running ones once Run returns. Close does not wait for them. It may be called more than once.
func (p *Pool[E]) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.queue, p.more = Queue[E]{}, false
	p.deactivateAll()
	clear(p.batched)
	p.setTimer()
}

// Idle returns a channel that is closed once no batch is running. If the pool is closed, none runs
// afterwards.
func (p *Pool[E]) Idle() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle.Channel(p.running)
}

// Idle has the channel on which callers wait until nothing is running. It takes no lock. The zero
// value has no channel.
type Idle struct{ c chan struct{} }

// Channel returns a channel that Ended closes, or that is closed already if nothing is running.
func (i *Idle) Channel(running int) <-chan struct{} {
	if i.c == nil {
		i.c = make(chan struct{})
	}
	c := i.c
	i.Ended(running)
	return c
}

// Ended is called when something has ended. It closes the channel if nothing is running.
func (i *Idle) Ended(running int) {
	if i.c != nil && running == 0 {
		close(i.c)
		i.c = nil
	}
}

// Running returns the number of workers that run a batch.
func (p *Pool[E]) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Waiting returns the items of batches of several callbacks, some of which may have begun, and up
// to n items at the head of the queue.
func (p *Pool[E]) Waiting(n int) (items []E) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.batched {
		items = append(items, w.items...)
	}
	return append(items, p.queue.Peek(n)...)
}

// enough reports whether enough workers are active: see R4. mu is held.
func (p *Pool[E]) enough() bool {
	quick := p.size > 1 && p.config.Limit == 0
	return p.active >= p.config.Active || quick && p.active > 0
}

// room returns the number of batches that Limit allows to run in addition. mu is held.
func (p *Pool[E]) room() int {
	if p.config.Limit == 0 {
		return math.MaxInt
	}
	return p.config.Limit - p.running
}

// hasWork reports whether there is work for a further worker. mu is held.
func (p *Pool[E]) hasWork() bool { return p.queue.Len() > 0 || p.more || len(p.batched) > 0 }

// setTimer sets or stops the timer of R5. While the pool is full, the timer could do nothing. mu is
// held.
func (p *Pool[E]) setTimer() {
	switch wait := p.hasWork() && p.room() > 0 && !p.closed; {
	case wait == p.stalls.set:
	case !wait:
		p.stalls.set = !p.stalls.timer.Stop()
	case p.stalls.timer == nil:
		p.stalls.set, p.stalls.taken = true, 0
		p.stalls.timer = time.AfterFunc(stallAfter, p.stall)
	default:
		p.stalls.set, p.stalls.taken = true, 0
		p.stalls.timer.Reset(stallAfter)
	}
}

// stall is called by the timer of R5.
func (p *Pool[E]) stall() {
	p.mu.Lock()
	p.stalls.set = false
	p.deactivateAll()
	for w := range p.batched {
		if w.seen {
			w.recall()
		}
		w.seen = true
	}
	if p.stalls.taken < progressMin {
		p.stalls.timedSpares = p.stalls.timedSpares || p.size == 1
		p.size = 1
	}
	p.newWorker().serveAndUnlock()
}

// runSpare runs the spare of a worker. It takes over a batch that the worker is running.
func (p *Pool[E]) runSpare(of *worker[E]) {
	p.mu.Lock()
	if of.spare = false; of.deactivate() {
		p.size = max(1, p.size/2)
	}
	w := p.newWorker()
	if p.batched[of] {
		delete(p.batched, of)
		w.items, w.seen, w.shared, of.shared = of.items, of.seen, true, true
	}
	w.serveAndUnlock()
}
