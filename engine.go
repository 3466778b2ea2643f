package timingwheel

import (
	"context"
	"math"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/alarm"
	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/pool"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// job is what an engine does with due payloads.
type job[T any] struct {
	perCall int               // largest number of payloads in one call of run
	run     func([]T)         // runs one batch
	guarded func([]T)         // run within OnPanic; set by newEngine
	callee  func([]T) uintptr // returns the code address of the user's function; 0: a plan's
}

// engine is the part that [TimingWheel] and [Timeouts] have in common: the shards of one wheel.
type engine[T any] struct {
	config
	shards     []*shardOf[T]
	routes     *routes // nil if there is one shard
	job        job[T]
	around     around[T]
	panics     atomic.Uint64 // calls of OnPanic
	name       string        // Options.Name
	survivors  survivors
	funcTimers funcTimerState
	dues       []due   // those of the shards
	advance    advance // Manual mode
	claims     claimState[T]
}

// survivors are the timers that survive the Stop of the wheel. The runtime takes them over.
type survivors struct {
	halted chan struct{}         // closed when the wheel is stopped
	mu     sync.Mutex            // also held throughout the wheel's Stop
	timers map[Timer]*time.Timer // guarded by mu
}

// stop stops a survivor. It returns false if the timer has fired or is not a survivor.
func (s *survivors) stop(t Timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.timers[t]
	if delete(s.timers, t); len(s.timers) == 0 {
		s.timers = nil // a map does not shrink
	}
	return r != nil && r.Stop()
}

// newEngine validates the options and creates the shards. origin is the first reading of the clock,
// which is 0 except in tests.
func newEngine[T any](opts Options, origin int64, j job[T]) (*engine[T], error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	limited, _ := opts.Executor.(*limit)
	if limited != nil && limited.used.Swap(true) {
		return nil, badOption("Executor", "a Limit that another wheel has", "a Limit of its own")
	}
	e := &engine[T]{config: opts.config(), job: j, around: around[T]{hook: opts.Around}, name: opts.Name}
	e.survivors.halted = make(chan struct{})
	e.perCall = j.perCall
	e.Timeline = clock.Timeline{Base: opts.Start, Origin: origin, Manual: opts.Manual}
	e.scanned = holdsPointers(reflect.TypeFor[T]())
	e.Start()
	e.job.guarded = e.guardedRun(opts.OnPanic)
	e.shards = make([]*shardOf[T], opts.Shards)
	if opts.Shards > 1 {
		e.routes = newRoutes(opts.Shards)
	}
	var alarms *alarm.Group
	if !opts.Manual {
		alarms = alarm.NewGroup(e.Read)
	}
	for i := range e.shards {
		s := &shardOf[T]{engine: e}
		if i == 0 || limited == nil && !opts.Manual {
			e.dues = append(e.dues, e.newDue(opts.Executor, limited))
		}
		s.alarm.workersDrive = opts.Executor == nil && !opts.Manual
		s.alarm.due, s.countedFuncs.waits = e.dues[len(e.dues)-1], &e.funcTimers.calls
		s.funcs, _ = any(&s.values).(*arena.Table[[arena.PageSize]func()])
		s.init(e.config, s)
		s.noPage.shard = &s.shard
		if e.profileRate > 0 {
			s.samples = sampling.New(e.profileRate, Timer.ended)
			s.inbox.untilSample = s.samples.Distance()
		}
		s.alarm.init(&s.shard, alarms)
		e.shards[i] = s
	}
	return e, nil
}

// newDue returns the room for what is due: a pool, or calls for an executor and in Manual mode.
func (e *engine[T]) newDue(executor Executor, limited *limit) due {
	if e.Manual || executor != nil && limited == nil {
		return &dueCalls[T]{engine: e, executor: executor}
	}
	c := pool.Config{Active: 1, PerCall: e.perCall} // workers of one shard contend for its words and counters
	if limited != nil {
		c.Active, c.Limit = e.procs, limited.n
	}
	h := &poolHost[T]{engine: e}
	h.due = pool.New[Timer](h, c)
	return h.due
}

// guardedRun returns job.run, within onPanic if that is not nil.
func (e *engine[T]) guardedRun(onPanic func(any, []byte)) func([]T) {
	if onPanic == nil {
		return e.job.run
	}
	report := func(value any, stack []byte) {
		e.panics.Add(1)
		onPanic(value, stack)
	}
	return func(items []T) { guard(func() { e.job.run(items) }, report) }
}

// around calls Options.Around. It reuses its calls, so that a call allocates nothing.
type around[T any] struct {
	hook  func(Call, func()) // Options.Around; nil: there is none
	calls sync.Pool          // of *aroundCall[T]
}

// aroundCall is a call of the hook.
type aroundCall[T any] struct {
	items []T
	runs  int
	run   func() // the argument of the hook
}

// runAround runs a batch within OnPanic, and that within Options.Around. f is the code address of
// the user's function.
func (e *engine[T]) runAround(f uintptr, items []T) {
	c, _ := e.around.calls.Get().(*aroundCall[T])
	if c == nil {
		c = new(aroundCall[T])
		c.run = func() {
			if c.runs++; c.runs > 1 {
				panic("timingwheel: Options.Around called run twice")
			}
			e.job.guarded(c.items)
		}
	}
	c.items, c.runs = items, 0
	e.around.hook(Call{Wheel: e.name, Func: f, Payloads: len(items)}, c.run)
	if c.runs == 0 {
		panic("timingwheel: Options.Around returned without calling run")
	}
	c.items = nil
	e.around.calls.Put(c)
}

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

// shardOf is a shard with its payloads, in pages parallel to the pages of slots.
type shardOf[T any] struct {
	shard
	engine *engine[T]
	noPage pageRef // the ref of a handle without a timer

	// Guarded by armMu. A worker reads values without it.
	values   arena.Table[[arena.PageSize]T]
	nextPage *page[T]              // allocated and not opened yet
	samples  sampling.Table[Timer] // with ProfileRate, until the wheel is stopped; else empty
}

// codeOf returns the address of a function's code.
func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// page is a page of slots, the page of their payloads, and the pageRef of their handles. Both pages
// are one object if payloads hold no pointers, because the garbage collector marks each object.
type page[T any] struct {
	slots  *arena.Page
	values *[arena.PageSize]T
	ref    *pageRef
}

func (s *shardOf[T]) newPage() *page[T] {
	h := &pageRef{shard: &s.shard}
	if s.scanned {
		return &page[T]{new(arena.Page), new([arena.PageSize]T), h}
	}
	both := new(struct {
		slots  arena.Page
		values [arena.PageSize]T
	})
	return &page[T]{&both.slots, &both.values, h}
}

func (s *shardOf[T]) closePage(p int) {
	s.values.Set(p, nil)
	s.countedFuncs.closePage(p)
	s.refs.At(uint32(p)).page.Store(nil)
	s.refs.Set(p, nil)
	if s.inbox.order != nil {
		s.inbox.order.stamps.Set(p, nil)
	}
}

// drop clears the payload of slot i.
func (s *shardOf[T]) drop(i uint32) {
	var zero T
	s.setPayload(i, zero)
}

func (s *shardOf[T]) setPayload(i uint32, v T) {
	if values := s.values.At(i >> arena.PageShift); values != nil { // nil if the wheel is stopped
		values[i&arena.PageMask] = v
	}
}

func (s *shardOf[T]) clear() {
	s.values.Clear()
	s.countedFuncs.closeAll()
	s.nextPage, s.samples = nil, sampling.Table[Timer]{}
}

// arm arms a timer. now is an earlier reading of the clock, or clock.Unread. arm is called with
// armMu held and returns without it.
func (s *shardOf[T]) arm(deadline, now int64, v T, class arena.Word) (t Timer) {
	if s.canArm() {
		t = s.armFree(deadline, now, class)
		s.setPayload(t.index, v) // under the lock, and so before a claim
	}
	s.unlockArm()
	return t
}

// canArm makes sure that the inbox has a free slot. It returns false if the wheel is stopped. armMu
// is held. canArm releases it while it allocates a page, and before it panics because the shard is
// full.
func (s *shardOf[T]) canArm() bool {
	if !s.closed.Load() && (len(s.inbox.free) > 0 || s.refill()) {
		return true
	}
	s.inbox.rejected++
	return false
}

// armFree is arm after canArm. It returns with armMu held, and the caller then sets the payload.
func (s *shardOf[T]) armFree(deadline, now int64, class arena.Word) Timer {
	ib := &s.inbox
	i := ib.takeFree()
	now = s.noteReading(now)
	deadline = max(deadline, now)
	tick := s.tickOf(deadline, now)
	ref := s.refs.At(i >> arena.PageShift)
	pg := ref.page.Load()
	if pg == nil { // never; see arena.Page.Load
		return Timer{}
	}
	w := pg.Arm(i, class, uint64(tick))
	ib.armed++
	if s.Manual {
		s.inbox.order.stamp(i)
	}
	if ib.add(i, tick) {
		s.alarm.setEarlier(tick)
	}
	t := Timer{ref, i, w.Gen()}
	if ib.untilSample--; ib.untilSample == 0 {
		s.sample(t)
	}
	return t
}

// refill adds free slots to the inbox. It returns false if the wheel is stopped. armMu is held, and
// released while memory is allocated.
func (s *shardOf[T]) refill() bool {
	ib := &s.inbox
	for !s.closed.Load() {
		var slots [freeSlots]uint32
		n := 0
		for ; n < freeSlots; n++ {
			i, ok := s.slots.Take()
			if !ok {
				break
			}
			slots[n] = i
		}
		for n--; n >= 0; n-- { // the lowest slot is used first
			ib.free = append(ib.free, slots[n])
		}
		if len(ib.free) > 0 {
			return true
		}
		s.openPage()
	}
	return false
}

// openPage allocates and opens a page of slots. It does nothing if, after the allocation, an open
// page has room or the wheel is stopped.
func (s *shardOf[T]) openPage() {
	if s.nextPage == nil {
		s.armMu.Unlock()
		pg := s.newPage()
		s.armMu.Lock()
		s.nextPage = pg
	}
	if s.closed.Load() {
		s.nextPage = nil
		return
	}
	if s.slots.Pager.HasRoom() {
		return // another goroutine has opened a page, or slots were freed
	}
	p := s.slots.Pager.Next()
	if p >= arena.MaxPages {
		s.armMu.Unlock()
		panic("timingwheel: a shard is full: more than 2^29 timers; use more shards")
	}
	s.slots.Open(p, s.nextPage.slots)
	s.values.Set(p, s.nextPage.values)
	s.nextPage.ref.page.Store(s.nextPage.slots)
	s.refs.Set(p, s.nextPage.ref)
	s.nextPage = nil
}

// survive hands a timer that survives the wheel's Stop to the runtime. Its word was w. survivors.mu
// is held.
func (s *shardOf[T]) survive(t Timer, w arena.Word) {
	all := &s.engine.survivors
	if all.timers == nil {
		all.timers = make(map[Timer]*time.Timer)
	}
	f := any(s.values.At(t.index >> arena.PageShift)[t.index&arena.PageMask]).(func())
	d := time.Duration(s.ticks.Begin(w.Tick()) - s.reading())
	if w.Kind() == arena.Flushed {
		d = 0
	}
	all.timers[t] = time.AfterFunc(d, f)
}

// removeAll removes all pending timers and returns their payloads. O(slots). It holds wheelMu
// throughout.
func (s *shardOf[T]) removeAll() []T {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return nil
	}
	s.drainAll()
	o := &s.owner
	all := make([]T, 0, s.pending())
	for t, pg := range s.all {
		w := pg.Load(t.index)
		for w.Kind() == arena.Placed && !pg.Swap(t.index, w, w.With(arena.Spent)) {
			w = pg.Load(t.index)
		}
		if w.Kind() != arena.Placed {
			continue
		}
		all = append(all, s.values.At(t.index >> arena.PageShift)[t.index&arena.PageMask])
		if s.scanned {
			s.drop(t.index)
		}
		o.counters.stopped++
		o.leaveBucket(t.index)
		if o.freed = append(o.freed, t.index); len(o.freed) >= removalsMax {
			s.reclaim()
		}
	}
	s.reclaim()
	return all
}

