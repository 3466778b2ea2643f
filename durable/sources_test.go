package durable_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// queues runs a test with n queues of one store in a synctest bubble.
func queues(t *testing.T, n int, body func(t *testing.T, qs []*durable.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var qs []*durable.Queue
		for i := range n {
			qs = append(qs, open(t, store, durable.Options{Queue: fmt.Sprint("q", i), Partitions: 4}))
		}
		body(t, qs)
		for _, q := range qs {
			q.Close()
		}
		require.NoError(t, store.Close())
		synctest.Wait()
	})
}

// consumeSources runs a consumer of several queues until the returned function is called.
func consumeSources(t *testing.T, sources []durable.Source, options durable.ConsumerOptions) (stop func()) {
	t.Helper()
	return background(t, func(ctx context.Context) error { return durable.Consume(ctx, sources, options) })
}

// gauge counts handlers that run, and when messages were delivered.
type gauge struct {
	mu        sync.Mutex
	running   map[string]int // by queue
	all, most int
	times     []time.Time
}

// handler returns a handler that takes some time.
func (g *gauge) handler(d time.Duration) durable.Handler {
	return func(_ context.Context, m *durable.Delivery) error {
		g.add(m.Queue, 1)
		time.Sleep(d)
		g.add(m.Queue, -1)
		return nil
	}
}

func (g *gauge) add(queue string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		g.running = make(map[string]int)
	}
	g.running[queue] += n
	g.all += n
	g.most = max(g.most, g.all)
	if n > 0 {
		g.times = append(g.times, time.Now())
	}
}

func (g *gauge) delivered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.times)
}

func (g *gauge) mostRunning() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// runningOf returns the numbers of running handlers of the first n queues.
func (g *gauge) runningOf(n int) (running []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range n {
		running = append(running, g.running[fmt.Sprint("q", i)])
	}
	return running
}

// Handlers that are free serve any queue. While all queues have messages, shares follow weights.
func TestSourcesShareHandlersByWeight(t *testing.T) {
	t.Parallel()
	queues(t, 3, func(t *testing.T, qs []*durable.Queue) {
		var g gauge
		sources := []durable.Source{
			{Queue: qs[0], Handler: g.handler(time.Second), Weight: 5},
			{Queue: qs[1], Handler: g.handler(300 * time.Millisecond), Weight: 2},
			{Queue: qs[2], Handler: g.handler(70 * time.Millisecond)},
		}
		enqueueAll(t, qs[0], "m", 600, 0)
		defer consumeSources(t, sources, durable.ConsumerOptions{Concurrency: 32})()
		time.Sleep(4500 * time.Millisecond)
		assert.Equal(t, []int{30, 0, 0}, g.runningOf(3), "only one has messages")
		enqueueAll(t, qs[1], "m", 1000, 0)
		enqueueAll(t, qs[2], "m", 3000, 0)
		time.Sleep(3 * time.Second)
		var sum [3]float64
		for range 100 {
			time.Sleep(53 * time.Millisecond)
			for i, n := range g.runningOf(3) {
				sum[i] += float64(n) / 100
			}
		}
		t.Logf("on average %.1f handlers", sum)
		for i, want := range []float64{20, 8, 4} {
			assert.InDelta(t, want, sum[i], want/4)
		}
		waitUntil(t, func() bool { return g.delivered() == 4600 })
		assert.Equal(t, 32, g.mostRunning())
		for _, q := range qs {
			enqueue(t, q, "late", time.Second)
		}
		start := time.Now()
		waitUntil(t, func() bool { return g.delivered() == 4603 })
		assert.LessOrEqual(t, time.Since(start), 1010*time.Millisecond, "an idle pool is not late")
	})
}

// A queue whose handlers hang leaves the others the handlers that it does not hold.
func TestSourceThatHangsLeavesHandlersToOthers(t *testing.T) {
	t.Parallel()
	for _, weight := range []int{1, 3, 1000} {
		testHangingSource(t, weight)
	}
}

