package timingwheel

import (
	"context"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// aroundLog is an Around that counts calls by the names of their functions.
type aroundLog struct {
	mu     sync.Mutex
	called map[string]int64
	ended  int64
}

func (l *aroundLog) around(c Call, run func()) {
	name := strings.TrimSuffix(runtime.FuncForPC(c.Func).Name(), "-fm")
	l.mu.Lock()
	if l.called == nil {
		l.called = map[string]int64{}
	}
	l.called[strings.TrimPrefix(name, "github.com/timingwheel-go/timingwheel.")] += int64(c.Payloads)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended++
	}()
	run()
}

// counts returns the calls by name, and how many of them have ended.
func (l *aroundLog) counts() (called map[string]int64, ended int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.called, l.ended
}

// callCounter counts the calls to its methods.
type callCounter struct{ timer, plan, run, funcTimer atomic.Int64 }

func (c *callCounter) ofTimer()     { c.timer.Add(1) }
func (c *callCounter) ofPlan()      { c.plan.Add(1) }
func (c *callCounter) ofRun(*Run)   { c.run.Add(1) }
func (c *callCounter) ofFuncTimer() { c.funcTimer.Add(1) }

// onePlannedRun returns a Scheduler that plans one run.
func onePlannedRun(at time.Time) Scheduler {
	return plannerFunc(func(q question) planner.Step {
		if q.N > 0 {
			return planner.Step{}
		}
		return planner.Step{Next: at}
	})
}

// firstAt returns a Scheduler without a planner that plans one run, even if at has passed.
func firstAt(at time.Time) Scheduler {
	asked := false
	return nextFunc(func(time.Time) time.Time {
		if asked {
			return time.Time{}
		}
		asked = true
		return at
	})
}

// Timers, plans and FuncTimers are due at the same time and reuse each other's records. Around gets
// every callback once, with its function, with each executor and in Manual mode.
func TestAroundGetsTheFunctionOfEachCall(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for mode, manual := range map[string]bool{"": false, " manual": true} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				var log aroundLog
				tw := startWheel(t, Options{Shards: 1, Executor: executor(t), Manual: manual, Around: log.around})
				var c callCounter
				var funcTimers [40]FuncTimer
				for i := range funcTimers {
					funcTimers[i].InitStopped(tw, c.ofFuncTimer)
				}
				for range 5 {
					at := tw.Now().Add(20 * ms)
					for i := range funcTimers {
						tw.AtFunc(at, c.ofTimer)
						tw.ScheduleFunc(onePlannedRun(at), c.ofPlan)
						tw.ScheduleRun(firstAt(at), c.ofRun)
						funcTimers[i].Reset(20 * ms)
						tw.AtFunc(at.Add(time.Hour), c.ofTimer).Stop()
					}
					if manual {
						tw.Advance(at)
					}
					require.NoError(t, drainWheel(tw))
				}
				called, ended := log.counts()
				require.Equal(t, map[string]int64{
					"(*callCounter).ofTimer": c.timer.Load(), "(*callCounter).ofPlan": c.plan.Load(),
					"(*callCounter).ofRun": c.run.Load(), "(*callCounter).ofFuncTimer": c.funcTimer.Load(),
				}, called)
				require.EqualValues(t, 800, ended)
				require.EqualValues(t, 200, c.plan.Load())
				require.EqualValues(t, 200, c.funcTimer.Load())
				require.EqualValues(t, 800, tw.Stats().Fired)
			})
		}
	}
}

// Around is called also for the package's own functions, for channels, tickers, sleeps and
// contexts. All of them do their work within it.
func TestAroundEnclosesThePackagesOwnTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log aroundLog
		tw := startWheel(t, Options{Around: log.around})
		fired := func(want int, what string) {
			synctest.Wait()
			_, ended := log.counts()
			require.EqualValues(t, want, ended, what)
			require.EqualValues(t, want, tw.Stats().Fired, what)
		}
		<-tw.After(time.Second)
		fired(1, "After")
		<-tw.NewChannelTimer(time.Second).C
		fired(2, "a channel timer")
		ticker := tw.NewTicker(time.Second)
		<-ticker.C
		<-ticker.C
		ticker.Stop()
		fired(4, "a ticker")
		require.NoError(t, tw.Sleep(t.Context(), time.Second))
		fired(5, "Sleep")
		ctx, cancel := tw.WithTimeout(t.Context(), time.Second)
		defer cancel()
		after := make(chan struct{})
		context.AfterFunc(ctx, func() { close(after) })
		<-after
		fired(6, "a context")
		called, _ := log.counts()
		require.EqualValues(t, 1, called["(*deadlineContext).end"], "the package's own function")
	})
}