const routeBits = 10

// routes maps goroutines to the shards on which they arm timers. The key is a hash of the address
// of the goroutine's stack. A goroutine stays on one shard, whose cache lines stay in the cache of
// its processor. It moves to the next shard when another goroutine holds armMu, so two goroutines
// that collide once rarely collide again.
//
// Rejected designs (docs/internals/experiments.md): a random shard, because all processors share
// all cache lines and two processors are no faster than one; a hint from a sync.Pool, because it
// costs a fifth of an arm and a stop.
type routes [1 << routeBits]atomic.Uint32

func newRoutes(shards int) *routes {
	r := new(routes)
	for i := range r {
		r[i].Store(uint32(i % shards))
	}
	return r
}

// pick chooses the shard for a new timer and locks its armMu. If another goroutine holds the lock,
// pick tries the next shard, so that the caller does not wait for a goroutine that was preempted.
func (e *engine[T]) pick() *shardOf[T] {
	if len(e.shards) == 1 {
		s := e.shards[0]
		s.armMu.Lock()
		return s
	}
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>10) * 0x9E3779B97F4A7C15
	r := &e.routes[h>>(64-routeBits)]
	i := r.Load()
	s := e.shards[i]
	if s.armMu.TryLock() {
		return s
	}
	return e.pickNext(r, i)
}

