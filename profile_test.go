package timingwheel

import (
	"bytes"
	"context"
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

	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// napper has a method that is used as a callback.
type napper struct{ d time.Duration }

func (s *napper) sleep() { time.Sleep(s.d) }

// Each kind of callback has the name of the program's function.
func TestCallbackHasTheNameOfItsFunction(t *testing.T) {
	t.Parallel()
	const here = "github.com/timingwheel-go/timingwheel."
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		tw := startWheel(t, Options{OnSlow: log.add, SlowAfter: time.Millisecond})
		s := &napper{time.Second}
		arm := map[string]func(){
			here + "napOneSecond":    func() { tw.AfterFunc(0, napOneSecond) },
			here + "(*napper).sleep": func() { tw.AfterFunc(0, s.sleep) },
			// The compiler chooses the rest of the name.
			here + "TestCallbackHasTheNameOfItsFunction.": func() { tw.AfterFunc(0, func() { time.Sleep(s.d) }) },
		}
		for name, f := range arm {
			f()
			time.Sleep(time.Minute)
			synctest.Wait()
			calls := log.take()
			require.Len(t, calls, 2)
			require.True(t, strings.HasPrefix(calls[1].Func, name), "%s is not %s", calls[1].Func, name)
		}
		checkPlan := func(name string, plan Timer) {
			time.Sleep(150 * time.Minute)
			synctest.Wait()
			require.True(t, plan.Stop())
			calls := log.take()
			require.Len(t, calls, 4, "two runs")
			for _, c := range calls {
				require.Equal(t, name, c.Func, "a plan must have the name of its function")
			}
		}
		for name, f := range map[string]func(){here + "napOneSecond": napOneSecond, here + "(*napper).sleep": s.sleep} {
			checkPlan(name, tw.ScheduleFunc(Every(time.Hour), f))
			checkPlan(name, tw.ScheduleFunc(asPlanner{Every(time.Hour)}, f))
		}
		checkPlan(here+"napInRun", tw.ScheduleRun(Every(time.Hour), napInRun))
		checkPlan(here+"napInRun", tw.ScheduleRun(asPlanner{Every(time.Hour)}, napInRun))

		timer := tw.NewFuncTimer(time.Hour, s.sleep)
		for range 2 {
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			calls := log.take()
			require.Len(t, calls, 2)
			require.Equal(t, here+"(*napper).sleep", calls[1].Func, "a FuncTimer must have the name of its function")
			timer.Reset(time.Hour)
		}
	})
}

func napInRun(*Run) { napOneSecond() }

// callCounter counts the calls of its methods.
type callCounter struct{ timer, plan, run, funcTimer atomic.Int64 }

func (c *callCounter) ofTimer()     { c.timer.Add(1) }
func (c *callCounter) ofPlan()      { c.plan.Add(1) }
func (c *callCounter) ofRun(*Run)   { c.run.Add(1) }
func (c *callCounter) ofFuncTimer() { c.funcTimer.Add(1) }

// Timers, plans and FuncTimers are due at the same time and reuse each other's slots. Each call has
// the name of its own function, with each executor and in Manual mode.
func TestCallbackNamesAreNotMixedUp(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for mode, manual := range map[string]bool{"": false, " manual": true} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				named := map[string]int64{}
				tw := startWheel(t, Options{
					Shards: 1, Executor: executor(t), Manual: manual, SlowAfter: 1,
					OnSlow: func(c SlowCallback) {
						if !c.Running {
							mu.Lock()
							defer mu.Unlock()
							named[c.Func]++
						}
					},
				})
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
						tw.ScheduleRun(onePlannedRun(at), c.ofRun)
						funcTimers[i].Reset(20 * ms)
						tw.AtFunc(at.Add(time.Hour), c.ofTimer).Stop()
					}
					if manual {
						tw.Advance(at)
					}
					await(t, "the end of all callbacks", func() bool { st := tw.Stats(); return st.Pending+st.Running == 0 })
				}
				mu.Lock()
				defer mu.Unlock()
				const of = "github.com/timingwheel-go/timingwheel.(*callCounter)."
				require.Equal(t, map[string]int64{
					of + "ofTimer": c.timer.Load(), of + "ofPlan": c.plan.Load(),
					of + "ofRun": c.run.Load(), of + "ofFuncTimer": c.funcTimer.Load(),
				}, named)
				require.EqualValues(t, 200, c.plan.Load())
				require.EqualValues(t, 200, c.funcTimer.Load())
			})
		}
	}
}

// onePlannedRun returns a Scheduler that plans one run.
func onePlannedRun(at time.Time) Scheduler {
	return plannerFunc(func(q question) planner.Step {
		if q.N > 0 {
			return planner.Step{}
		}
		return planner.Step{Next: at}
	})
}

