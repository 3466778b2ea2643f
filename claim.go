package timingwheel

import (
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// batch is a batch of due timers.
type batch[T any] struct {
	engine    *engine[T]
	now, tick int64 // the clock at the beginning of the batch
	n         int
	values    []T  // claimed payloads whose call has not begun
	one       [1]T // memory of values for callbacks
	around    aroundCall[T]
	counted   *rearmable // of the call, if its timer is of class Counted

	// The claimed records of shard that are not pushed yet. Their words link them.
	shard       *shardOf[T]
	page        *arena.Page // of first
	first, last uint32      // record; link
	records     int

	// The lateness of claimed timers of one tick, which is not recorded yet.
	lateTick int64
	late     uint64
}

// batches is what all batches of a wheel share.
type batches[T any] struct {
	free     atomic.Pointer[batch[T]] // for reuse; may be nil
	lateness latenessCount
	panics   atomic.Uint64 // calls of OnPanic
	claiming atomic.Int32  // claims whose call has not begun: of batches and of FuncTimers
}

// run claims timers and calls their callbacks, or one callback for all payloads. It returns the
// number of claims. It reads the clock once, at the beginning.
func (e *engine[T]) run(timers []Timer) int {
	b := e.batches.free.Swap(nil)
	if b == nil {
		b = &batch[T]{engine: e}
		if e.job.perCall == 1 { // otherwise one would keep the first payload when values grows
			b.values = b.one[:0]
		}
	}
	b.now = e.reading()
	b.tick = e.config.ticks.Floor(b.now)
	defer b.end()
	prefetch(timers)
	if e.job.perCall > 1 {
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

// claimAll claims timers and makes one call for all payloads. The wheel's Stop waits
// for the call to begin: only a few instructions lie between the last claim and the call.
func (b *batch[T]) claimAll(timers []Timer) {
	e := b.engine
	e.batches.claiming.Add(1)
	for _, t := range timers {
		b.claim(t)
	}
	e.batches.claiming.Add(-1)
	if len(b.values) > 0 {
		b.call()
	}
}

// prefetch reads the words in a loop that does nothing else, so that the cache misses overlap.
func prefetch(timers []Timer) (all arena.Word) {
	for _, t := range timers {
		if pg := t.ref.page.Load(); pg != nil {
			all |= pg.Load(t.index)
		}
	}
	return all
}

// claim claims a timer, appends its payload to values, and reports whether it did. A timer that was
// postponed goes back to the inbox.
func (b *batch[T]) claim(t Timer) bool {
	s, _ := shardAt(t.ref).typed.(*shardOf[T])
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
		case k == arena.Placed && s.config.Manual && !s.inbox.order.collected(i):
			return false // it was moved, and this entry is an old one
		case k == arena.Placed && w.Tick() > b.tick:
			if s.stagePostponed(pg, i, w) || s.closed.Load() {
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
		values := s.values.At(i >> arena.PageShift) // before the claim: the wheel's Stop drops the table
		if values == nil {
			return false
		}
		if w.Is(arena.Counted) {
			b.engine.batches.claiming.Add(1) // until call
		}
		if !pg.Swap(i, w, w.With(arena.Spent).WithBits(uint64(b.last))) {
			if w.Is(arena.Counted) {
				b.engine.batches.claiming.Add(-1)
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
		p := &values[i&arena.PageMask]
		v := *p
		if b.counted = nil; w.Is(arena.Counted) {
			b.counted = rearmableOf(any(v).(func()))
			v = any(b.counted.f).(T)
		}
		b.values = append(b.values, v)
		var zero T
		*p = zero
		if b.last = i + 1; b.records == 0 {
			b.first, b.page = i, pg
		}
		b.records++
		return true
	}
}

// call runs values, a callback or the payloads of one call, by job.run within OnPanic and Around. A
// plan calls Around itself, because it knows the user's function.
func (b *batch[T]) call() {
	e := b.engine
	if c := b.counted; c != nil {
		c.begun.Add(1)
		e.batches.claiming.Add(-1)
		defer c.end(&e.funcTimers.waits)
	}
	f := uintptr(0)
	if e.around != nil {
		f = e.job.callee(b.values)
	}
	if f != 0 {
		b.around.do(e, f, b.values)
	} else {
		e.job.guarded(b.values)
	}
	clear(b.values)
	b.values = b.values[:0]
}

func (e *engine[T]) guardedRun(onPanic func(any, []byte)) func([]T) {
	if onPanic == nil {
		return e.job.run
	}
	report := func(value any, stack []byte) {
		e.batches.panics.Add(1)
		onPanic(value, stack)
	}
	return func(items []T) { guard(func() { e.job.run(items) }, report) }
}

// aroundCall is a call to Options.Around. It can be reused, and then allocates nothing.
type aroundCall[T any] struct {
	items []T
	runs  int
	run   func() // the argument of Around
}

// do runs items within OnPanic, and that within Around, for the function with code address f.
func (c *aroundCall[T]) do(e *engine[T], f uintptr, items []T) {
	if c.run == nil {
		c.run = func() {
			if c.runs++; c.runs > 1 {
				panic("timingwheel: Options.Around called run twice")
			}
			e.job.guarded(c.items)
		}
	}
	c.items, c.runs = items, 0
	e.around(Call{Wheel: e.name, Func: f, Payloads: len(items)}, c.run)
	if c.items = nil; c.runs == 0 {
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
		b.engine.batches.lateness.record(time.Duration(b.now-b.engine.config.ticks.Begin(b.lateTick)), b.late)
		b.late = 0
	}
}

func (b *batch[T]) push() {
	if b.records == 0 {
		return
	}
	s := b.shard
	n := s.removals.pushChain(b.page, b.first, b.last, b.records)
	b.records, b.last = 0, 0
	if n >= removalsMax {
		s.tryDrain()
	}
}

// end is called after the last claim, also after a panic and runtime.Goexit.
func (b *batch[T]) end() {
	b.push()
	b.recordLate()
	if len(b.values) == 0 { // else a callback has exited, which may have kept the memory
		*b = batch[T]{engine: b.engine, values: b.values, around: b.around}
		b.engine.batches.free.Store(b)
	}
}

// stagePostponed stages a timer that was postponed while it was due. A bucket may contain it again,
// hence Listed. It returns false if the word has changed or the wheel is stopped.
func (s *shard) stagePostponed(pg *arena.Page, i uint32, w arena.Word) bool {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if s.closed.Load() || !pg.Swap(i, w, w.With(arena.Staged)|arena.Listed) {
		return false
	}
	s.stage(i, w.Tick())
	return true
}