// pickNext is the part of pick for a locked shard i.
func (e *engine[T]) pickNext(r *atomic.Uint32, i uint32) *shardOf[T] {
	for range e.shards {
		if i++; i == uint32(len(e.shards)) {
			i = 0
		}
		if s := e.shards[i]; s.armMu.TryLock() {
			r.Store(i)
			return s
		}
	}
	s := e.shards[i]
	s.armMu.Lock()
	return s
}

// after arms a timer d from now.
func (e *engine[T]) after(d time.Duration, v T) Timer {
	now := int64(0)
	if !e.Manual {
		now = e.Read()
	}
	s := e.pick()
	if e.Manual {
		now = s.inbox.now
	}
	return s.arm(clock.Later(now, int64(d)), now, v, 0)
}

// at arms a timer for t.
func (e *engine[T]) at(t time.Time, v T) Timer {
	deadline, now := e.Instant(t)
	return e.armAt(deadline, now, v)
}

// armLasting is armAt for a timer that survives the wheel's Stop. The payload is a func().
func (e *engine[T]) armLasting(deadline, now int64, v T) Timer {
	s := e.pick()
	return s.arm(deadline, now, v, arena.Lasting)
}

// cancelLasting is Stop for a timer that survives the wheel's Stop.
func (t Timer) cancelLasting() bool {
	if t.Stop() {
		return true
	}
	s, ok := t.ref.shard.host.(*shardOf[func()])
	return ok && s.closed.Load() && s.engine.survivors.stop(t)
}

