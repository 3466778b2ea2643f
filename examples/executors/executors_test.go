package executors

import (
	"context"
	"io"
	"log"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel"
)

const (
	maxWait = time.Minute
	size    = 2 // goroutines of a pool with a limit
)

// adapter is an executor with the properties that the documentation claims.
type adapter struct {
	name   string
	open   func(t *testing.T) (e timingwheel.Executor, closePool func())
	most   int  // largest number of concurrent callbacks; 0: no limit
	blocks bool // Go blocks while all goroutines are busy
	queue  int  // without a limit: length of the queue of calls that wait for a goroutine
}

var adapters = []adapter{
	{"sync.WaitGroup", func(*testing.T) (timingwheel.Executor, func()) {
		wg := new(sync.WaitGroup)
		return wg, wg.Wait
	}, 0, false, 0},
	{"ants", openAnts(), size, true, 0},
	{"ants, non-blocking", openAnts(ants.WithNonblocking(true)), 0, false, 0},
	{"pond", openPond(), size, false, 0},
	{"pond, short queue", openPond(pond.WithQueueSize(1)), size, true, 0},
	{"pond, short queue, non-blocking", openPond(pond.WithQueueSize(1), pond.WithNonBlocking(true)), 0, false, 1},
	{"errgroup", openErrgroup(-1), 0, false, 0},
	{"errgroup, limit", openErrgroup(size), size, true, 0},
	{"workerpool", func(*testing.T) (timingwheel.Executor, func()) {
		wp := workerpool.New(size)
		return Workerpool(wp), wp.StopWait
	}, size, false, 0},
	{"conc.WaitGroup", func(*testing.T) (timingwheel.Executor, func()) {
		wg := conc.NewWaitGroup()
		return wg, wg.Wait
	}, 0, false, 0},
	{"conc pool", func(*testing.T) (timingwheel.Executor, func()) {
		p := pool.New()
		return Conc(p), p.Wait
	}, 0, false, 0},
	{"conc pool, limit", func(*testing.T) (timingwheel.Executor, func()) {
		p := pool.New().WithMaxGoroutines(size)
		return Conc(p), p.Wait
	}, size, true, 0},
}

// concurrent returns how many of n blocking callbacks run concurrently.
func (a adapter) concurrent(n int) int {
	if a.most > 0 {
		return a.most
	}
	return n - a.queue
}

func openAnts(options ...ants.Option) func(t *testing.T) (timingwheel.Executor, func()) {
	return func(t *testing.T) (timingwheel.Executor, func()) {
		t.Helper()
		p, err := ants.NewPool(size, append(options, ants.WithLogger(log.New(io.Discard, "", 0)))...)
		require.NoError(t, err)
		return Ants(p), func() { assert.NoError(t, p.ReleaseTimeout(maxWait)) }
	}
}

func openPond(options ...pond.Option) func(t *testing.T) (timingwheel.Executor, func()) {
	return func(*testing.T) (timingwheel.Executor, func()) {
		p := pond.NewPool(size, options...)
		return Pond(p), p.StopAndWait
	}
}

func openErrgroup(limit int) func(t *testing.T) (timingwheel.Executor, func()) {
	return func(t *testing.T) (timingwheel.Executor, func()) {
		t.Helper()
		g := new(errgroup.Group)
		g.SetLimit(limit)
		return Errgroup(g), func() { assert.NoError(t, g.Wait()) }
	}
}

func eachAdapter(t *testing.T, test func(t *testing.T, a adapter)) {
	t.Helper()
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			test(t, a)
		})
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(maxWait); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "waited too long", what)
		}
	}
}

func newWheel(t *testing.T, opts timingwheel.Options) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