func testHangingSource(t *testing.T, weight int) {
	queues(t, 2, func(t *testing.T, qs []*durable.Queue) {
		var hung, n atomic.Int64
		sources := []durable.Source{{Queue: qs[0], Handler: hangs(t, &hung), Weight: weight}, {Queue: qs[1], Handler: sleeps(time.Millisecond, &n)}}
		defer consumeSources(t, sources, durable.ConsumerOptions{Concurrency: 8, Grace: time.Millisecond})()
		enqueueAll(t, qs[0], "hang", 20, 0)
		time.Sleep(time.Second)
		for i := range 500 {
			for _, q := range qs {
				enqueue(t, q, fmt.Sprint(i), time.Duration(i)*time.Millisecond)
			}
		}
		took := waitUntil(t, func() bool { return n.Load() == 500 })
		assert.LessOrEqual(t, took, time.Second)
		assert.EqualValues(t, 7, hung.Load())
	})
}

// Any number of consumers keep the limits of a queue, even while others join and leave.
func TestLimitsHoldForAllConsumers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		consumers, running int
		rate               float64
		duration           time.Duration // of the handlers
	}{
		{1, 1, 0, 50 * time.Millisecond}, {1, 5, 0, 50 * time.Millisecond}, {3, 2, 0, 2 * time.Millisecond}, {4, 7, 0, 50 * time.Millisecond},
		{1, 0, 10, 0}, {1, 0, 0.5, 0}, {1, 0, 500, 0}, {3, 0, 10, time.Second}, {4, 0, 100, 0}, {3, 7, 50, 50 * time.Millisecond},
		{4, 1, 10, time.Millisecond}, {1, 0, 1e10, 0},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			queues(t, 1, func(t *testing.T, qs []*durable.Queue) {
				var g gauge
				source := durable.Source{Queue: qs[0], Handler: g.handler(c.duration), MaxRunning: c.running, Rate: c.rate}
				var stops []func()
				for i := range c.consumers {
					options := durable.ConsumerOptions{Concurrency: []int{64, 1, 10, 64}[i]}
					stops = append(stops, consumeSources(t, []durable.Source{source}, options))
					time.Sleep(time.Duration(i) * 1300 * time.Millisecond)
				}
				time.Sleep(20 * time.Second)
				most := math.Inf(1) // per second
				if c.running > 0 {
					most = float64(c.running) / c.duration.Seconds()
				}
				if c.rate > 0 {
					most = min(most, c.rate)
				}
				const seconds = 30
				n := int(min(most*seconds, 10_000))
				enqueueAll(t, qs[0], "m", n, 0)
				time.Sleep(seconds / 2 * time.Second)
				half := g.delivered()
				assert.Greater(t, float64(half), 0.8*float64(n)/2-1, "delivered in half of the time")
				stats, err := qs[0].Stats(t.Context())
				require.NoError(t, err)
				assert.InDelta(t, n-half, stats.Overdue, most/5+64, "those that wait are seen")
				if c.consumers > 1 { // one leaves, and another one joins
					stops[0]()
					time.Sleep(seconds / 10 * time.Second) // the others use its share
					stops[0] = consumeSources(t, []durable.Source{source}, durable.ConsumerOptions{})
				}
				waitUntil(t, func() bool { return g.delivered() == n })
				stopAll(stops)
				if c.running > 0 {
					assert.LessOrEqual(t, g.mostRunning(), c.running)
				}
				if c.rate > 0 {
					for i := range g.times { // in any second
						end, _ := slices.BinarySearchFunc(g.times, g.times[i].Add(time.Second), time.Time.Compare)
						require.LessOrEqual(t, float64(end-i), c.rate+max(0.1*c.rate, float64(c.consumers))+float64(c.consumers), "deliveries from %d on", i)
					}
				}
			})
		})
	}
}

// Claims that the store answers late do not exceed a limit.
func TestLimitHoldsIfStoreIsSlow(t *testing.T) {
	t.Parallel()
	calls := &watchedCalls{slow: func(driver.Claim) time.Duration { return time.Second }}
	watch(t, calls, 8, func(t *testing.T, q *durable.Queue) {
		var g gauge
		enqueueAll(t, q, "m", 100, 0)
		source := durable.Source{Queue: q, Handler: g.handler(3 * time.Second), MaxRunning: 3}
		stop := consumeSources(t, []durable.Source{source}, durable.ConsumerOptions{})
		waitUntil(t, func() bool { return g.delivered() == 100 })
		stop()
		assert.Equal(t, 3, g.mostRunning())
	})
}

