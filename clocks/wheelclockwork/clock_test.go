package wheelclockwork

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

const ms = time.Millisecond

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWheel(tb testing.TB, opts timingwheel.Options) *timingwheel.TimingWheel {
	tb.Helper()
	tw, err := timingwheel.New(opts)
	require.NoError(tb, err)
	tb.Cleanup(tw.Stop)
	return tw
}

func newFakeClock(tb testing.TB) *FakeClock {
	tb.Helper()
	return NewFakeClock(newWheel(tb, timingwheel.Options{Manual: true, Start: start}))
}

// subject is a clock under test.
type subject struct {
	clockwork.Clock
	advance func(d time.Duration)
	waiters func(n int) bool // reports whether at least n waiters exist; nil: unknown
}

// script makes one call for each byte of input and returns all observable results. It does not
// reset a running ticker, in which the two implementations differ.
func script(s subject, input []byte) []string {
	r := &runner{s: s, begin: s.Now()}
	for i, b := range input {
		r.step(i, int(b))
	}
	return r.records
}

type runner struct {
	s     subject
	begin time.Time

	mu     sync.Mutex
	called []int // numbers of the AfterFuncs that were called since the last record

	records []string
	timers  []clockwork.Timer
	tickers []clockwork.Ticker
	stopped []bool // by ticker
	funcs   []clockwork.Timer
	afters  []<-chan time.Time
}

func (r *runner) record(format string, args ...any) {
	r.records = append(r.records, fmt.Sprintf(format, args...))
}

func (r *runner) receive(name string, n int, c <-chan time.Time) {
	select {
	case at := <-c:
		r.record("%s %d sends %v", name, n, at.Sub(r.begin).Truncate(ms))
	default:
		r.record("%s %d sends nothing", name, n)
	}
}

func (r *runner) step(i, b int) {
	d := time.Duration(b/16-2) * ms // from -2 to 13
	pick := func(n int) int { return (i + b) % n }
	switch op := b % 16; {
	case op == 0:
		r.timers = append(r.timers, r.s.NewTimer(d))
	case op == 1:
		n := len(r.funcs)
		r.funcs = append(r.funcs, r.s.AfterFunc(d, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.called = append(r.called, n)
		}))
	case op == 2 && d > 0:
		r.tickers, r.stopped = append(r.tickers, r.s.NewTicker(d)), append(r.stopped, false)
	case op == 3:
		r.afters = append(r.afters, r.s.After(d))
	case op <= 5 && len(r.timers) > 0:
		n := pick(len(r.timers))
		r.record("timer %d: Reset: %v", n, r.timers[n].Reset(d))
	case op == 6 && len(r.timers) > 0:
		n := pick(len(r.timers))
		r.record("timer %d: Stop: %v", n, r.timers[n].Stop())
	case op == 7 && len(r.funcs) > 0:
		n := pick(len(r.funcs))
		r.record("func %d: Reset: %v", n, r.funcs[n].Reset(d))
	case op == 8 && len(r.funcs) > 0:
		n := pick(len(r.funcs))
		r.record("func %d: Stop: %v", n, r.funcs[n].Stop())
	case op == 9 && len(r.tickers) > 0:
		n := pick(len(r.tickers))
		r.tickers[n].Stop()
		r.stopped[n] = true
	case op == 10 && len(r.tickers) > 0 && d > 0:
		if n := pick(len(r.tickers)); r.stopped[n] {
			r.tickers[n].Reset(d)
			r.stopped[n] = false
		}
	default:
		r.s.advance(max(d, 0) * time.Duration(1+i%3))
		r.receiveAll()
	}
	synctest.Wait()
}

// receiveAll receives from all channels and records the results.
func (r *runner) receiveAll() {
	synctest.Wait()
	for n, t := range r.timers {
		r.receive("timer", n, t.Chan())
	}
	for n, c := range r.afters {
		r.receive("After", n, c)
	}
	for n, t := range r.tickers {
		r.receive("ticker", n, t.Chan())
	}
	r.mu.Lock()
	slices.Sort(r.called)
	r.record("called %v at %v", r.called, r.s.Now().Sub(r.begin).Truncate(ms))
	r.called = nil
	r.mu.Unlock()
	if r.s.waiters != nil {
		n := 0
		for r.s.waiters(n + 1) {
			n++
		}
		r.record("%d waiters", n)
	}
	r.record("Since %v, Until %v", r.s.Since(r.begin).Truncate(ms), r.s.Until(r.begin.Add(time.Hour)).Round(ms))
}

// atLeast returns a function that reports whether at least n waiters exist, without blocking.
func atLeast(block func(ctx context.Context, n int) error) func(int) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return func(n int) bool { return block(ended, n) == nil }
}