// armAt arms a timer for a reading of the clock. now is an earlier reading, or clock.Unread.
func (e *engine[T]) armAt(deadline, now int64, v T) Timer {
	s := e.pick()
	return s.arm(deadline, now, v, 0)
}

func (e *engine[T]) pending() int {
	n := 0
	for _, s := range e.shards {
		n += s.len()
	}
	return n
}

// clockTime returns the time on the wheel's clock.
func (e *engine[T]) clockTime() time.Time { return e.TimeAt(e.reading()) }

// reading reads the wheel's clock.
func (e *engine[T]) reading() int64 { return e.shards[0].reading() }

// next returns the earliest time at which a shard has work to do, and false if no timer is pending.
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
	return e.TimeAt(first), true
}

// flush is [TimingWheel.Flush]. It claims the timers of all shards before it queues the first one:
// a callback may arm a timer on another shard, and that timer must not be flushed as well.
func (e *engine[T]) flush() (n int) {
	timers := make([][]Timer, len(e.shards))
	for k, s := range e.shards {
		s.wheelMu.Lock()
		claimed, count := s.flush()
		s.unlockAndDrain()
		timers[k] = claimed
		n += count
	}
	e.funcTimers.flushes.Add(1)
	for k, s := range e.shards {
		s.alarm.due.Put(timers[k], false)
	}
	if e.Manual {
		e.serveDue()
		return n
	}
	for _, d := range e.dues {
		go d.Wake()
	}
	return n
}

func (e *engine[T]) stop() {
	e.survivors.mu.Lock()
	defer e.survivors.mu.Unlock()
	for _, s := range e.shards {
		s.halt()
	}
	for _, d := range e.dues {
		d.Close()
	}
	for e.claims.claiming.Load() > 0 {
		runtime.Gosched()
	}
	if !isClosed(e.survivors.halted) {
		close(e.survivors.halted) // last, because it wakes goroutines that need the locks
	}
}

func mustHaveContext(ctx context.Context) {
	if ctx == nil {
		panic("timingwheel: Shutdown with a nil context")
	}
}

// shutdown stops the wheel and waits until no callback and no call of Executor.Go is running.
func (e *engine[T]) shutdown(ctx context.Context) error {
	e.stop()
	for _, d := range e.dues {
		if err := waitFor(ctx, d.Idle()); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits until done is closed and returns nil, or returns ctx's error if ctx ends first. A
// nil done counts as closed.
func waitFor(ctx context.Context, done <-chan struct{}) error {
	if done == nil || isClosed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isClosed reports whether c is closed. A nil c is not. There must be no sends on c.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