// A batch is one call to the function that gets the batches, even if the payloads are functions. In
// an earlier version, all batches that followed a batch of one payload had one payload as well.
func TestAroundGetsTheSizeOfABatch(t *testing.T) {
	t.Parallel()
	var calls []Call
	funcs := func([]func()) {}
	w, err := NewTimeouts(Options{Manual: true, Name: "w", Around: func(c Call, run func()) { calls = append(calls, c); run() }}, funcs)
	require.NoError(t, err)
	defer w.Stop()
	for _, n := range []int{1, perCallMax + 10} {
		for range n {
			w.Add(time.Second, func() {})
		}
		require.Equal(t, n, w.Advance(w.Now().Add(time.Second)))
	}
	code := reflect.ValueOf(funcs).Pointer()
	require.Equal(t, []Call{{"w", code, 1}, {"w", code, perCallMax}, {"w", code, 10}}, calls)
}

// eachFaceOnce arms f for a second from now as a timer, a FuncTimer, and two kinds of plans.
var eachFaceOnce = map[string]func(tw *TimingWheel, f func()){
	"timer":     func(tw *TimingWheel, f func()) { tw.AfterFunc(time.Second, f) },
	"FuncTimer": func(tw *TimingWheel, f func()) { tw.NewFuncTimer(time.Second, f) },
	"plan":      func(tw *TimingWheel, f func()) { tw.ScheduleFunc(Every(time.Second), f) },
	"run":       func(tw *TimingWheel, f func()) { tw.ScheduleRun(Every(time.Second), func(*Run) { f() }) },
}

// OnPanic is called within Around, so Around sees neither the panic nor an end of its goroutine. An
// Advance goes on.
func TestAroundRunsOutsideOnPanic(t *testing.T) {
	t.Parallel()
	for name, arm := range eachFaceOnce {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var order []string
			tw := startWheel(t, Options{
				Manual: true,
				OnPanic: func(value any, stack []byte) {
					require.Contains(t, string(stack), "TestAroundRunsOutsideOnPanic")
					order = append(order, value.(string))
				},
				Around: func(_ Call, run func()) {
					order = append(order, "before")
					run()
					order = append(order, "after")
				},
			})
			arm(tw, func() { panic("panic") })
			tw.AfterFunc(time.Second, func() { order = append(order, "next") })
			require.Equal(t, 2, tw.Advance(tw.Now().Add(time.Second)))
			require.Equal(t, []string{"before", "panic", "after", "before", "next", "after"}, order)
			require.EqualValues(t, 1, tw.Stats().Panics)
			require.Zero(t, tw.Stats().Running)
		})
	}
}

// A panic without OnPanic, and runtime.Goexit, unwind through Around, whose deferred functions run.
// The other timers stay due, and a plan goes on.
func TestPanicAndGoexitUnwindThroughAround(t *testing.T) {
	t.Parallel()
	for name, arm := range eachFaceOnce {
		for how, leave := range map[string]func(){"panic": func() { panic("over") }, "Goexit": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				begun, ended, returned := 0, 0, 0
				tw := startWheel(t, Options{Manual: true, Around: func(_ Call, run func()) {
					begun++
					defer func() { ended++ }()
					run()
					returned++
				}})
				arm(tw, leave)
				ran := false
				tw.AfterFunc(time.Second, func() { ran = true })
				var done sync.WaitGroup
				done.Go(func() {
					defer func() { _ = recover() }()
					tw.Advance(tw.Now().Add(time.Second))
				})
				done.Wait()
				require.Equal(t, []int{1, 1, 0}, []int{begun, ended, returned})
				require.Equal(t, 1, tw.Advance(tw.Now()))
				require.True(t, ran)
				if isPlan := strings.Contains("plan run", name); isPlan {
					require.Equal(t, 1, tw.Len(), "the next run")
				}
			})
		}
	}
}

