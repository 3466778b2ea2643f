package callwatch

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

const here = "github.com/timingwheel-go/timingwheel/callwatch."

// reports collects reports.
type reports struct {
	mu  sync.Mutex
	all []Report
}

func (l *reports) add(r Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
}

// take returns the reports since the last take.
func (l *reports) take() []Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

func startWheel(t *testing.T, opts timingwheel.Options) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

func requireCount(t *testing.T, s *Slow, all uint64, running int) {
	t.Helper()
	a, r := s.Count()
	require.Equal(t, all, a, "all")
	require.Equal(t, running, r, "running")
}

func napOneSecond() { time.Sleep(time.Second) }

// eachExecutor runs a test on fake time with each executor.
func eachExecutor(t *testing.T, body func(t *testing.T, opts timingwheel.Options)) {
	t.Helper()
	for name, executor := range map[string]timingwheel.Executor{"default": nil, "Inline": timingwheel.Inline, "Goroutines": timingwheel.Goroutines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { body(t, timingwheel.Options{Executor: executor, Shards: 1, Name: "w"}) })
		})
	}
}

// A slow callback is counted and reported while it runs, and reported once more when it returns.
func TestSlowCallbackIsReportedWhileItRunsAndAfterwards(t *testing.T) {
	t.Parallel()
	eachExecutor(t, func(t *testing.T, opts timingwheel.Options) {
		var log reports
		s := NewSlow(300*time.Millisecond, log.add)
		opts.Around = s.Around
		startWheel(t, opts).AfterFunc(0, napOneSecond)
		time.Sleep(299 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, log.take())
		requireCount(t, s, 0, 0)
		time.Sleep(40 * time.Millisecond) // an eighth, rounded up
		synctest.Wait()
		requireCount(t, s, 1, 1)
		all := log.take()
		require.Len(t, all, 1)
		r := all[0]
		assert.GreaterOrEqual(t, r.Took, 300*time.Millisecond)
		assert.LessOrEqual(t, r.Took, 340*time.Millisecond)
		source := r.Source()
		assert.True(t, strings.HasSuffix(source.File, "callwatch_test.go"), source.File)
		assert.Positive(t, source.Line)
		assert.Equal(t, here+"napOneSecond", source.Function)
		call := timingwheel.Call{Wheel: "w", Func: reflect.ValueOf(napOneSecond).Pointer(), Payloads: 1}
		assert.Equal(t, Report{Call: call, Took: r.Took, Running: true}, r)

		time.Sleep(time.Second)
		synctest.Wait()
		r.Running, r.Took = false, time.Second
		require.Equal(t, []Report{r}, log.take())
		requireCount(t, s, 1, 0)
		time.Sleep(time.Hour)
		require.Empty(t, log.take())
	})
}

