package timingwheel

import (
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// job claims due timers with payloads of type T and runs them.
type job[T any] struct {
	run    func([]T)         // runs one batch
	callee func([]T) uintptr // returns the code address of the user's function; 0: a plan's

	engine *engine                  // set by newEngine
	free   atomic.Pointer[batch[T]] // for reuse; may be nil
}

func (j *job[T]) newEngine(opts Options, origin int64, perCall int) (e *engine, err error) {
	e, err = newEngine(opts, origin, j, perCall)
	j.engine = e
	return e, err
}

func (j *job[T]) newPayloads() payloads { return new(payloadsOf[T]) }

func (j *job[T]) payloadSize() uintptr { return unsafe.Sizeof(*new(T)) }

// batch is a batch of due timers.
type batch[T any] struct {
	job       *job[T]
	now, tick int64 // the clock at the beginning of the batch
	n         int
	values    []T    // claimed payloads whose call has not begun
	one       [1]T   // memory of values for callbacks
	run       func() // runs values; nil without Around and OnPanic
	around    aroundCall
	counted   *rearmable // of the call, if its timer is of class Counted

	shard   *shard
	claimed chain // records of shard that are not pushed yet

	// The lateness of claimed timers of one tick, which is not recorded yet.
	lateTick int64
	late     uint64
}

func (j *job[T]) newBatch() *batch[T] {
	if b := j.free.Swap(nil); b != nil {
		return b
	}
	b := &batch[T]{job: j}
	if o := &j.engine.opts; o.Around != nil || o.OnPanic != nil {
		b.run = func() { j.run(b.values) }
	}
	if j.engine.perCall == 1 { // with more payloads, values outgrows one, which would keep the first alive
		b.values = b.one[:0]
	}
	return b
}

// serve claims timers and calls their callbacks, or one callback for all payloads. It returns the
// number of claims. It reads the clock once, at the beginning.
func (j *job[T]) serve(timers []Timer) int {
	b := j.newBatch()
	b.now = j.engine.config.Read()
	b.tick = j.engine.config.ticks.Floor(b.now)
	defer b.end()
	if j.engine.perCall > 1 {
		b.claimAll(timers)
		return b.n
	}
	for _, t := range timers {
		if b.claim(t) {
			b.call()
		}
	}
	return b.n
}

// claimAll claims timers and makes one call for all payloads. The wheel's Stop waits for the last
// claim. Only a few instructions lie between it and the call.
func (b *batch[T]) claimAll(timers []Timer) {
	e := b.job.engine
	e.claiming.Add(1)
	for _, t := range timers {
		b.claim(t)
	}
	e.claiming.Add(-1)
	if len(b.values) > 0 {
		b.call()
	}
}

// claim claims a timer, appends its payload to values, and reports whether it did. A timer that was
// postponed goes back to the inbox.
func (b *batch[T]) claim(t Timer) bool {
	s := t.ref.shard
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
		case k == arena.Placed && s.config.Manual != nil && !t.isCollected():
			return false // it was moved, and this entry is an old one
		case k == arena.Placed && w.Tick() > b.tick:
			if s.inbox.stagePostponed(pg, i, w) || s.closed.Load() {
				return false
			}
			continue
		case k != arena.Placed && k != arena.Flushed:
			return false
		}
		if b.shard != s {
			b.push()
			b.shard = s
		}
		p := payloadOf[T](s, i) // before the claim: the wheel's Stop drops the pages
		if p == nil {
			return false
		}
		if w.Is(arena.Counted) {
			b.job.engine.claiming.Add(1) // until call
		}
		if !pg.Swap(i, w, w.With(arena.Spent).WithBits(uint64(b.claimed.last))) {
			if w.Is(arena.Counted) {
				b.job.engine.claiming.Add(-1)
			}
			continue
		}
		if b.n++; b.n > 1 && w.Tick() == b.lateTick {
			b.late++
		} else {
			b.recordLate()
			b.lateTick, b.late = w.Tick(), 1
			b.recordLate()
		}
		if w.Kind() == arena.Flushed {
			s.claimed.flushBegun.Add(1)
		} else {
			s.claimed.fired.Add(1)
		}
		v := *p
		if b.counted = nil; w.Is(arena.Counted) {
			b.counted = rearmableOf(any(v).(func()))
			v = any(b.counted.f).(T)
		}
		b.values = append(b.values, v)
		var zero T
		*p = zero
		c := &b.claimed
		if c.last = i + 1; c.n == 0 {
			c.first, c.page = i, pg
		}
		c.n++
		return true
	}
}

// call runs values, a callback or the payloads of one call, within OnPanic and Around. A plan calls
// Around itself, because it knows the user's function.
func (b *batch[T]) call() {
	e := b.job.engine
	if c := b.counted; c != nil {
		c.begun.Add(1)
		e.claiming.Add(-1)
		defer c.end(&e.funcTimers.waits)
	}
	f := uintptr(0)
	if e.opts.Around != nil {
		f = b.job.callee(b.values)
	}
	switch {
	case f != 0:
		b.around.do(e, f, len(b.values), b.run)
	case e.opts.OnPanic != nil:
		e.guarded(b.run)
	default: // so that a blocked callback has a small stack
		b.job.run(b.values)
	}
	clear(b.values)
	b.values = b.values[:0]
}

// guarded runs f within OnPanic.
func (e *engine) guarded(f func()) {
	if e.opts.OnPanic == nil {
		f()
		return
	}
	guard(f, func(value any, stack []byte) {
		e.panics.Add(1)
		e.opts.OnPanic(value, stack)
	})
}

// aroundCall is a call to Options.Around. It can be reused, and then allocates nothing.
type aroundCall struct {
	f    func()
	runs int
	run  func() // the argument of Around
}

// do runs f within OnPanic, and that within Around. code is the address of the user's function, and
// n the number of payloads.
func (c *aroundCall) do(e *engine, code uintptr, n int, f func()) {
	if c.run == nil {
		c.run = func() {
			if c.runs++; c.runs > 1 {
				panic("timingwheel: Options.Around called run twice")
			}
			e.guarded(c.f)
		}
	}
	c.f, c.runs = f, 0
	e.opts.Around(Call{Wheel: e.opts.Name, Func: code, Payloads: n}, c.run)
	if c.f = nil; c.runs == 0 {
		panic("timingwheel: Options.Around returned without calling run")
	}
}

func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// guard calls f and reports a panic. runtime.Goexit passes through.
func guard(f func(), report func(any, []byte)) {
	normal := false
	defer func() {
		if normal {
			return
		}
		if v := recover(); v != nil {
			report(v, debug.Stack())
		}
	}()
	f()
	normal = true
}

func (b *batch[T]) recordLate() {
	if b.late > 0 {
		b.job.engine.lateness.record(time.Duration(b.now-b.job.engine.config.ticks.Begin(b.lateTick)), b.late)
		b.late = 0
	}
}

func (b *batch[T]) push() {
	if b.claimed.n == 0 {
		return
	}
	n := b.shard.removals.push(b.claimed)
	if b.claimed = (chain{}); n >= removalGroup {
		b.shard.tryDrain()
	}
}

// end is called after the last claim, also after a panic and runtime.Goexit.
func (b *batch[T]) end() {
	b.push()
	b.recordLate()
	if len(b.values) == 0 { // else a callback has exited, which may have kept the memory
		*b = batch[T]{job: b.job, values: b.values, run: b.run, around: b.around}
		b.job.free.Store(b)
	}
}