func newFakes(t *testing.T) (original, ours subject) {
	o, c := clockwork.NewFakeClockAt(start), newFakeClock(t)
	return subject{o, o.Advance, atLeast(o.BlockUntilContext)}, subject{c, c.Advance, atLeast(c.BlockUntilContext)}
}

// The same script must have the same results on clockwork's FakeClock and on ours.
func TestFakeClockBehavesLikeClockworks(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for run := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, run))
		input := make([]byte, 150)
		for i := range input {
			input[i] = byte(rng.Uint32())
		}
		compareFakes(t, input)
		if t.Failed() {
			t.Fatalf("seed %d, run %d", seed, run)
		}
	}
}

func compareFakes(t *testing.T, input []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		original, ours := newFakes(t)
		assert.Equal(t, script(original, input), script(ours, input))
	})
}

// FuzzFakeClock compares clockwork's FakeClock with ours.
func FuzzFakeClock(f *testing.F) {
	f.Add([]byte("timers and tickers, stopped and reset"))
	f.Fuzz(func(t *testing.T, input []byte) { compareFakes(t, input[:min(len(input), 300)]) })
}

// The same script must have the same results on clockwork's real clock and on ours. In a bubble the
// two see the same time, and the durations of the script are multiples of the wheel's tick.
func TestClockBehavesLikeRealClock(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for run := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, run))
		input := make([]byte, 150)
		for i := range input {
			input[i] = byte(rng.Uint32())
		}
		var records [2][]string
		for i := range records {
			synctest.Test(t, func(t *testing.T) {
				clock := clockwork.NewRealClock()
				if i == 1 {
					clock = NewClock(newWheel(t, timingwheel.Options{}))
				}
				records[i] = script(subject{Clock: clock, advance: time.Sleep}, input)
			})
		}
		require.Equal(t, records[0], records[1], "seed %d, run %d", seed, run)
	}
}

// Our clocks panic in the same cases as clockwork's.
func TestNonPositiveIntervalPanics(t *testing.T) {
	t.Parallel()
	original, ours := newFakes(t)
	running := subject{Clock: NewClock(newWheel(t, timingwheel.Options{}))}
	for _, d := range []time.Duration{0, -1} {
		for _, s := range []subject{original, ours, running, {Clock: clockwork.NewRealClock()}} {
			assert.Panics(t, func() { s.NewTicker(d) })
		}
		assert.PanicsWithError(t, "non-positive interval for NewTicker", func() { ours.NewTicker(d) })
		assert.PanicsWithError(t, "non-positive interval for Ticker.Reset", func() { ours.NewTicker(1).Reset(d) })
	}
	assert.Panics(t, func() { NewFakeClock(newWheel(t, timingwheel.Options{})).Advance(time.Second) }, "the wheel is not Manual")
}

// After Reset a running ticker has one period, and Stop ends it.
func TestResetOfRunningTickerReplacesItsPeriod(t *testing.T) {
	t.Parallel()
	c := newFakeClock(t)
	ticker := c.NewTicker(10 * ms)
	c.Advance(9 * ms)
	ticker.Reset(3 * ms)
	for range 3 {
		c.Advance(2 * ms)
		assert.Empty(t, ticker.Chan())
		c.Advance(1 * ms)
		assert.Equal(t, c.Now(), <-ticker.Chan())
	}
	ticker.Stop()
	c.Advance(time.Hour)
	assert.Empty(t, ticker.Chan())
	assert.Zero(t, c.waiters)
}

// Timers of the clock and of the wheel fire in one order, and each sees the time at which it is
// due. Timers that a callback arms fire in the same Advance.
func TestAdvanceFiresTimersOfWheelAndClockInOrder(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Manual: true, Start: start})
	c := NewFakeClock(tw)
	at := map[string]time.Duration{}
	note := func(name string) { at[name] = c.Since(start) }
	tw.AfterFunc(2*time.Second, func() {
		note("wheel")
		tw.AfterFunc(time.Second, func() { note("chained") })
		c.After(500 * ms)
	})
	first, third := c.After(time.Second), c.After(3*time.Second)
	c.Advance(10 * time.Second)
	assert.Equal(t, map[string]time.Duration{"wheel": 2 * time.Second, "chained": 3 * time.Second}, at)
	assert.Equal(t, start.Add(time.Second), <-first)
	assert.Equal(t, start.Add(3*time.Second), <-third)
	assert.True(t, c.Now().Equal(tw.Now()))
	assert.True(t, c.Now().Equal(start.Add(10*time.Second)))
	c.Advance(-time.Second)
	assert.True(t, c.Now().Equal(start.Add(10*time.Second)))
}

