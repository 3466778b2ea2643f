package timingwheel

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// patience turns a hang into a failure. It says nothing of how fast anything has to be.
const patience = time.Minute

// The files of the build tags race and invariants set these. Both slow every test down, and the
// race detector allocates memory.
var underRace, underInvariants bool

// fullTests says that the environment asks for tests of full size, as .ci/run does.
var fullTests = os.Getenv("TIMINGWHEEL_TESTS") == "full"

// scaled returns the size of a test: n, or less if a full-sized test would take too long.
func scaled(n int) int {
	switch {
	case underInvariants:
		n /= 100
	case underRace || !fullTests:
		n /= 10
	}
	return max(n, 1)
}

// scaledSeeds returns how many of n seeds a model test plays. All of them are played if every step
// is verified or if the environment asks for full tests.
func scaledSeeds(n uint64) uint64 {
	if underInvariants || fullTests {
		return n
	}
	return max(n/10, 1)
}

// startWheel returns a wheel that the end of the test stops.
func startWheel(tb testing.TB, opts Options) *TimingWheel {
	tb.Helper()
	tw, err := New(withLimit(opts))
	require.NoError(tb, err)
	tb.Cleanup(tw.Stop)
	return tw
}

// receive returns the next value of c.
func receive[T any](tb testing.TB, c <-chan T, what string) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(tb, "waited too long", what)
		panic("unreachable")
	}
}

// await waits until the condition holds.
func await(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(tb, "waited too long", what)
		}
	}
}

// goroutinesReturnTo waits until there are no more goroutines than before.
func goroutinesReturnTo(t *testing.T, before int) {
	t.Helper()
	await(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// verifyShards checks the invariants of a wheel at rest or in full swing.
func verifyShards[T any](t *testing.T, e *engine[T]) {
	t.Helper()
	for _, s := range e.shards {
		verified(t, &s.shard)
	}
	if e.permits != nil {
		require.NoError(t, e.verifyPermits())
	}
}

// verifyPermits checks the invariants of permits while workers run. It returns the first violation.
func (e *engine[T]) verifyPermits() error {
	p := e.permits
	p.mu.Lock()
	defer p.mu.Unlock()
	queued := 0
	for _, s := range e.shards {
		if s.inQueue {
			queued++
		}
	}
	switch {
	case p.free < 0:
		return fmt.Errorf("R1: %d permits are free", p.free)
	case p.free > 0 && queued > 0:
		return fmt.Errorf("R2: %d permits are free and %d shards wait for one", p.free, queued)
	case queued != len(p.queue):
		return fmt.Errorf("the queue has %d shards, %d are marked as queued", len(p.queue), queued)
	}
	return nil
}

// awaitPermits waits until all n permits of a wheel are free.
func awaitPermits[T any](t *testing.T, e *engine[T], n int) {
	t.Helper()
	await(t, "all permits are free", func() bool { return e.permits.available(nil) == n })
	require.NoError(t, e.verifyPermits())
}

// spin waits awake: time.Sleep would sleep for far too long.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		runtime.Gosched() // there may be one processor only
	}
}

// busy keeps every processor busy with goroutines of the program until the test ends.
func busy(t *testing.T) {
	t.Helper()
	var done atomic.Bool
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for n := 0; !done.Load(); n++ {
				if n&0xfff == 0 && testing.Short() {
					runtime.Gosched()
				}
			}
		})
	}
	t.Cleanup(func() { done.Store(true); all.Wait() })
}

// beside runs f in a loop on a goroutine of its own while test runs.
func beside(f, test func()) {
	var done atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !done.Load() {
			f()
		}
	})
	time.Sleep(50 * time.Microsecond)
	test()
	done.Store(true)
	all.Wait()
}

// childEnv tells a test that it runs as a child process of itself, and as what.
const childEnv = "TIMINGWHEEL_TEST_CHILD"

// child is the command that runs the named test in a process of its own.
func child(test, role string) *exec.Cmd {
	command := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
	command.Env = append(os.Environ(), childEnv+"="+role)
	return command
}