// Around may recover a panic of the callback itself.
func TestAroundMayRecoverThePanic(t *testing.T) {
	t.Parallel()
	var recovered []any
	tw := startWheel(t, Options{Manual: true, Around: func(_ Call, run func()) {
		defer func() { recovered = append(recovered, recover()) }()
		run()
	}})
	tw.AfterFunc(time.Second, func() { panic("over") })
	tw.AfterFunc(time.Second, func() {})
	require.Equal(t, 2, tw.Advance(tw.Now().Add(time.Second)))
	require.Equal(t, []any{"over", nil}, recovered)
}

// The wheel panics if Around does not call run, and if it calls run again. The timers that are due
// stay so.
func TestAroundMustCallRunOnce(t *testing.T) {
	t.Parallel()
	for want, around := range map[string]func(run func()){
		"timingwheel: Options.Around returned without calling run": func(func()) {},
		"timingwheel: Options.Around called run twice":             func(run func()) { run(); run() },
	} {
		for name, arm := range eachFaceOnce {
			calls, wrong := 0, true
			onPanic := func(any, []byte) { assert.Fail(t, "it is not the callback that panics") }
			if strings.Contains("plan run", name) {
				onPanic = nil
			}
			tw := startWheel(t, Options{
				Manual: true, OnPanic: onPanic,
				Around: func(_ Call, run func()) {
					if wrong {
						around(run)
					} else {
						run()
					}
				},
			})
			arm(tw, func() { calls++ })
			ran := false
			tw.AfterFunc(time.Second, func() { ran = true })
			require.PanicsWithValue(t, want, func() { tw.Advance(tw.Now().Add(time.Second)) }, name)
			require.LessOrEqual(t, calls, 1, name)
			wrong = false
			require.Equal(t, 1, tw.Advance(tw.Now()), name)
			require.True(t, ran, name)
		}
	}
}

// Shutdown and StopWait wait until Around has returned.
func TestShutdownAndStopWaitWaitForAround(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tw := startWheel(t, Options{Executor: executor, Around: func(_ Call, run func()) {
					defer time.Sleep(time.Hour)
					run()
				}})
				timer := tw.NewFuncTimer(0, func() {})
				time.Sleep(time.Minute)
				require.Equal(t, 1, tw.Stats().Running)
				began := time.Now()
				require.NoError(t, timer.StopWait(t.Context()))
				require.NoError(t, tw.Shutdown(t.Context()))
				require.Equal(t, 59*time.Minute, time.Since(began))
			})
		})
	}
}

func TestAroundDoesNotAllocatePerCall(t *testing.T) {
	if underRace || underInvariants {
		t.Skip("the checks allocate")
	}
	calls := 0
	allocs := map[bool]float64{}
	for _, set := range []bool{false, true} {
		opts := Options{Manual: true}
		if set {
			opts.Around = func(_ Call, run func()) { calls++; run() }
		}
		tw := startWheel(t, opts)
		allocs[set] = testing.AllocsPerRun(100, func() {
			for range 100 {
				tw.AfterFunc(time.Second, func() {})
			}
			tw.Advance(tw.Now().Add(2 * time.Second))
		})
	}
	require.Equal(t, 101*100, calls)
	require.LessOrEqual(t, allocs[true], allocs[false]+1, "one for the hundred calls in an Advance")
}

// Around may call the wheel, and the calls that it arms are its own.
func TestAroundMayCallTheWheel(t *testing.T) {
	t.Parallel()
	var tw *TimingWheel
	var order []int
	tw = startWheel(t, Options{Manual: true, Around: func(_ Call, run func()) {
		n := tw.Len()
		run()
		order = append(order, n, tw.Len(), tw.Stats().Running)
		if tw.Stats().Fired == 1 {
			tw.AfterFunc(time.Second, func() {})
		}
	}})
	tw.AfterFunc(time.Second, func() {})
	for range 3 {
		tw.Advance(tw.Now().Add(time.Second))
	}
	require.Equal(t, []int{0, 0, 1, 0, 0, 1}, order)
}