// The wheel's own Advance moves the clock in one step: a ticker ticks once and keeps its phase.
func TestAdvanceOfTheWheelTicksOnce(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Manual: true, Start: start})
	c := NewFakeClock(tw)
	ticker := c.NewTicker(10 * ms)
	tw.Advance(start.Add(35 * ms))
	assert.Equal(t, start.Add(35*ms), <-ticker.Chan())
	assert.Empty(t, ticker.Chan())
	c.Advance(4 * ms)
	assert.Empty(t, ticker.Chan())
	c.Advance(1 * ms)
	assert.Equal(t, start.Add(40*ms), <-ticker.Chan())
}

// The callback of a ticker's timer runs after another goroutine has stopped or reset the ticker.
func TestLateCallbackOfStoppedTickerSendsNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fakeTicker){
		"Stop":  (*fakeTicker).Stop,
		"Reset": func(ticker *fakeTicker) { ticker.Reset(5 * ms) },
	} {
		c := newFakeClock(t)
		ticker := c.NewTicker(ms).(*fakeTicker)
		change(ticker)
		c.tw.Advance(c.Now().Add(2 * ms))
		ticker.expire()
		assert.Empty(t, ticker.Chan(), name)
		c.Advance(3 * ms)
		assert.Equal(t, name == "Reset", len(ticker.Chan()) == 1, name)
	}
}

// A blocked function delays neither Advance nor Reset.
func TestAfterFuncRunsOnItsOwnGoroutine(t *testing.T) {
	t.Parallel()
	c := newFakeClock(t)
	var group sync.WaitGroup
	group.Add(2)
	gate := make(chan struct{})
	timer := c.AfterFunc(ms, func() {
		defer group.Done()
		<-gate
	})
	c.Advance(ms)
	timer.Reset(0)
	close(gate)
	group.Wait()
}

func TestBlockUntilWaitsForSleepers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newFakeClock(t)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { c.Sleep(time.Hour) })
		}
		c.BlockUntil(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.BlockUntilContext(ctx, 4), context.DeadlineExceeded)
		assert.Empty(t, c.blockers)
		c.Advance(time.Hour)
		group.Wait()
		assert.Zero(t, c.waiters)
	})
}

// Goroutines stop and reset timers and tickers while the clock moves. The number of waiters stays
// exact, and a stopped ticker sends nothing.
func TestRaceResetAndAdvanceMiscountsNoWaiter(t *testing.T) {
	t.Parallel()
	c := newFakeClock(t)
	var group sync.WaitGroup
	over := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				c.Advance(ms)
			}
		}
	})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			timer, ticker := c.NewTimer(ms), c.NewTicker(2*ms)
			for range 2000 {
				timer.Reset(rand.N(3 * ms))
				ticker.Reset(1 + rand.N(3*ms))
				if rand.IntN(2) == 0 {
					ticker.Stop()
					select {
					case <-ticker.Chan():
					default:
					}
					select {
					case at := <-ticker.Chan():
						t.Errorf("a tick at %v after Stop", at)
					default:
					}
				}
			}
			timer.Stop()
			ticker.Stop()
		})
	}
	callers.Wait()
	close(over)
	group.Wait()
	assert.Zero(t, c.waiters)
	assert.Zero(t, c.tw.Len())
}

func TestSleepOnStoppedWheelReturnsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t, timingwheel.Options{})
		begin := time.Now()
		var group sync.WaitGroup
		group.Go(func() { NewClock(tw).Sleep(time.Minute) })
		time.Sleep(time.Second)
		tw.Stop()
		group.Wait()
		assert.Equal(t, time.Minute, time.Since(begin))
		NewClock(tw).Sleep(time.Minute)
		assert.Equal(t, 2*time.Minute, time.Since(begin))
	})
}

// A timer stays pending because its call waits in the queue of an executor, or because it is never
// due. Advance must return all the same.
func TestAdvanceReturnsWhileTimerStaysPending(t *testing.T) {
	t.Parallel()
	var queue []func()
	queueing := timingwheel.ExecutorFunc(func(f func()) { queue = append(queue, f) })
	c := NewFakeClock(newWheel(t, timingwheel.Options{Manual: true, Start: start, Executor: queueing}))
	timer := c.NewTimer(time.Second)
	c.NewTicker(math.MaxInt64)
	c.Advance(time.Minute)
	for _, f := range queue {
		f()
	}
	assert.Len(t, timer.Chan(), 1)
	c.Advance(math.MaxInt64)
	assert.Equal(t, 1, c.tw.Len())
}