// No quick callback is reported, even if many quick callbacks together take long. Each slow one
// among them is reported twice.
func TestOnlySlowCallbacksAreReported(t *testing.T) {
	t.Parallel()
	eachExecutor(t, func(t *testing.T, opts timingwheel.Options) {
		var log reports
		s := NewSlow(100*time.Millisecond, log.add)
		opts.Around = s.Around
		tw := startWheel(t, opts)
		for i := range 60 {
			nap := 20 * time.Millisecond
			if i%3 == 0 {
				nap = time.Second
			}
			tw.AfterFunc(time.Duration(i)*37*time.Millisecond, func() { time.Sleep(nap) })
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		running := 0
		all := log.take()
		for _, r := range all {
			if r.Running {
				running++
			} else {
				require.Equal(t, time.Second, r.Took)
			}
		}
		require.Equal(t, 20, running)
		require.Len(t, all, 40)
		requireCount(t, s, 20, 0)
	})
}

// A panic and runtime.Goexit end a slow callback as a return does.
func TestSlowCallbackThatEndsByPanicOrGoexitIsReported(t *testing.T) {
	t.Parallel()
	eachExecutor(t, func(t *testing.T, opts timingwheel.Options) {
		var log reports
		s := NewSlow(100*time.Millisecond, log.add)
		opts.Around, opts.OnPanic = s.Around, func(any, []byte) {}
		tw := startWheel(t, opts)
		tw.AfterFunc(0, func() { time.Sleep(time.Second); panic("late") })
		tw.AfterFunc(time.Minute, func() { time.Sleep(time.Second); runtime.Goexit() })
		tw.AfterFunc(2*time.Minute, func() { panic("quick") })
		time.Sleep(time.Hour)
		synctest.Wait()
		all := log.take()
		require.Len(t, all, 4)
		for i, r := range all {
			require.Equal(t, i%2 == 0, r.Running)
		}
		requireCount(t, s, 2, 0)
		require.EqualValues(t, 2, tw.Stats().Panics)
	})
}

// A report that blocks delays no other report, and a report may call the wheel. Shutdown waits for
// the report of a callback that has ended.
func TestReportMayBlockAndCallTheWheel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		var tw *timingwheel.TimingWheel
		release := make(chan struct{})
		s := NewSlow(100*time.Millisecond, func(r Report) {
			log.add(r)
			tw.AfterFunc(time.Hour, func() {}).Stop()
			tw.Stats()
			<-release
		})
		tw = startWheel(t, timingwheel.Options{Around: s.Around})
		tw.AfterFunc(0, napOneSecond)
		tw.AfterFunc(time.Minute, napOneSecond)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, log.take(), 4)
		requireCount(t, s, 2, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// Callbacks that become slow together are all counted, even if the first report blocks.
func TestBlockedReportDelaysNoCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, stuck := make(chan struct{}), make(chan struct{})
		s := NewSlow(time.Second, func(r Report) {
			if r.Running {
				<-release
			}
		})
		tw := startWheel(t, timingwheel.Options{Around: s.Around})
		for range 50 {
			tw.AfterFunc(0, func() { <-stuck })
		}
		time.Sleep(time.Minute)
		requireCount(t, s, 50, 50)
		close(stuck)
		synctest.Wait()
		requireCount(t, s, 50, 0)
		close(release)
	})
}

// A batch is measured as one call. One Slow serves two wheels, one of them Manual, and without a
// report it only counts.
func TestSlowServesSeveralWheels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		counter, s := NewSlow(time.Second, nil), NewSlow(100*time.Millisecond, log.add)
		around := func(c timingwheel.Call, run func()) { counter.Around(c, func() { s.Around(c, run) }) }
		w, err := timingwheel.NewTimeouts(timingwheel.Options{Name: "batches", Shards: 1, Around: around}, napForEach)
		require.NoError(t, err)
		defer w.Stop()
		at := time.Now().Add(time.Second)
		for range 10 {
			w.AddAt(at, 20)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		all := log.take()
		require.Len(t, all, 2)
		call := timingwheel.Call{Wheel: "batches", Func: reflect.ValueOf(napForEach).Pointer(), Payloads: 10}
		require.Equal(t, Report{Call: call, Took: 200 * time.Millisecond}, all[1])

		manual := startWheel(t, timingwheel.Options{Name: "manual", Manual: true, Around: around})
		manual.AfterFunc(time.Hour, func() {
			napOneSecond()
			synctest.Wait()
			requireCount(t, s, 2, 1)
		})
		manual.AfterFunc(time.Hour, func() {})
		require.Equal(t, 2, manual.Advance(manual.Now().Add(2*time.Hour)), "two hours of the wheel's clock do not count")
		all = log.take()
		require.Len(t, all, 2)
		require.True(t, all[0].Running)
		require.Equal(t, time.Second, all[1].Took)
		requireCount(t, s, 2, 0)
		requireCount(t, counter, 1, 0)
	})
}

// napForEach sleeps for the sum of the durations, which are in milliseconds.
func napForEach(naps []int) {
	for _, n := range naps {
		time.Sleep(time.Duration(n) * time.Millisecond)
	}
}