// Quick and sleeping callbacks run once each, stopped ones do not run, and the pool can be closed
// after Shutdown.
func TestEachCallbackRunsOnce(t *testing.T) {
	eachAdapter(t, func(t *testing.T, a adapter) {
		e, closePool := a.open(t)
		tw := newWheel(t, timingwheel.Options{Executor: e, Shards: 2})
		const n = 1000
		var runs [n]atomic.Int32
		var timers [n]timingwheel.Timer
		var now, most atomic.Int32
		for i := range n {
			timers[i] = tw.AfterFunc(time.Duration(i%20)*time.Millisecond, func() {
				for k := now.Add(1); k > most.Load(); {
					most.Store(k)
				}
				runs[i].Add(1)
				switch i % 50 {
				case 0:
					time.Sleep(time.Millisecond)
				case 1:
					runtime.Gosched()
				}
				now.Add(-1)
			})
		}
		stopped := map[int]bool{}
		for i := 0; i < n; i += 3 {
			stopped[i] = timers[i].Stop()
		}
		await(t, "all callbacks have run", func() bool { st := tw.Stats(); return st.Pending+st.Running == 0 })
		require.NoError(t, tw.Shutdown(t.Context()))
		closePool()
		for i := range runs {
			want := int32(1)
			if stopped[i] {
				want = 0
			}
			require.Equal(t, want, runs[i].Load(), "timer %d", i)
		}
		if a.most > 0 {
			assert.LessOrEqual(t, int(most.Load()), a.most)
		}
	})
}

// Shutdown waits for running callbacks and for a blocked call to Go. It discards timers whose calls
// the pool has not begun.
func TestShutdownWaitsForCallbacks(t *testing.T) {
	eachAdapter(t, func(t *testing.T, a adapter) {
		e, closePool := a.open(t)
		tw := newWheel(t, timingwheel.Options{Executor: e, Shards: 1})
		gate := make(chan struct{})
		var began, ended atomic.Int32
		for range 10 {
			tw.AfterFunc(0, func() {
				began.Add(1)
				<-gate
				ended.Add(1)
			})
		}
		want := int32(a.concurrent(10))
		await(t, "callbacks block", func() bool { return began.Load() == want })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		close(gate)
		require.NoError(t, tw.Shutdown(t.Context()))
		assert.Equal(t, want, ended.Load())
		closePool()
		assert.Equal(t, want, began.Load(), "calls that the pool had not begun")
	})
}

// counting counts the calls to Go that have begun and those that have returned.
type counting struct {
	timingwheel.Executor
	begun, returned atomic.Int32
}

func (c *counting) Go(f func()) {
	c.begun.Add(1)
	c.Executor.Go(f)
	c.returned.Add(1)
}

// If Go blocks, the driver of the shard blocks too. Otherwise each due timer is passed to the
// executor immediately.
func TestGoBlocksAsDocumented(t *testing.T) {
	eachAdapter(t, func(t *testing.T, a adapter) {
		e, closePool := a.open(t)
		c := &counting{Executor: e}
		tw := newWheel(t, timingwheel.Options{Executor: c, Shards: 1})
		gate := make(chan struct{})
		var running, ran atomic.Int32
		const n = 10
		for range n {
			tw.AfterFunc(0, func() {
				running.Add(1)
				<-gate
				ran.Add(1)
			})
		}
		if a.blocks {
			await(t, "Go blocks", func() bool { return c.begun.Load() > c.returned.Load() && running.Load() == int32(a.most) })
			time.Sleep(20 * time.Millisecond) // in this time a Go that does not block would return
			assert.Equal(t, c.returned.Load()+1, c.begun.Load())
			assert.Less(t, c.begun.Load(), int32(n))
			assert.Equal(t, n-a.most, tw.Len(), "pending timers")
		} else {
			await(t, "all calls are made", func() bool { return c.returned.Load() == n })
			want := int32(a.concurrent(n))
			await(t, "all callbacks that can run do", func() bool { return running.Load() == want })
			assert.Equal(t, n-int(want), tw.Len())
		}
		close(gate)
		await(t, "all callbacks run", func() bool { return ran.Load() == n })
		require.NoError(t, tw.Shutdown(t.Context()))
		closePool()
	})
}

// With OnPanic a panic is reported and does not reach the pool.
func TestOnPanicReportsBeforeThePool(t *testing.T) {
	eachAdapter(t, func(t *testing.T, a adapter) {
		e, closePool := a.open(t)
		var reported, ran atomic.Int32
		tw := newWheel(t, timingwheel.Options{Executor: e, OnPanic: func(any, []byte) { reported.Add(1) }})
		for k := range 20 {
			tw.AfterFunc(0, func() {
				if k%2 == 0 {
					panic("reported")
				}
				ran.Add(1)
			})
		}
		await(t, "all callbacks run", func() bool { return ran.Load()+reported.Load() == 20 })
		assert.EqualValues(t, 10, ran.Load())
		require.NoError(t, tw.Shutdown(t.Context()))
		closePool()
	})
}