func boom() { panic("boom") }

// caught calls f and returns what it panics with.
func caught(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

const ms = time.Millisecond

// bubble runs a test on fake time, with a wheel of one shard whose clock begins with the bubble's.
func bubble(t *testing.T, opts Options, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if opts.Shards == 0 {
			opts.Shards = 1
		}
		tw, err := New(opts)
		require.NoError(t, err)
		test(t, tw)
		require.NoError(t, tw.Shutdown(context.Background()))
		synctest.Wait() // workers end, or synctest.Test panics
	})
}

// pass lets d of fake time pass and then whatever is due at its end come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// stopwatch notes times since it was made, in milliseconds.
type stopwatch struct {
	start time.Time
	mu    sync.Mutex // of note; runs may overlap
	times []int
}

func newStopwatch() *stopwatch { return &stopwatch{start: time.Now()} }

func (w *stopwatch) elapsed() int { return int(time.Since(w.start) / ms) }

func (w *stopwatch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, w.elapsed())
}

// noted is what note has noted, while runs go on.
func (w *stopwatch) noted() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.times)
}

// handle is a Timer that its own callback needs.
type handle struct{ timer atomic.Pointer[Timer] }

func (h *handle) set(t Timer) { h.timer.Store(&t) }
func (h *handle) get() Timer  { return *h.timer.Load() }

// nextFunc is a Scheduler.
type nextFunc func(time.Time) time.Time

func (f nextFunc) Next(t time.Time) time.Time { return f(t) }

// question is what a plan asks its planner: for the first run, where N is 0, before a run, or after
// it.
type question struct {
	planner.Run
	finished time.Time // the zero time before a run
}

// plannerFunc is a Scheduler whose planners answer by a function. The answer is used as it is, also
// if its time has passed.
type plannerFunc func(q question) planner.Step

func (f plannerFunc) Next(time.Time) time.Time    { panic("Next of a Factory") }
func (f plannerFunc) NewPlanner() planner.Planner { return &funcPlanner{f: f} }

type funcPlanner struct {
	f   plannerFunc
	run planner.Run // the last one
}

func (c *funcPlanner) First(now time.Time) time.Time {
	return c.f(question{planner.Run{Planned: now, Started: now}, now}).Next
}

func (c *funcPlanner) Before(r planner.Run) planner.Step {
	c.run = r
	return c.f(question{Run: r})
}

func (c *funcPlanner) After(_, finished time.Time) time.Time {
	return c.f(question{c.run, finished}).Next
}
func (c *funcPlanner) Missed(missed, _ time.Time) time.Time { return missed }

// asPlanner is a Scheduler that makes a planner of its own for what another one plans.
type asPlanner struct{ Scheduler }

func (s asPlanner) NewPlanner() planner.Planner {
	return &struct{ planner.Plain }{planner.Plain{Scheduler: s.Scheduler}}
}

const (
	day     = 24 * time.Hour
	oneYear = 365 * day
)

// shapes are wheels on which the distances of these tests cross levels, laps and rounds.
var shapes = []Options{
	{},
	{WheelSize: 2, Levels: 1, Tick: time.Hour},
	{WheelSize: 4, Levels: 3, Tick: time.Second},
	{WheelSize: 16, Levels: 16, Tick: ms},
	{WheelSize: 256, Levels: 2, Tick: 100 * ms, Shards: 3},
	{WheelSize: 64, Levels: 3, Tick: ms, Executor: Goroutines},
	{WheelSize: 64, Levels: 3, Tick: ms, Executor: Inline},
	{WheelSize: 64, Levels: 3, Tick: ms, MaxRunning: 1},
}

func tickOf(opts Options) time.Duration {
	if opts.Tick == 0 {
		return defaultTick
	}
	return opts.Tick
}

// pool is the least of a bounded pool: so many goroutines, and a queue that is long enough.
type pool chan func()

func (p pool) Go(f func()) { p <- f }