// Messages that wait for a limit of all consumers are not passed back and forth.
func TestMessagesThatWaitForLimitStay(t *testing.T) {
	t.Parallel()
	calls := new(watchedCalls)
	watch(t, calls, 4, func(t *testing.T, q *durable.Queue) {
		var g gauge
		source := durable.Source{Queue: q, Handler: g.handler(0), Rate: 4}
		for range 2 {
			defer consumeSources(t, []durable.Source{source}, durable.ConsumerOptions{})()
		}
		enqueueAll(t, q, "m", 1000, 10*time.Second)
		time.Sleep(20 * time.Second)
		calls.mu.Lock()
		calls.released = 0
		calls.mu.Unlock()
		time.Sleep(time.Minute)
		calls.mu.Lock()
		defer calls.mu.Unlock()
		t.Logf("%d deliveries, %d releases", g.delivered(), calls.released)
		assert.Less(t, calls.released, 10)
	})
}

// Consumers without a share of a limit delay no message.
func TestConsumersWithoutShareDelayNothing(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 16}, func(t *testing.T, q *durable.Queue) {
		handler, n, most := lateness(time.Millisecond)
		for range 20 {
			defer consumeSources(t, []durable.Source{{Queue: q, Handler: handler, MaxRunning: 1}}, durable.ConsumerOptions{})()
		}
		time.Sleep(10 * time.Second)
		for i := range 60 {
			enqueue(t, q, fmt.Sprint(i), 20*time.Second)
			enqueue(t, q, fmt.Sprint("now", i), 0)
			time.Sleep(time.Second)
		}
		waitUntil(t, func() bool { return n.Load() == 120 })
		t.Logf("at most %v late", time.Duration(most.Load()))
		assert.Less(t, time.Duration(most.Load()), 1500*time.Millisecond)
	})
}

// Tools have no share of a limit, unless there are only tools.
func TestToolsShareNoLimit(t *testing.T) {
	t.Parallel()
	for _, tools := range [][]bool{{false, true, true}, {true, true, true}} {
		queues(t, 1, func(t *testing.T, qs []*durable.Queue) {
			var g gauge
			enqueueAll(t, qs[0], "m", 1000, 10*time.Second)
			for _, tool := range tools {
				source := durable.Source{Queue: qs[0], Handler: g.handler(0), Rate: 10}
				defer consumeSources(t, []durable.Source{source}, durable.ConsumerOptions{Tool: tool})()
			}
			time.Sleep(40 * time.Second)
			assert.InDelta(t, 300, g.delivered(), 10)
		})
	}
}

// A message that waits for a limit has not begun.
func TestMessageThatWaitsForLimitHasNotBegun(t *testing.T) {
	t.Parallel()
	queues(t, 1, func(t *testing.T, qs []*durable.Queue) {
		q := qs[0]
		var g gauge
		defer consumeSources(t, []durable.Source{{Queue: q, Handler: g.handler(0), Rate: 1}}, durable.ConsumerOptions{})()
		time.Sleep(10 * time.Second)
		enqueueAll(t, q, "m", 100, 0)
		enqueueAll(t, q, "later", 10, time.Second)
		time.Sleep(10500 * time.Millisecond)
		n := g.delivered()
		assert.InDelta(t, 11, n, 1)
		report, err := q.CancelAll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Cancelled: 110 - n}, report)
		time.Sleep(10 * time.Second)
		assert.Equal(t, n, g.delivered())
		for i := range 10 {
			enqueue(t, q, fmt.Sprint("moved", i), 0)
		}
		time.Sleep(1500 * time.Millisecond)
		moved := 0
		for i := range 10 {
			result, err := q.Reschedule(t.Context(), fmt.Sprint("moved", i), time.Hour)
			require.NoError(t, err)
			if result == durable.ResultRescheduled {
				moved++
			}
		}
		assert.Equal(t, n+10, g.delivered()+moved)
		assert.InDelta(t, 8, moved, 1)
	})
}