// Calls end while their timers expire. Each slow call is counted once, reported once when it has
// ended, and reported at most once before. No quick call has the report of another call.
func TestRaceEachSlowCallIsCountedAndReportedOnce(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 8, 200
	var asRunning, asEnded, slow [goroutines * rounds]atomic.Int32
	const after = 2 * time.Millisecond
	s := NewSlow(after, func(r Report) {
		if r.Took < after {
			assert.Fail(t, "a quick call is reported")
		}
		if r.Running {
			asRunning[r.Call.Payloads].Add(1)
		} else {
			asEnded[r.Call.Payloads].Add(1)
		}
	})
	var calls sync.WaitGroup
	for g := range goroutines {
		calls.Go(func() {
			for i := range rounds {
				k := g*rounds + i
				s.Around(timingwheel.Call{Payloads: k}, func() {
					begin := time.Now()
					for nap := time.Duration(i%5) * time.Millisecond; time.Since(begin) < nap; {
						time.Sleep(nap - time.Since(begin))
					}
					if time.Since(begin) >= after {
						slow[k].Add(1)
					}
				})
			}
		})
	}
	calls.Wait()
	n := uint64(0)
	for i := range asEnded {
		n += uint64(asEnded[i].Load())
		require.LessOrEqual(t, asEnded[i].Load(), int32(1), i)
		require.LessOrEqual(t, slow[i].Load(), asEnded[i].Load(), "a slow call is not reported")
		require.LessOrEqual(t, asRunning[i].Load(), asEnded[i].Load(), i)
	}
	requireCount(t, s, n, 0)
}

func TestQuickCallDoesNotAllocate(t *testing.T) {
	s := NewSlow(time.Hour, nil)
	run := func() {}
	require.Less(t, testing.AllocsPerRun(1000, func() { s.Around(timingwheel.Call{}, run) }), 1.0)
}

func TestNewSlowPanicsWithoutDuration(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "callwatch: NewSlow: after is 0s; it must be positive", func() { NewSlow(0, nil) })
}

func TestReportLogsItsFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := Report{timingwheel.Call{Wheel: "w", Func: reflect.ValueOf(napOneSecond).Pointer(), Payloads: 1}, time.Second, true}
	source := r.Source()
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", r)
	var record struct{ V map[string]any }
	require.NoError(t, json.Unmarshal(out.Bytes(), &record))
	require.Equal(t, map[string]any{
		"wheel": "w", "func": here + "napOneSecond", "took": 1e9, "running": true, "payloads": 1.0,
		"source": map[string]any{"function": here + "napOneSecond", "file": source.File, "line": float64(source.Line)},
	}, record.V)
}

func TestNameOfAFunction(t *testing.T) {
	t.Parallel()
	require.Equal(t, &slog.Source{Function: "unknown"}, Report{}.Source())
	method := reflect.ValueOf(new(blocker).block).Pointer()
	require.Equal(t, here+"(*blocker).block", Report{Call: timingwheel.Call{Func: method}}.Source().Function)
}

// Tests that read labels from the goroutine profile of the whole process do not run in parallel
// with other tests.

var labelsLine = regexp.MustCompile(`(?m)^# labels: (.*)$`)

// labelsWithin returns the labels of the goroutine that has a function of that name on its stack,
// or "" if it has none.
func labelsWithin(t *testing.T, function string) string {
	t.Helper()
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(record, "callwatch."+function+"+") {
			if m := labelsLine.FindStringSubmatch(record); m != nil {
				return m[1]
			}
			return ""
		}
	}
	require.Fail(t, "no goroutine is in "+function)
	return ""
}

// myLabels returns the labels of the calling goroutine.
//
//go:noinline
func myLabels(t *testing.T) string { t.Helper(); return labelsWithin(t, "myLabels") }

// blocker has a callback that blocks.
type blocker struct{ entered, release chan struct{} }

func (b *blocker) block() { b.entered <- struct{}{}; <-b.release }