func startPool(tb testing.TB, workers int) Executor {
	tb.Helper()
	p, closing := make(pool, 100_000), make(chan struct{})
	for range workers {
		go func() {
			for {
				select {
				case f := <-p:
					runToItsEnd(f)
				case <-closing:
					return
				}
			}
		}()
	}
	tb.Cleanup(func() { close(closing) })
	return p
}

// runToItsEnd lets a pool's goroutine survive a callback's runtime.Goexit.
func runToItsEnd(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// held is an executor that runs nothing until it is told to: the calls that it was given are timers
// that are due and pending.
type held struct {
	mu    sync.Mutex
	calls []func()
}

func (h *held) Go(f func()) {
	h.mu.Lock()
	h.calls = append(h.calls, f)
	h.mu.Unlock()
}

func (h *held) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// release runs all calls that are held and returns how many there were.
func (h *held) release() int {
	h.mu.Lock()
	calls := h.calls
	h.calls = nil
	h.mu.Unlock()
	for _, f := range calls {
		f()
	}
	return len(calls)
}

// limit stands for the default executor with a limit, among other executors.
type limit int

func (limit) Go(func()) { panic("it is an option: see withLimit") }

// withLimit returns the options that opts stands for if its executor is a limit.
func withLimit(opts Options) Options {
	if n, ok := opts.Executor.(limit); ok {
		opts.Executor, opts.MaxRunning = nil, int(n)
	}
	return opts
}

// executors are those that run a callback on their own accord.
var executors = map[string]func(testing.TB) Executor{
	"default":    func(testing.TB) Executor { return nil },
	"limit 1":    func(testing.TB) Executor { return limit(1) },
	"limit 3":    func(testing.TB) Executor { return limit(3) },
	"Goroutines": func(testing.TB) Executor { return Goroutines },
	"Inline":     func(testing.TB) Executor { return Inline },
	"WaitGroup":  func(testing.TB) Executor { return new(sync.WaitGroup) },
	"pool":       func(tb testing.TB) Executor { tb.Helper(); return startPool(tb, 4) },
}

// unbounded are the executors that promise that no callback waits for another.
var unbounded = map[string]Executor{"default": nil, "Goroutines": Goroutines, "WaitGroup": new(sync.WaitGroup)}

// drainWheel waits until nothing is pending and nothing runs.
func drainWheel(tw *TimingWheel) error {
	end := time.Now().Add(patience)
	for st := tw.Stats(); st.Pending+st.Running > 0; st = tw.Stats() {
		if time.Now().After(end) {
			return assert.AnError
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// record is what a race test knows of one timer. Only the goroutine that armed the timer resets it;
// any goroutine may stop it.
type record struct {
	timer     Timer
	notBefore time.Duration // since ledger.start; written by the timer's owner
	ranAt     atomic.Int64  // since ledger.start
	runs      atomic.Int32
	stops     atomic.Int32
}

func (r *record) stop() bool {
	if !r.timer.Stop() {
		return false
	}
	r.stops.Add(1)
	return true
}

// ledger is every timer of a test, for the account at its end.
type ledger struct {
	start   time.Time
	hasty   bool // there are no lower bounds: timers are flushed, or reset by more than one goroutine
	mu      sync.Mutex
	records []*record
}

func newLedger() *ledger { return &ledger{start: time.Now()} }

func (l *ledger) enter(r *record) *record {
	l.mu.Lock()
	l.records = append(l.records, r)
	l.mu.Unlock()
	return r
}

func (l *ledger) callback(r *record) func() {
	return func() {
		r.ranAt.Store(int64(time.Since(l.start)))
		r.runs.Add(1)
	}
}

func (l *ledger) arm(tw *TimingWheel, d time.Duration) *record {
	r := &record{notBefore: time.Since(l.start) + max(d, 0)}
	r.timer = tw.AfterFunc(d, l.callback(r))
	return l.enter(r)
}

func (l *ledger) armAt(tw *TimingWheel, at time.Time) *record {
	r := &record{notBefore: at.Sub(l.start)}
	r.timer = tw.AtFunc(at, l.callback(r))
	return l.enter(r)
}

func (l *ledger) reset(r *record, d time.Duration) bool {
	at := time.Since(l.start) + max(d, 0)
	if !r.timer.Reschedule(d) {
		return false
	}
	r.notBefore = at
	return true
}

// account adds up what has happened. To each timer at most one thing has, and to none too early.
func (l *ledger) account(t *testing.T) (armed, fired, stopped uint64) {
	t.Helper()
	for _, r := range l.records { // so many that a require for each would take longer than the test
		runs, stops := r.runs.Load(), r.stops.Load()
		if runs+stops > 1 {
			t.Fatalf("ran %d times, stopped %d times", runs, stops)
		}
		if r.timer == (Timer{}) {
			require.Zero(t, runs+stops, "refused by a stopped wheel, but not inert")
			continue
		}
		armed++
		fired += uint64(runs)
		stopped += uint64(stops)
		if at := time.Duration(r.ranAt.Load()); runs == 1 && at < r.notBefore && !l.hasty {
			t.Fatalf("early by %v", r.notBefore-at)
		}
	}
	return armed, fired, stopped
}

// settle compares the account with the wheel's own.
func (l *ledger) settle(t *testing.T, tw *TimingWheel) {
	t.Helper()
	armed, fired, stopped := l.account(t)
	st := tw.Stats()
	assert.Equal(t, armed, st.Armed, "armed")
	assert.Equal(t, fired, st.Fired, "fired")
	assert.Equal(t, stopped, st.Stopped, "stopped; the rest was discarded")
	assert.Zero(t, tw.Len())
	assert.Zero(t, st.Running)
}

// settleAll is settle where nothing may have been discarded.
func (l *ledger) settleAll(t *testing.T, tw *TimingWheel) {
	t.Helper()
	l.requireNoneLost(t)
	l.settle(t, tw)
}

func (l *ledger) requireNoneLost(t *testing.T) {
	t.Helper()
	armed, fired, stopped := l.account(t)
	require.Equal(t, armed, fired+stopped, "lost")
}

// merge enters the timers of another ledger.
func (l *ledger) merge(o *ledger) {
	shift := o.start.Sub(l.start)
	for _, r := range o.records {
		r.notBefore += shift
		r.ranAt.Add(int64(shift))
	}
	l.records = append(l.records, o.records...)
}

// tiny are wheels on which everything happens at once: cascades, rounds, laps, races for one
// bucket.
var tiny = []Options{
	{WheelSize: 2, Levels: 1, Tick: time.Microsecond, Shards: 1},
	{WheelSize: 2, Levels: 3, Tick: time.Microsecond, Shards: 4},
	{WheelSize: 4, Levels: 2, Tick: 10 * time.Microsecond, Shards: 2},
	{WheelSize: 8, Levels: 3, Tick: 50 * time.Microsecond, Shards: 1, Executor: Goroutines},
	{WheelSize: 16, Levels: 3, Tick: 100 * time.Microsecond, Shards: 1, Executor: Inline},
	{WheelSize: 16, Levels: 1, Tick: time.Millisecond, Shards: 4},
	{WheelSize: 8, Levels: 3, Tick: 50 * time.Microsecond, Shards: 4, MaxRunning: 2},
	{WheelSize: 2, Levels: 3, Tick: time.Millisecond, Shards: 1},
}

func optionName(o Options) string {
	return fmt.Sprintf("size=%d,levels=%d,tick=%v,shards=%d,executor=%T,limit=%d",
		o.WheelSize, o.Levels, o.Tick, o.Shards, o.Executor, o.MaxRunning)
}

var modelStart = time.Unix(1_000_000_000, 0).UTC()

// story is a wheel in Manual mode whose timers write down their names when they run. Times are
// relative to the wheel's first reading of the clock, which may be any.
type story struct {
	*TimingWheel
	t   *testing.T
	ran []string
}

func newStory(t *testing.T, opts Options, origin int64) *story {
	t.Helper()
	opts.Manual, opts.Start = true, modelStart
	tw, err := newWheelAt(opts, origin)
	require.NoError(t, err)
	return &story{TimingWheel: tw, t: t}
}

func (s *story) note(name string) func() { return func() { s.ran = append(s.ran, name) } }

func (s *story) after(d time.Duration, name string) Timer { return s.AfterFunc(d, s.note(name)) }

// to moves the clock and returns the names of what has run.
func (s *story) to(d time.Duration) string {
	s.t.Helper()
	s.ran = nil
	n := s.Advance(modelStart.Add(d))
	s.verify()
	if n != len(s.ran) {
		s.t.Fatalf("Advance to %v: %d, ran %v", d, n, s.ran)
	}
	return strings.Join(s.ran, " ")
}

func (s *story) verify() {
	s.t.Helper()
	verifyShards(s.t, s.engine)
}

// wakeups drives the clock by Next alone until the wheel is empty, and returns how often it moved.
func (s *story) wakeups() int {
	s.t.Helper()
	for n := 0; ; n++ {
		at, ok := s.Next()
		if !ok {
			return n
		}
		if n > 1000 {
			s.t.Fatalf("still %d pending, next %v", s.Len(), at)
		}
		s.to(at.Sub(modelStart))
	}
}

// armOn arms a timer on a shard of the test's choice.
func armOn[T any](s *shardOf[T], deadline int64, v T) Timer {
	s.armMu.Lock()
	return s.arm(deadline, clock.Unread, v, 0)
}

// firstLevel returns the level of the first bucket.
func firstLevel[T any](s *shardOf[T]) int {
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	s.drainAll()
	top, _ := s.owner.wheel.queue.Min()
	return int(top.level)
}

// own calls f while the caller is the owner of the wheel, and lets go of it without looking at what
// was asked for meanwhile.
func (s *shard) own(f func()) {
	s.wheelMu.Lock()
	defer s.unlock()
	f()
}

// placeAll places everything that was armed, and carries out all removals.
func (s *shard) placeAll() { s.own(s.drainAll) }

// verified checks the invariants of a shard that may have a driver.
func verified(t *testing.T, s *shard) {
	t.Helper()
	s.wheelMu.Lock()
	err := s.verify()
	s.wheelMu.Unlock()
	require.NoError(t, err)
}

// staged returns the number of slots in the inbox.
func (s *shard) staged() int {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	return len(s.inbox.staged)
}

// placed returns the number of entries of buckets that are queued on the wheel.
func (s *shard) placed() (n int) {
	s.own(func() { n = s.owner.wheel.live })
	return n
}

// tickets returns the number of deadlines in the table of far deadlines.
func (s *shard) tickets() int {
	s.far.mu.Lock()
	defer s.far.mu.Unlock()
	return len(s.far.ticks)
}

// bucketsUsed returns the number of buckets that are not spare.
func (s *shard) bucketsUsed() (n int) {
	s.own(func() { n = len(s.owner.store.all) - len(s.owner.store.spare) })
	return n
}

// newShardStory is a story of one shard, whose parts the test looks at.
func newShardStory(t *testing.T, opts Options) (*story, *shard) {
	t.Helper()
	s := newStory(t, opts, 0)
	return s, &s.engine.shards[0].shard
}

// fill arms n timers for the same time.
func (s *story) fill(n int, d time.Duration) []Timer {
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = s.after(d, "")
	}
	return timers
}

// fillPlaced is fill with timers that have left the inbox.
func (s *story) fillPlaced(n int, d time.Duration) []Timer {
	timers := s.fill(n, d)
	s.engine.shards[0].placeAll()
	return timers
}

func (s *story) stopAll(timers []Timer) {
	s.t.Helper()
	requireAllStop(s.t, timers)
	s.verify()
}

func requireAllStop(t *testing.T, timers []Timer) {
	t.Helper()
	for k, e := range timers {
		if !e.Stop() {
			t.Fatalf("timer %d was not pending", k)
		}
	}
}

// requireInert checks that none of the handles does anything, though their slots may be in use.
func (s *story) requireInert(stale []Timer) {
	s.t.Helper()
	pending := s.Len()
	for _, e := range stale {
		_, ok := e.Deadline()
		if e.Stop() || e.Reschedule(0) || e.RescheduleAt(modelStart) || ok {
			s.t.Fatalf("stale handle %+v has acted on another timer", e)
		}
	}
	require.Equal(s.t, pending, s.Len())
}

// counted is a copy of the counters.
func (s *shard) counted() counters {
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	return s.owner.counters
}

func (s *shard) occupied() bool {
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	return s.owner.pool.busy()
}

// skip lets d pass on the clock of one shard and leaves the alarm alone. wheelMu is held.
func (s *shard) skip(d time.Duration) {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	s.Base = s.Base.Add(-d)
}

// word returns the word of the slot to which a handle points.
func (t Timer) word() arena.Word { return loadWord(&t.shard().slots.Pages, t.index) }

// swapWord changes the word of a timer as another goroutine would.
func (t Timer) swapWord(change func(w arena.Word) arena.Word) {
	pg := t.shard().slots.Pages.At(t.index >> arena.PageShift)
	pg.Store(t.index, change(pg.Load(t.index)))
}

// slotIsFree reports whether a slot is free: no timer, list or batch names it. Slots that were
// claimed a moment ago are given back first.
func (s *shard) slotIsFree(i uint32) bool {
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	s.reclaim()
	s.armMu.Lock()
	defer s.armMu.Unlock()
	for _, f := range s.inbox.free {
		if f == i {
			return true
		}
	}
	return s.slots.Pages.At(i>>arena.PageShift) == nil || s.slots.Pager.IsFree(int(i>>arena.PageShift), i&arena.PageMask)
}

type resource struct{ bytes [1 << 10]byte }

// collected waits until p's target is gone.
func collected[T any](t *testing.T, p weak.Pointer[T], what string) {
	t.Helper()
	await(t, what+" is collected", func() bool { runtime.GC(); return p.Value() == nil })
}

// choices decides what a run of the model does.
type choices interface {
	below(n int) int // from 0 to n-1; 0 when nothing is left, so 0 must be harmless
	bits() int64     // from 0 to math.MaxInt64
	more() bool
}

// seeded makes steps choices from a seed, which a failure prints.
type seeded struct {
	seed  uint64
	steps int
	rng   *rand.Rand
}

func newSeeded(seed uint64, steps int) *seeded {
	return &seeded{seed, steps, rand.New(rand.NewPCG(seed, 0))}
}

func (c *seeded) below(n int) int { return c.rng.IntN(n) }
func (c *seeded) bits() int64     { return c.rng.Int64() }
func (c *seeded) more() bool      { c.steps--; return c.steps >= 0 }
func (c *seeded) String() string  { return fmt.Sprintf("of seed %d", c.seed) }

// scripted takes choices from a fuzz input.
type scripted struct{ rest []byte }

func (c *scripted) below(n int) int {
	if len(c.rest) == 0 {
		return 0
	}
	v := int(c.rest[0]) % n
	c.rest = c.rest[1:]
	return v
}

func (c *scripted) bits() int64 {
	var b [8]byte
	c.rest = c.rest[copy(b[:], c.rest):]
	return int64(binary.LittleEndian.Uint64(b[:]) & math.MaxInt64)
}

func (c *scripted) more() bool     { return len(c.rest) > 0 }
func (c *scripted) String() string { return "of the fuzz input" }

func satMul(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// addModelSeeds gives a fuzz target inputs to start from: one for each size, number of levels and
// tick.
func addModelSeeds(f *testing.F) {
	for size := range 6 {
		for level := range 5 {
			rng := rand.New(rand.NewPCG(uint64(size), uint64(level)))
			data := []byte{byte(size + level), byte(size), byte(level)}
			for range 64 << (level % 4) {
				data = append(data, byte(rng.Uint32()))
			}
			f.Add(data)
		}
	}
}