// A wheel without SlowAfter and ProfileLabels stores no names of callbacks.
func TestNamesCostNothingUnlessUsed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		opts Options
		want bool
	}{{Options{}, false}, {Options{SlowAfter: time.Second}, true}, {Options{ProfileLabels: true}, true}} {
		tw := startWheel(t, row.opts)
		tw.ScheduleFunc(Every(time.Hour), func() {})
		tw.NewFuncTimer(time.Hour, func() {})
		pages := 0
		for _, s := range tw.engine.shards {
			pages += s.callees.codes.Cap()
		}
		require.Equal(t, row.want, pages > 0)
	}
}

// Tests that read labels from the goroutine profile of the whole process do not run in parallel
// with other tests.

var labelsLine = regexp.MustCompile(`(?m)^# labels: (.*)$`)

// labelsWithin returns the labels of each goroutine that has a function of that name on its stack,
// or "" for a goroutine without labels.
func labelsWithin(t *testing.T, function string) []string {
	t.Helper()
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	var all []string
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(record, "timingwheel."+function+"+") {
			continue
		}
		labels := ""
		if m := labelsLine.FindStringSubmatch(record); m != nil {
			labels = m[1]
		}
		all = append(all, labels)
	}
	return all
}

// myLabels returns the labels of the calling goroutine.
//
//go:noinline
func myLabels(t *testing.T) string {
	t.Helper()
	all := labelsWithin(t, "myLabels")
	require.Len(t, all, 1)
	return all[0]
}

const labelPrefix = `"callback":"github.com/timingwheel-go/timingwheel.`

// blocker has callbacks that block until end.
type blocker struct{ entered, release chan struct{} }

func newBlocker() *blocker { return &blocker{make(chan struct{}, 10), make(chan struct{})} }

func (b *blocker) block() { b.entered <- struct{}{}; <-b.release }

// end releases the callbacks and waits until all have returned, so the next profile does not show
// them.
func (b *blocker) end(t *testing.T, tw *TimingWheel) {
	t.Helper()
	close(b.release)
	require.NoError(t, drainWheel(tw))
}

// A goroutine has the labels of the wheel and the callback while it runs the callback, with each
// executor. A goroutine that the callback starts inherits them.
func TestCallbackHasLabels(t *testing.T) {
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			b := newBlocker()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1, Name: "w1", ProfileLabels: true})
			tw.AfterFunc(0, b.block)
			receive(t, b.entered, "the callback")
			want := "{" + labelPrefix + `(*blocker).block", "timingwheel":"w1"}`
			require.Equal(t, []string{want}, labelsWithin(t, "(*blocker).block"))
			b.end(t, tw)

			inherited := make(chan string)
			tw.AfterFunc(0, func() { go func() { inherited <- myLabels(t) }() })
			require.Contains(t, receive(t, inherited, "the goroutine of a callback"), labelPrefix+"TestCallbackHasLabels.")
		})
	}
}

func TestNoLabelsWithoutProfileLabels(t *testing.T) {
	b := newBlocker()
	tw := startWheel(t, Options{Name: "w1"})
	tw.AfterFunc(time.Millisecond, b.block) // with 0 the worker would inherit the labels of this goroutine
	receive(t, b.entered, "the callback")
	require.Equal(t, []string{""}, labelsWithin(t, "(*blocker).block"))
	b.end(t, tw)
}

// A run of a plan has the labels of its function, and a batch has those of the expire function.
func TestPlansAndBatchesHaveLabels(t *testing.T) {
	b := newBlocker()
	tw := startWheel(t, Options{ProfileLabels: true})
	plan := tw.ScheduleFunc(Every(time.Millisecond), b.block)
	receive(t, b.entered, "the run of the plan")
	plan.Stop()
	require.Equal(t, []string{"{" + labelPrefix + `(*blocker).block", "timingwheel":""}`}, labelsWithin(t, "(*blocker).block"))
	b.end(t, tw)

	labels := make(chan string, 1)
	w, err := NewTimeouts(Options{ProfileLabels: true, Name: "w2"}, func([]int) { labels <- myLabels(t) })
	require.NoError(t, err)
	defer w.Stop()
	w.Add(0, 1)
	got := receive(t, labels, "the batch")
	require.Contains(t, got, labelPrefix+"TestPlansAndBatchesHaveLabels.")
	require.Contains(t, got, `"timingwheel":"w2"`)
}