// Without OnPanic the pool handles a panic: ants logs it, pond drops it, and conc repeats it in
// Wait.
func TestPoolsThatHandlePanics(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ants", "pond", "conc.WaitGroup", "conc pool"} {
		for _, a := range adapters {
			if a.name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e, closePool := a.open(t)
				tw := newWheel(t, timingwheel.Options{Executor: e})
				tw.AfterFunc(0, func() { panic("kept") })
				await(t, "the callback has run", func() bool { st := tw.Stats(); return st.Fired == 1 && st.Running == 0 })
				require.NoError(t, tw.Shutdown(t.Context()))
				if strings.HasPrefix(name, "conc") {
					require.Panics(t, closePool)
				} else {
					closePool()
				}
			})
		}
	}
}

// runtime.Goexit in a callback ends a goroutine of workerpool, which workerpool still counts.
func TestGoexitCostsWorkerpoolAGoroutine(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Executor: Workerpool(workerpool.New(1))})
	tw.AfterFunc(0, runtime.Goexit)
	await(t, "the callback has run", func() bool { st := tw.Stats(); return st.Fired == 1 && st.Running == 0 })
	tw.AfterFunc(0, func() { t.Error("a callback has run") })
	time.Sleep(20 * time.Millisecond)
	assert.Equal(t, 1, tw.Len())
}

// If a pool drops a call, a due timer stays pending. The adapters Ants and Pond therefore check the
// error.
func TestDroppedCallLeavesADueTimerPending(t *testing.T) {
	t.Parallel()
	p, err := ants.NewPool(1, ants.WithNonblocking(true))
	require.NoError(t, err)
	defer p.Release()
	naive := timingwheel.ExecutorFunc(func(f func()) { _ = p.Submit(f) })
	for _, c := range []struct {
		e    timingwheel.Executor
		lost int
	}{{naive, 1}, {Ants(p), 0}} {
		e := &counting{Executor: c.e}
		tw := newWheel(t, timingwheel.Options{Executor: e, Shards: 1})
		gate := make(chan struct{})
		began := make(chan struct{}, 2)
		block := func() { began <- struct{}{}; <-gate }
		tw.AfterFunc(0, block)
		<-began
		tw.AfterFunc(0, block)
		await(t, "Go has returned twice", func() bool { return e.returned.Load() == 2 })
		close(gate)
		await(t, "no callback runs", func() bool { return tw.Stats().Running == 0 })
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, c.lost, tw.Len())
	}
}

// After the pool is closed, the adapters Ants and Pond run callbacks on new goroutines.
func TestClosedPoolLosesNoCallback(t *testing.T) {
	t.Parallel()
	for _, a := range adapters {
		if !strings.HasPrefix(a.name, "ants") && !strings.HasPrefix(a.name, "pond") {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			e, closePool := a.open(t)
			closePool()
			tw := newWheel(t, timingwheel.Options{Executor: e, Shards: 1})
			var ran atomic.Int32
			for range 10 {
				tw.AfterFunc(0, func() { ran.Add(1) })
			}
			await(t, "all callbacks run", func() bool { return ran.Load() == 10 })
		})
	}
}

// The table in docs/operating.md has the code of this package.
func TestDocumentationHasTheAdapters(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("executors.go")
	require.NoError(t, err)
	document, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	dense := func(s string) string {
		return strings.NewReplacer(" ", "", "\t", "", "\n", "", "timingwheel.", "").Replace(s)
	}
	rows := regexp.MustCompile("(?m)^\\| \\[(ants|pond|errgroup|workerpool|conc)\\]\\(\\S+\\) \\| `([^`]+)`").FindAllStringSubmatch(string(document), -1)
	require.Len(t, rows, 5)
	for _, row := range rows {
		assert.Contains(t, dense(string(source)), "return"+dense(row[2]), row[1])
	}
}