// A store that does not answer delays only its own queue.
func TestSourceWithSilentStoreDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := &watchedCalls{slow: func(driver.Claim) time.Duration { return time.Hour }}
		silent := wrapped{memstore.New(memstore.Options{}), func(b driver.Backend) driver.Backend { return watchedBackend{b, calls} }}
		store := memstore.New(memstore.Options{})
		a, b := open(t, silent, durable.Options{}), open(t, store, durable.Options{})
		enqueueAll(t, a, "m", 1000, 0)
		handler, n, most := lateness(time.Millisecond)
		hung := hangs(t, new(atomic.Int64))
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			assert.NoError(t, durable.Consume(ctx, []durable.Source{
				{Queue: a, Handler: hung, Weight: 100}, {Queue: b, Handler: handler},
			}, durable.ConsumerOptions{Concurrency: 4}))
		})
		time.Sleep(time.Second)
		for i := range 1000 {
			enqueue(t, b, fmt.Sprint(i), 0)
			time.Sleep(10 * time.Millisecond)
		}
		assert.EqualValues(t, 1000, n.Load())
		assert.LessOrEqual(t, time.Duration(most.Load()), 300*time.Millisecond)
		stop()
		ended.Wait()
		a.Close()
		b.Close()
		time.Sleep(2 * time.Hour)
		require.NoError(t, silent.Store.(*memstore.Store).Close())
		require.NoError(t, store.Close())
	})
}

// If one source ends, all end and release their messages.
func TestSourcesEndTogether(t *testing.T) {
	t.Parallel()
	queues(t, 3, func(t *testing.T, qs []*durable.Queue) {
		var n, hung atomic.Int64
		done := make(chan error, 1)
		go func() {
			done <- durable.Consume(t.Context(), []durable.Source{
				{Queue: qs[0], Handler: sleeps(time.Millisecond, &n)}, {Queue: qs[1], Handler: hangs(t, &hung)}, {Queue: qs[2], Handler: sleeps(0, &n)},
			}, durable.ConsumerOptions{Concurrency: 4, Grace: 10 * time.Second})
		}()
		for _, q := range qs {
			enqueueAll(t, q, "m", 2, 0)
		}
		time.Sleep(time.Second)
		start := time.Now()
		go func() { assert.NoError(t, qs[0].Shutdown(t.Context())) }()
		assert.ErrorIs(t, <-done, durable.ErrClosed)
		assert.Equal(t, 10*time.Second, time.Since(start), "the handlers of the others have their Grace")
		assert.EqualValues(t, 4, n.Load())
		counts, err := qs[1].Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, counts.Due, "released")
		assert.Zero(t, counts.Crashed+counts.Retried)

		err = durable.Consume(t.Context(), []durable.Source{{Queue: qs[2], Handler: sleeps(0, &n)}, {Queue: qs[1], Handler: sleeps(0, &n)}}, durable.ConsumerOptions{Concurrency: 1})
		assert.ErrorContains(t, err, "number of sources 2; it must be from 1 to ConsumerOptions.Concurrency (1)")
		err = durable.Consume(t.Context(), []durable.Source{{Queue: qs[1], Handler: sleeps(0, &n)}, {Queue: qs[0], Handler: sleeps(0, &n)}}, durable.ConsumerOptions{})
		assert.ErrorIs(t, err, durable.ErrClosed, "a queue that is closed already")
	})
}

func TestInvalidSources(t *testing.T) {
	t.Parallel()
	queues(t, 1, func(t *testing.T, qs []*durable.Queue) {
		q, h := qs[0], func(context.Context, *durable.Delivery) error { return nil }
		for want, sources := range map[string][]durable.Source{
			"number of sources 0; it must be from 1 to": nil,
			"source 0: Queue is nil":                    {{Handler: h}},
			`invalid handler of queue "q0": nil`:        {{Queue: q}},
			`another source with`:                       {{Queue: q, Handler: h}, {Queue: q, Handler: h}},
			"Weight -1; it must be":                     {{Queue: q, Handler: h, Weight: -1}},
			"Weight 1001; it must be":                   {{Queue: q, Handler: h, Weight: 1001}},
			"MaxRunning -2; it":                         {{Queue: q, Handler: h, MaxRunning: -2}},
			"MaxRunning 10001; it":                      {{Queue: q, Handler: h, MaxRunning: 10001}},
			"Rate NaN; it must be":                      {{Queue: q, Handler: h, Rate: math.NaN()}},
			"Rate -0.5; it must be":                     {{Queue: q, Handler: h, Rate: -0.5}},
			"Rate +Inf; it must be":                     {{Queue: q, Handler: h, Rate: math.Inf(1)}},
			`source 0 (queue "q0"): Rate`:               {{Queue: q, Handler: h, Rate: math.Inf(-1)}},
		} {
			err := durable.Consume(t.Context(), sources, durable.ConsumerOptions{})
			assert.ErrorIs(t, err, durable.ErrInvalid, want)
			assert.True(t, strings.Contains(fmt.Sprint(err), want), "%v: %v", want, err)
		}
	})
}