// A callback does not have the labels of the previous callback or of the goroutine that armed it.
// Between two callbacks a worker has only the labels of the wheel.
func TestLabelsDoNotLeakIntoOtherCallbacks(t *testing.T) {
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1, Name: "w1", ProfileLabels: true, OnPanic: func(any, []byte) {}})
			plain := startWheel(t, Options{Executor: executor(t), Shards: 1})
			got := make(chan string, 100)
			for i := range 10 {
				tw.AfterFunc(time.Millisecond, func() {
					defer pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("leaked", "yes")))
					got <- myLabelsOf(t)
					switch i % 3 {
					case 1:
						panic("over")
					case 2:
						runtime.Goexit()
					}
				})
			}
			for range 10 {
				labels := receive(t, got, "labels")
				assert.NotContains(t, labels, "leaked")
				assert.Contains(t, labels, `"timingwheel":"w1"`)
			}
			require.NoError(t, drainWheel(tw))
			plain.AfterFunc(time.Millisecond, func() { got <- myLabelsOf(t) })
			assert.NotContains(t, receive(t, got, "labels"), "timingwheel")
		})
	}
}

// myLabelsOf is like myLabels for several goroutines that may call it at the same time. It returns
// the labels of all of them.
func myLabelsOf(t *testing.T) string { return strings.Join(labelsWithin(t, "myLabelsOf"), " ") }

// A worker that the goroutine of a request has started has the labels of the wheel and not those of
// the request.
func TestWorkersDoNotInheritLabels(t *testing.T) {
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			b := newBlocker()
			tw := startWheel(t, Options{Executor: executor, Shards: 1, Name: "w1", ProfileLabels: true})
			code := tw.engine.job.callee
			tw.engine.job.callee = func(f []func()) uintptr { // called before the worker sets labels
				b.block()
				return code(f)
			}
			pprof.Do(context.Background(), pprof.Labels("request", "1"), func(context.Context) { tw.AfterFunc(0, func() {}) })
			receive(t, b.entered, "the worker")
			require.Equal(t, []string{`{"timingwheel":"w1"}`}, labelsWithin(t, "(*blocker).block"))
			b.end(t, tw)
		})
	}
}

// After Advance the caller has the labels of Options.ProfileContext, even if a callback changes
// them, panics, or advances another wheel. During a callback it also has the labels of the
// callback.
func TestAdvanceRestoresTheLabelsOfProfileContext(t *testing.T) {
	defer pprof.SetGoroutineLabels(context.Background())
	pprof.Do(context.Background(), pprof.Labels("loop", "1"), func(loop context.Context) {
		opts := Options{Manual: true, ProfileLabels: true, ProfileContext: loop}
		opts.Name = "inner"
		inner := startWheel(t, opts)
		opts.Name = "outer"
		outer := startWheel(t, opts)
		var within string
		outer.AfterFunc(time.Second, func() {
			inner.AfterFunc(time.Second, func() { within = myLabels(t) })
			inner.Advance(inner.Now().Add(time.Minute))
			pprof.SetGoroutineLabels(context.Background())
		})
		outer.AfterFunc(2*time.Second, func() { panic("over") })
		outer.Advance(outer.Now().Add(time.Second))
		require.Equal(t, `{"loop":"1"}`, myLabels(t))
		require.Panics(t, func() { outer.Advance(outer.Now().Add(time.Second)) })
		require.Equal(t, `{"loop":"1"}`, myLabels(t))
		require.Contains(t, within, `"loop":"1", "timingwheel":"inner"`)
	})
}

// Without ProfileContext the caller of Advance has no labels afterwards, so later samples are not
// attributed to a callback.
func TestAdvanceLeavesNoLabelsBehind(t *testing.T) {
	tw := startWheel(t, Options{Manual: true, Name: "w", ProfileLabels: true})
	var within string
	tw.AfterFunc(time.Second, func() { within = myLabels(t) })
	tw.Advance(tw.Now().Add(time.Minute))
	require.Contains(t, within, `"timingwheel":"w"`)
	require.Empty(t, myLabels(t))
}

// A wheel with ProfileContext and without ProfileLabels changes no labels.
func TestProfileContextAloneChangesNoLabels(t *testing.T) {
	defer pprof.SetGoroutineLabels(context.Background())
	other := pprof.WithLabels(context.Background(), pprof.Labels("loop", "2"))
	tw := startWheel(t, Options{Manual: true, ProfileContext: other})
	pprof.Do(context.Background(), pprof.Labels("request", "1"), func(context.Context) {
		var within string
		tw.AfterFunc(time.Second, func() { within = myLabels(t) })
		tw.Advance(tw.Now().Add(time.Minute))
		require.Equal(t, `{"request":"1"}`, within)
		require.Equal(t, `{"request":"1"}`, myLabels(t))
	})
}

// Goroutines of the wheel keep the labels of the wheel after a callback. Other goroutines do not.
func TestOwnGoroutinesAreDistinguished(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		want bool
	}{
		"default":      {Options{}, true},
		"Inline":       {Options{Executor: Inline}, true},
		"Manual":       {Options{Manual: true}, false},
		"foreign pool": {Options{Executor: Goroutines}, false},
	} {
		opts, err := c.opts.validate()
		require.NoError(t, err)
		require.Equal(t, c.want, opts.ownGoroutines(), name)
	}
}