// A goroutine has the labels of the wheel and the callback while it runs the callback, with each
// executor. A goroutine that the callback starts inherits them.
func TestCallbackHasLabels(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{"default": nil, "Inline": timingwheel.Inline, "Goroutines": timingwheel.Goroutines} {
		t.Run(name, func(t *testing.T) {
			tw := startWheel(t, timingwheel.Options{Executor: executor, Shards: 1, Name: "w1", Around: Labels(context.Background())})
			b := &blocker{make(chan struct{}), make(chan struct{})}
			plan := tw.ScheduleFunc(timingwheel.Every(time.Millisecond), b.block)
			<-b.entered
			plan.Stop()
			require.Equal(t, `{"callback":"`+here+`(*blocker).block", "timingwheel":"w1"}`, labelsWithin(t, "(*blocker).block"))
			close(b.release)

			inherited := make(chan string)
			tw.AfterFunc(0, func() { go func() { inherited <- myLabels(t) }() })
			require.Contains(t, <-inherited, `"callback":"`+here+"TestCallbackHasLabels.")
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// After the call a goroutine has the labels of ctx, or none, even if the callback changes them,
// panics, exits, or advances another wheel. During a callback it has the labels of ctx as well.
func TestLabelsEndWithTheCallback(t *testing.T) {
	defer pprof.SetGoroutineLabels(context.Background())
	loop := pprof.WithLabels(context.Background(), pprof.Labels("loop", "1"))
	for after, ctx := range map[string]context.Context{`{"loop":"1"}`: loop, "": context.Background()} {
		labels := Labels(ctx)
		inner := startWheel(t, timingwheel.Options{Manual: true, Name: "inner", Around: labels})
		outer := startWheel(t, timingwheel.Options{Manual: true, Name: "outer", Around: labels})
		within := ""
		outer.AfterFunc(time.Second, func() {
			inner.AfterFunc(time.Second, func() { within = myLabels(t) })
			inner.Advance(inner.Now().Add(time.Minute))
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("leaked", "yes")))
		})
		outer.AfterFunc(2*time.Second, func() { panic("over") })
		outer.Advance(outer.Now().Add(time.Second))
		require.Equal(t, after, myLabels(t))
		require.Panics(t, func() { outer.Advance(outer.Now().Add(time.Second)) })
		require.Equal(t, after, myLabels(t))
		require.Contains(t, within, `"timingwheel":"inner"`)
		require.Equal(t, ctx == loop, strings.Contains(within, `"loop":"1"`))
	}
}

// A set of labels names the wheel and the function of its call, although the sets are shared.
func TestLabelsOfSeveralWheelsAreNotMixedUp(t *testing.T) {
	labels := Labels(context.Background())
	for range 2 {
		for _, name := range []string{"a", "b"} {
			got := ""
			labels(timingwheel.Call{Wheel: name, Payloads: 3}, func() { got = myLabels(t) })
			require.Equal(t, `{"callback":"unknown", "timingwheel":"`+name+`"}`, got)
		}
	}
	require.Empty(t, myLabels(t))
}

// BenchmarkAround measures what the values of this package add to a callback. A thousand
// callbacks that do nothing are due at the same tick.
func BenchmarkAround(b *testing.B) {
	const n = 1000
	for _, c := range []struct {
		name   string
		around func(timingwheel.Call, func())
	}{
		{"nothing", nil},
		{"Slow", NewSlow(time.Second, nil).Around},
		{"Labels", Labels(context.Background())},
	} {
		b.Run(c.name, func(b *testing.B) {
			tw, err := timingwheel.New(timingwheel.Options{Manual: true, Around: c.around})
			require.NoError(b, err)
			defer tw.Stop()
			for b.Loop() {
				b.StopTimer()
				for range n {
					tw.AfterFunc(time.Millisecond, func() {})
				}
				b.StartTimer()
				tw.Advance(tw.Now().Add(2 * time.Millisecond))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/timer")
		})
	}
}
