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
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// hangTimeout is how long tests wait before they report a hang. It is not a bound for latencies.
const hangTimeout = time.Minute

// underRace and underInvariants are set in the files with the build tags race and invariants. Both
// tags slow down all tests, and the race detector allocates memory.
var underRace, underInvariants bool

// scaled returns the size of a test: n, or less if a full-sized test would take too long.
func scaled(n int) int {
	switch {
	case underInvariants:
		n /= 100
	case underRace || !testscale.Full():
		n /= 10
	}
	return max(n, 1)
}

// scaledSeeds returns how many of n seeds a model test runs: all, because models take the place of
// tests of single cases. Most models run on one goroutine, so the race detector gets a tenth.
func scaledSeeds(n uint64) uint64 {
	if underRace {
		n /= 10
	}
	return max(n, 1)
}

// startWheel returns a wheel that is stopped at the end of the test.
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
	case <-time.After(hangTimeout):
		require.FailNow(tb, "waited too long", what)
		panic("unreachable")
	}
}

// await waits until the condition holds.
func await(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for end := time.Now().Add(hangTimeout); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(tb, "waited too long", what)
		}
	}
}

// goroutinesReturnTo waits until the number of goroutines is at most before.
func goroutinesReturnTo(t *testing.T, before int) {
	t.Helper()
	await(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// verifyShards checks the invariants of all shards. The wheel may be running.
func verifyShards(t *testing.T, e *engine) {
	t.Helper()
	for _, s := range e.shards {
		verifyShard(t, s)
	}
}

// spin waits without sleeping, because time.Sleep takes much longer than these times.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		runtime.Gosched() // there may be only one processor
	}
}

// busy keeps every processor busy with n goroutines of the program until the test ends. In full
// tests they never yield, so each turn of a goroutine takes the 10 ms of a time slice. Otherwise a
// turn takes at most 1 ms.
func busy(t *testing.T, n int) {
	t.Helper()
	turn := time.Millisecond
	if testing.Short() {
		turn = 10 * time.Microsecond
	}
	full := testscale.Full()
	var done atomic.Bool
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			begin := time.Now()
			for k := 1; !done.Load(); k++ {
				if k%4096 == 0 && !full && time.Since(begin) > turn {
					runtime.Gosched()
					begin = time.Now()
				}
			}
		})
	}
	t.Cleanup(func() { done.Store(true); all.Wait() })
}

// concurrently runs f in a loop on another goroutine while test runs.
func concurrently(f, test func()) {
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

// childEnv is set in a child process of a test, to its role.
const childEnv = "TIMINGWHEEL_TEST_CHILD"

// child returns a command that runs the named test in a child process.
func child(test, role string) *exec.Cmd {
	command := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
	command.Env = append(os.Environ(), childEnv+"="+role)
	return command
}

func boom() { panic("boom") }

// panicValue calls f and returns the value with which f panics, or nil.
func panicValue(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

const ms = time.Millisecond

// bubble runs a test on fake time with a wheel, which has one shard unless opts.Shards is set.
func bubble(t *testing.T, opts Options, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if opts.Shards == 0 {
			opts.Shards = 1
		}
		tw, err := New(withLimit(opts))
		require.NoError(t, err)
		test(t, tw)
		require.NoError(t, tw.Shutdown(context.Background()))
		synctest.Wait() // until workers have ended, otherwise synctest.Test panics
	})
}

// pass lets d of fake time pass, and then waits until all goroutines of the bubble are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// stopwatch notes times in milliseconds since its creation.
type stopwatch struct {
	start time.Time
	mu    sync.Mutex // guards times; runs may overlap
	times []int
}

func newStopwatch() *stopwatch { return &stopwatch{start: time.Now()} }

func (w *stopwatch) elapsed() int { return int(time.Since(w.start) / ms) }

func (w *stopwatch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, w.elapsed())
}

// noted returns the noted times. Runs may be in progress.
func (w *stopwatch) noted() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.times)
}

