package timingwheel

import (
	"context"
	"math"
	"reflect"
	"time"

	"go.uber.org/atomic"
)

// engine is the shards of one wheel. [TimingWheel] and [Timeouts] are its two faces.
type engine[T any] struct {
	config
	shards    []*shardOf[T]
	routes    *routes      // nil where there is one shard
	executor  Executor     // nil: pooled
	run       func([]T)    // runs one batch; OnPanic and ProfileLabels are seen to
	watch     *watchdog[T] // nil: nobody asks how long callbacks take
	panics    tally
	tick      time.Duration
	name      string
	labels    *labels
	advancing atomic.Bool
}

// newEngine makes the shards for options that may be invalid. batch is the number of payloads that one
// call of expire takes at most.
func newEngine[T any](opts Options, batch int, expire func([]T)) (*engine[T], error) {
	return newEngineAt(opts, batch, 0, expire)
}

// newEngineAt lets tests begin at any reading of the clock.
func newEngineAt[T any](opts Options, batch int, origin int64, expire func([]T)) (*engine[T], error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	e := &engine[T]{config: opts.config(), executor: opts.Executor, tick: opts.Tick, name: opts.Name}
	e.batch = batch
	e.timeline = timeline{base: opts.Start, origin: origin, manual: opts.Manual}
	e.scanned = holdsPointers(reflect.TypeFor[T]())
	e.start()
	e.dress(opts, expire)
	e.shards = make([]*shardOf[T], opts.Shards)
	if opts.Shards > 1 {
		e.routes = newRoutes(opts.Shards)
	}
	for i := range e.shards {
		s := &shardOf[T]{engine: e}
		s.call = s.runOne
		s.init(e.config, s)
		s.labels = e.labels
		e.shards[i] = s
	}
	return e, nil
}

// dress chooses how callbacks are called, once and for all: what no option asks for costs nothing then.
func (e *engine[T]) dress(opts Options, expire func([]T)) {
	e.run = expire
	if opts.OnPanic != nil {
		report := func(value any, stack []byte) {
			e.panics.Add(1)
			opts.OnPanic(value, stack)
		}
		e.run = func(items []T) { guard(func() { expire(items) }, report) }
	}
	name := namer(e.batch, expire)
	if opts.ProfileLabels {
		e.labels = newLabels(opts)
		e.run = labelled(e.labels, name, e.run)
	}
	if opts.SlowAfter > 0 {
		e.watch = newWatchdog(opts, name, e.run)
	}
}

// after arms a timer d from now.
func (e *engine[T]) after(d time.Duration, v T) Timer {
	now := int64(0)
	if !e.manual {
		now = e.clock()
	}
	s := e.pick()
	if e.manual {
		now = s.now
	}
	s.observe(now)
	t := s.arm(later(now, int64(d)), v)
	s.mu.Unlock()
	return t
}

// at arms a timer for t.
func (e *engine[T]) at(t time.Time, v T) Timer {
	deadline, now := e.instant(t)
	return e.armAt(deadline, now, v)
}

// armAt arms a timer for a reading of the clock. now is a reading that is not later than the call, or 0.
func (e *engine[T]) armAt(deadline, now int64, v T) Timer {
	s := e.pick()
	if !e.manual {
		if now == 0 && s.pending == 0 {
			now = s.clock()
		}
		s.observe(now)
	}
	timer := s.arm(deadline, v)
	s.mu.Unlock()
	return timer
}

func (e *engine[T]) pending() int {
	n := 0
	for _, s := range e.shards {
		s.mu.Lock()
		s.settleLots()
		n += s.pending
		s.mu.Unlock()
	}
	return n
}

// clockTime is the wheel's clock as a time.
func (e *engine[T]) clockTime() time.Time { return e.timeAt(e.reading()) }

// reading reads the wheel's clock.
func (e *engine[T]) reading() int64 {
	if !e.manual {
		return e.clock()
	}
	s := e.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// next is the earliest time at which a shard has something to do.
func (e *engine[T]) next() (at time.Time, ok bool) {
	first := int64(math.MaxInt64)
	for _, s := range e.shards {
		if t, some := s.nextDue(); some {
			first, ok = min(first, t), true
		}
	}
	if !ok {
		return time.Time{}, false
	}
	return e.shards[0].timeAt(first), true
}

// nextDue returns, in ns, when the first bucket is due.
func (s *shard) nextDue() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLots()
	s.settleWheel()
	if s.pending == 0 {
		return 0, false
	}
	tick := s.cur // something has expired and waits to be moved or claimed
	if s.ready == 0 && len(s.lots) == 0 && !s.someExpired() {
		s.dropEmptyTop()
		if top, ok := s.queue.min(); ok {
			tick = top.key
		}
	}
	if tick > math.MaxInt64/s.ticks.d {
		return math.MaxInt64, true
	}
	return tick * s.ticks.d, true
}

func (e *engine[T]) stop() {
	for _, s := range e.shards {
		s.halt()
	}
}

func mustHaveContext(ctx context.Context) {
	if ctx == nil {
		panic("timingwheel: Shutdown with a nil context")
	}
}

// shutdown stops the wheel and waits until nothing is running, and then until nothing is being reported of what ran.
func (e *engine[T]) shutdown(ctx context.Context) error {
	e.stop()
	for _, s := range e.shards {
		if err := waitFor(ctx, s.idleChan()); err != nil {
			return err
		}
	}
	return waitFor(ctx, e.watch.silence())
}

// waitFor waits until done, which may be nil for what is done already, is closed.
func waitFor(ctx context.Context, done <-chan struct{}) error {
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idleChan returns a channel that is closed when nothing is running; nil if nothing is.
func (s *shard) idleChan() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.busy() {
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

// haltChan returns a channel that is closed when the shard is stopped.
func (s *shard) haltChan() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halting == nil {
		s.halting = make(chan struct{})
		if s.stopped {
			close(s.halting)
		}
	}
	return s.halting
}

// isClosed is false for a nil channel. Nobody sends on c.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isStopped reports whether what was pending in the shard has been discarded.
func (s *shard) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}
