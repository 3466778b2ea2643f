package wheelclock

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

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

const ms = time.Millisecond

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newClock(tb testing.TB) (*Clock, *timingwheel.TimingWheel) {
	tb.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	require.NoError(tb, err)
	tb.Cleanup(tw.Stop)
	return New(tw), tw
}

// movableClock is a clock.Clock whose time a test can move.
type movableClock interface {
	clock.Clock
	Add(d time.Duration)
	Set(t time.Time)
}

// script makes random calls and returns all observable results.
func script(c movableClock, seed uint64) (records []string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	begin := c.Now()
	record := func(format string, args ...any) { records = append(records, fmt.Sprintf(format, args...)) }
	var mu sync.Mutex
	var called []int
	var timers, funcs []*clock.Timer
	var tickers []*clock.Ticker
	var ctxs []context.Context
	for range 100 {
		d := time.Duration(rng.IntN(12)) * ms
		switch rng.IntN(10) {
		case 0:
			timers = append(timers, c.Timer(d+ms)) // with a zero duration the Stop method of a Mock's timer blocks next
		case 1:
			n := len(funcs)
			funcs = append(funcs, c.AfterFunc(d, func() {
				mu.Lock()
				defer mu.Unlock()
				called = append(called, n)
			}))
		case 2:
			tickers = append(tickers, c.Ticker(d+ms))
		case 3:
			ctx, cancel := c.WithTimeout(context.Background(), d-ms)
			ctxs = append(ctxs, ctx)
			if rng.IntN(4) == 0 {
				cancel()
			}
		case 4:
			if n := len(funcs); n > 0 {
				n = rng.IntN(n)
				record("func %d: Stop: %v", n, funcs[n].Stop())
			}
		case 5:
			if n := len(funcs); n > 0 {
				n = rng.IntN(n)
				record("func %d: Reset: %v", n, funcs[n].Reset(d))
			}
		case 6:
			if n := len(timers); n > 0 {
				n = rng.IntN(n)
				record("timer %d: Stop: %v", n, timers[n].Stop())
			}
		case 7:
			if n := len(tickers); n > 0 {
				n = rng.IntN(n)
				tickers[n].Reset(d + ms)
			}
		case 8:
			c.Set(c.Now().Add(d))
		default:
			c.Add(d)
		}
		synctest.Wait()
		for n, t := range timers {
			select {
			case at := <-t.C:
				record("timer %d sends %v", n, at.Sub(begin))
			default:
			}
		}
		for n, t := range tickers {
			select {
			case at := <-t.C:
				record("ticker %d sends %v", n, at.Sub(begin))
			default:
			}
		}
		for n, ctx := range ctxs {
			deadline, _ := ctx.Deadline()
			select {
			case <-ctx.Done():
				record("context %d: %v, %v", n, ctx.Err(), deadline.Sub(begin))
			default:
			}
		}
		mu.Lock()
		slices.Sort(called)
		record("called %v at %v, %v, %v", called, c.Now().Sub(begin), c.Since(begin), c.Until(begin))
		called = nil
		mu.Unlock()
	}
	return records
}

// The same script must have the same results on a Mock and on a Clock whose wheel has other timers.
func TestClockBehavesLikeMock(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for run := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			mock := clock.NewMock()
			mock.Set(start)
			ours, tw := newClock(t)
			ticker := tw.NewTicker(7 * ms)
			defer ticker.Stop()
			require.Equal(t, script(mock, seed+run), script(ours, seed+run), "seed %d", seed+run)
			assert.True(t, ours.Now().Equal(tw.Now()))
		})
	}
}

// In each callback of the wheel, and at the end, both clocks show the same time, and all earlier
// timers of the Mock have fired.
func TestAddMovesBothClocksInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tw := newClock(t)
		var records []string
		var mu sync.Mutex
		note := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, fmt.Sprint(name, " ", c.Since(start)))
		}
		tw.AfterFunc(2*time.Second, func() {
			note("wheel")
			assert.True(t, c.Now().Equal(tw.Now()))
			c.AfterFunc(500*ms, func() { note("mock, armed by the wheel") })
			tw.AfterFunc(time.Second, func() { note("wheel, armed by the wheel") })
		})
		c.AfterFunc(time.Second, func() { note("mock") })
		c.AfterFunc(4*time.Second, func() { note("last") })
		c.Add(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{
			"mock 1s", "wheel 2s", "mock, armed by the wheel 2.5s", "wheel, armed by the wheel 3s", "last 4s",
		}, records)
		assert.True(t, c.Now().Equal(start.Add(10*time.Second)))
		assert.True(t, tw.Now().Equal(c.Now()))
		assert.Panics(t, func() { c.Set(start) })

		c.AfterFunc(time.Hour, func() {})
		assert.True(t, c.WaitForAllTimers().Equal(tw.Now()))
		assert.True(t, tw.Now().Equal(start.Add(time.Hour+10*time.Second)))
	})
}

func TestSleepTickAndDeadlineFollowTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClock(t)
		var woke time.Duration
		var group sync.WaitGroup
		group.Go(func() {
			c.Sleep(time.Minute)
			woke = c.Since(start)
		})
		ticks := c.Tick(20 * time.Second)
		ctx, cancel := c.WithDeadline(t.Context(), start.Add(30*time.Second))
		defer cancel()
		synctest.Wait()
		c.Add(20 * time.Second)
		assert.True(t, (<-ticks).Equal(start.Add(20*time.Second)))
		require.NoError(t, ctx.Err())
		c.Add(10 * time.Second)
		synctest.Wait()
		<-ctx.Done()
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		after := c.After(30 * time.Second)
		c.Add(30 * time.Second)
		group.Wait()
		<-after
		assert.Equal(t, time.Minute, woke)
	})
}

func TestAddPanicsIfWheelIsNotManual(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	assert.Panics(t, func() { New(tw).Add(time.Second) })
}

// A function of the Mock arms timers of the wheel. They fire in order in the same Add, and a plan
// misses no run.
func TestTimersArmedByMockFireInTheSameAdd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in a bubble the sleep of the Mock lets its function run
		c, tw := newClock(t)
		var runs []time.Duration // callbacks run in Add
		c.AfterFunc(time.Second, func() {
			tw.ScheduleFunc(timingwheel.Every(2*time.Second), func() { runs = append(runs, tw.Now().Sub(start)) })
		})
		c.Add(7 * time.Second)
		assert.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second}, runs)
	})
}

// A timer stays pending because its call waits in the queue of an executor, or because it is never
// due. Add must return all the same.
func TestAddReturnsWhileTimerStaysPending(t *testing.T) {
	t.Parallel()
	var queue []func()
	queueing := timingwheel.ExecutorFunc(func(f func()) { queue = append(queue, f) })
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Executor: queueing})
	require.NoError(t, err)
	defer tw.Stop()
	c := New(tw)
	fired := false
	tw.AfterFunc(time.Second, func() { fired = true })
	tw.AfterFunc(math.MaxInt64, func() {})
	c.Add(time.Minute)
	for _, f := range queue {
		f()
	}
	assert.True(t, fired)
	c.Add(math.MaxInt64)
	assert.Equal(t, 1, tw.Len())
}