// handle passes a Timer to its own callback.
type handle struct{ timer atomic.Pointer[Timer] }

func (h *handle) set(t Timer) { h.timer.Store(&t) }
func (h *handle) get() Timer  { return *h.timer.Load() }

// nextFunc implements Scheduler by a function.
type nextFunc func(time.Time) time.Time

func (f nextFunc) Next(t time.Time) time.Time { return f(t) }

// question holds the arguments of a call to a planner: for the first run, with N 0, before a run,
// or after a run.
type question struct {
	planner.Run
	finished time.Time // the zero time before a run
}

// plannerFunc is a Scheduler whose planners call a function. The result is used unchanged, even if
// its time has passed.
type plannerFunc func(q question) planner.Step

func (f plannerFunc) Next(time.Time) time.Time    { panic("Next of a Factory") }
func (f plannerFunc) NewPlanner() planner.Planner { return &funcPlanner{f: f} }

type funcPlanner struct {
	f   plannerFunc
	run planner.Run // the latest run
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

// asPlanner is a Scheduler with a planner for the times of another Scheduler.
type asPlanner struct{ Scheduler }

func (s asPlanner) NewPlanner() planner.Planner {
	return &struct{ planner.Plain }{planner.Plain{Scheduler: s.Scheduler}}
}

const (
	day     = 24 * time.Hour
	oneYear = 365 * day
)

// shapes are options with which the delays of tests span several levels, laps and rounds.
var shapes = []Options{
	{},
	{WheelSize: 2, Levels: 1, Tick: time.Hour},
	{WheelSize: 4, Levels: 3, Tick: time.Second},
	{WheelSize: 16, Levels: 16, Tick: ms},
	{WheelSize: 256, Levels: 2, Tick: 100 * ms, Shards: 3},
	{WheelSize: 64, Levels: 3, Tick: ms, Executor: Goroutines},
	{WheelSize: 64, Levels: 3, Tick: ms, Executor: Inline},
	{WheelSize: 64, Levels: 3, Tick: ms, Executor: limitOf(1)},
}

func tickOf(opts Options) time.Duration {
	if opts.Tick == 0 {
		return defaultTick
	}
	return opts.Tick
}

// channelPool is a minimal bounded pool: a fixed number of goroutines and a long queue.
type channelPool chan func()

func (p channelPool) Go(f func()) { p <- f }

func startPool(tb testing.TB, workers int) Executor {
	tb.Helper()
	p, closing := make(channelPool, 100_000), make(chan struct{})
	for range workers {
		go func() {
			for {
				select {
				case f := <-p:
					runApart(f)
				case <-closing:
					return
				}
			}
		}()
	}
	tb.Cleanup(func() { close(closing) })
	return p
}

// runApart runs f on a new goroutine, so that runtime.Goexit in f does not end the caller.
func runApart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// held is an executor that holds all calls until release. Timers whose calls are held are due and
// pending.
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

// release runs all held calls and returns their number.
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

// limitOf stands for [Limit] in tables whose options serve several wheels.
type limitOf int

func (limitOf) Go(func()) { panic("limitOf is not an executor: use withLimit") }

// withLimit replaces a limitOf by a new Limit.
func withLimit(opts Options) Options {
	if n, ok := opts.Executor.(limitOf); ok {
		opts.Executor = Limit(int(n))
	}
	return opts
}

// executors are all executors except held, so they run callbacks without the help of the test.
var executors = map[string]func(testing.TB) Executor{
	"default":    func(testing.TB) Executor { return nil },
	"limit 1":    func(testing.TB) Executor { return limitOf(1) },
	"limit 3":    func(testing.TB) Executor { return limitOf(3) },
	"Goroutines": func(testing.TB) Executor { return Goroutines },
	"Inline":     func(testing.TB) Executor { return Inline },
	"WaitGroup":  func(testing.TB) Executor { return new(sync.WaitGroup) },
	"pool":       func(tb testing.TB) Executor { tb.Helper(); return startPool(tb, 4) },
}

// unbounded are the executors with which no callback waits for another callback.
var unbounded = map[string]Executor{"default": nil, "Goroutines": Goroutines, "WaitGroup": new(sync.WaitGroup)}

// drainWheel waits until no timer is pending and no callback runs. Stats reads one shard after the
// other, so it may miss a timer that a callback arms on a shard that was read before its own.
func drainWheel(tw *TimingWheel) error {
	end := time.Now().Add(hangTimeout)
	for idle := 0; idle < 3; time.Sleep(time.Millisecond) {
		if st := tw.Stats(); st.Pending+st.Due+st.Running == 0 {
			idle++
		} else if idle = 0; time.Now().After(end) {
			return assert.AnError
		}
	}
	return nil
}

// tracked is a timer of a race test and its events. Only the goroutine that armed the timer
// reschedules it. Any goroutine may stop it.
type tracked struct {
	timer     Timer
	notBefore time.Duration // since ledger.start; written by the goroutine that armed the timer
	ranAt     atomic.Int64  // since ledger.start
	runs      atomic.Int32
	stops     atomic.Int32
}

func (r *tracked) stop() bool {
	if !r.timer.Stop() {
		return false
	}
	r.stops.Add(1)
	return true
}

// ledger holds the records of all timers of a test.
type ledger struct {
	start      time.Time
	mayBeEarly bool   // notBefore is not checked: timers are flushed, or rescheduled by several goroutines
	after      func() // callbacks call it at their end; nil: none
	mu         sync.Mutex
	records    []*tracked
}

func newLedger() *ledger { return &ledger{start: time.Now()} }

func (l *ledger) add(r *tracked) *tracked {
	l.mu.Lock()
	l.records = append(l.records, r)
	l.mu.Unlock()
	return r
}

func (l *ledger) callback(r *tracked) func() {
	return func() {
		r.ranAt.Store(int64(time.Since(l.start)))
		if r.runs.Add(1); l.after != nil {
			l.after()
		}
	}
}

func (l *ledger) arm(tw *TimingWheel, d time.Duration) *tracked {
	r := &tracked{notBefore: time.Since(l.start) + max(d, 0)}
	r.timer = tw.AfterFunc(d, l.callback(r))
	return l.add(r)
}

func (l *ledger) armAt(tw *TimingWheel, at time.Time) *tracked {
	r := &tracked{notBefore: at.Sub(l.start)}
	r.timer = tw.AtFunc(at, l.callback(r))
	return l.add(r)
}

func (l *ledger) reset(r *tracked, d time.Duration) bool {
	at := time.Since(l.start) + max(d, 0)
	if !r.timer.Reschedule(d) {
		return false
	}
	r.notBefore = at
	return true
}

// account counts the timers that were armed, fired and stopped. It requires that each timer ended
// at most once and none fired early.
func (l *ledger) account(t *testing.T) (armed, fired, stopped uint64) {
	t.Helper()
	for _, r := range l.records { // no require in this loop, because it would take longer than the test
		runs, stops := r.runs.Load(), r.stops.Load()
		if runs+stops > 1 {
			t.Fatalf("ran %d times, stopped %d times", runs, stops)
		}
		if r.timer == (Timer{}) {
			require.Zero(t, runs+stops, "the zero Timer of a stopped wheel fired or was stopped")
			continue
		}
		armed++
		fired += uint64(runs)
		stopped += uint64(stops)
		if at := time.Duration(r.ranAt.Load()); runs == 1 && at < r.notBefore && !l.mayBeEarly {
			t.Fatalf("early by %v", r.notBefore-at)
		}
	}
	return armed, fired, stopped
}

// requireCounted checks that the wheel's counters agree with the ledger. Timers may have been
// discarded.
func (l *ledger) requireCounted(t *testing.T, tw *TimingWheel) {
	t.Helper()
	armed, fired, stopped := l.account(t)
	st := tw.Stats()
	assert.Equal(t, armed, st.Armed, "armed")
	assert.Equal(t, fired, st.Fired, "fired")
	assert.Equal(t, stopped, st.Stopped, "stopped")
	assert.Zero(t, tw.Len())
	assert.Zero(t, st.Running)
}

// requireNoneLostAndCounted waits until all timers have ended and verifies the wheel. It is like
// requireCounted, but no timer may have been discarded.
func (l *ledger) requireNoneLostAndCounted(t *testing.T, tw *TimingWheel) {
	t.Helper()
	require.NoError(t, drainWheel(tw))
	verifyShards(t, tw.engine)
	l.requireNoneLost(t)
	l.requireCounted(t, tw)
}

func (l *ledger) requireNoneLost(t *testing.T) {
	t.Helper()
	armed, fired, stopped := l.account(t)
	require.Equal(t, armed, fired+stopped, "lost")
}

// tiny are options for small wheels, on which cascades, rounds, laps and races for a bucket are
// frequent.
var tiny = []Options{
	{WheelSize: 2, Levels: 1, Tick: minTick, Shards: 1},
	{WheelSize: 2, Levels: 3, Tick: minTick, Shards: 4},
	{WheelSize: 4, Levels: 2, Tick: minTick, Shards: 2},
	{WheelSize: 8, Levels: 3, Tick: 50 * time.Microsecond, Shards: 1, Executor: Goroutines},
	{WheelSize: 16, Levels: 3, Tick: 100 * time.Microsecond, Shards: 1, Executor: Inline},
	{WheelSize: 16, Levels: 1, Tick: time.Millisecond, Shards: 4},
	{WheelSize: 8, Levels: 3, Tick: 50 * time.Microsecond, Shards: 4, Executor: limitOf(2)},
	{WheelSize: 2, Levels: 3, Tick: time.Millisecond, Shards: 1},
}

func optionName(o Options) string {
	return fmt.Sprintf("size=%d,levels=%d,tick=%v,shards=%d,executor=%T(%[5]v)",
		o.WheelSize, o.Levels, o.Tick, o.Shards, o.Executor)
}

var modelStart = time.Unix(1_000_000_000, 0).UTC()

// recordingWheel is a wheel in Manual mode whose timers record their names when they run. Times are
// relative to the wheel's first reading of the clock, which is the origin of newRecordingWheel.
type recordingWheel struct {
	*TimingWheel
	t   *testing.T
	ran []string
}

func newRecordingWheel(t *testing.T, opts Options, origin int64) *recordingWheel {
	t.Helper()
	opts.Manual, opts.Start = true, modelStart
	tw, err := newWheelAt(withLimit(opts), origin)
	require.NoError(t, err)
	return &recordingWheel{TimingWheel: tw, t: t}
}

func (s *recordingWheel) note(name string) func() { return func() { s.ran = append(s.ran, name) } }

func (s *recordingWheel) after(d time.Duration, name string) Timer {
	return s.AfterFunc(d, s.note(name))
}

// to advances the clock to modelStart+d and returns the names of the timers that ran.
func (s *recordingWheel) to(d time.Duration) string {
	s.t.Helper()
	s.ran = nil
	n := s.Advance(modelStart.Add(d))
	s.verify()
	if n != len(s.ran) {
		s.t.Fatalf("Advance to %v: %d, ran %v", d, n, s.ran)
	}
	return strings.Join(s.ran, " ")
}

func (s *recordingWheel) verify() {
	s.t.Helper()
	verifyShards(s.t, s.TimingWheel.engine)
}

// armOn arms a timer on the given shard.
func armOn[T any](s *shard, deadline int64, v T) Timer {
	s.inbox.mu.Lock()
	return armAndUnlock(s, deadline, clock.Unread, v, 0)
}

// firstLevel returns the level of the bucket that expires first.
func firstLevel(s *shard) int {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.owner.drainAll()
	top, _ := s.owner.wheel.queue.Min()
	return int(top.level)
}

// own calls f while the caller owns the wheel. It then unlocks the wheel without handling the
// requests that were made meanwhile.
func (s *shard) own(f func()) {
	s.owner.mu.Lock()
	defer s.unlock()
	f()
}

// placeAll places all timers of the inbox and carries out all removals.
func (s *shard) placeAll() { s.own(s.owner.drainAll) }

// verifyShard checks the invariants of a shard. Its driver may be running.
func verifyShard(t *testing.T, s *shard) {
	t.Helper()
	s.owner.mu.Lock()
	err := s.verify()
	s.owner.mu.Unlock()
	require.NoError(t, err)
}

// staged returns the number of records in the inbox.
func (s *shard) staged() int {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	return len(s.inbox.staged)
}

// placed returns the number of live entries in the buckets of the wheel.
func (s *shard) placed() (n int) {
	s.own(func() { n = s.owner.wheel.live })
	return n
}

// newRecordingWheelAndShard is like newRecordingWheel, and also returns the only shard.
func newRecordingWheelAndShard(t *testing.T, opts Options) (*recordingWheel, *shard) {
	t.Helper()
	s := newRecordingWheel(t, opts, 0)
	return s, s.TimingWheel.engine.shards[0]
}

// fill arms n timers with the same delay.
func (s *recordingWheel) fill(n int, d time.Duration) []Timer {
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = s.after(d, "")
	}
	return timers
}

// fillPlaced is like fill, and places the timers.
func (s *recordingWheel) fillPlaced(n int, d time.Duration) []Timer {
	timers := s.fill(n, d)
	s.TimingWheel.engine.shards[0].placeAll()
	return timers
}

func (s *recordingWheel) stopAll(timers []Timer) {
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

// requireInert requires that stale handles have no effect, even if their records are in use again.
func (s *recordingWheel) requireInert(stale []Timer) {
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

// skip moves the clock of a shard and of its wheel, and not the alarm. owner.mu is held.
func (s *shard) skip(d time.Duration) {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	s.config.Base = s.config.Base.Add(-d)
	s.engine.config.Base = s.config.Base
}

// startDriver starts a driver. owner.mu is held.
func (s *shard) startDriver() {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	s.alarm.startDriver()
}

// word returns the word of the record of a handle.
func (t Timer) word() arena.Word { return loadWord(&t.ref.shard.inbox.records.Pages, t.index) }

// swapWord changes the word of a timer as another goroutine would.
func (t Timer) swapWord(change func(w arena.Word) arena.Word) {
	pg := t.ref.shard.inbox.records.Pages.At(t.index >> arena.PageShift)
	pg.Store(t.index, change(pg.Load(t.index)))
}

// recordIsFree reports whether a record is free, that is no timer, list or batch refers to it. It
// first reclaims the records of claimed timers.
func (s *shard) recordIsFree(i uint32) bool {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.owner.reclaim()
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	return slices.Contains(s.inbox.free, i) || s.inbox.records.Pages.At(i>>arena.PageShift) == nil ||
		s.inbox.records.IsFree(int(i>>arena.PageShift), i&arena.PageMask)
}

type resource struct{ bytes [1 << 10]byte }

// awaitCollected waits until the garbage collector has freed the target of p.
func awaitCollected[T any](t *testing.T, p weak.Pointer[T], what string) {
	t.Helper()
	await(t, what+" is collected", func() bool { runtime.GC(); return p.Value() == nil })
}

// choices is the source of the random decisions of a model test.
type choices interface {
	below(n int) int // from 0 to n-1; always 0 at the end of a fuzz input
	bits() int64     // from 0 to math.MaxInt64
	more() bool
}

// seeded makes the choices of a number of steps from a seed. Failures print the seed.
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

// endOf returns the end of the clock's range, in ns. The clock never reaches it.
func endOf(tick time.Duration) int64 { return satMul(clock.LastTick, int64(tick)) }

// within moves a first reading into the range of the clock.
func within(tick time.Duration, origin int64) int64 {
	if end := endOf(tick); origin >= end {
		return end - end/256
	}
	return origin
}

func satMul(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// addModelSeeds adds inputs to the corpus of a fuzz target, for each wheel size and number of
// levels, with different ticks.
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
