package workload

import (
	"io"
	"log"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // gost logs its end
	os.Exit(m.Run())
}

// tiny keeps the garbage, because collecting it would take most of the time.
var tiny = Params{Pending: 64, Procs: []int{1, 2}, Time: 2 * time.Millisecond, Grace: 10 * time.Second, Over: 200 * time.Millisecond, KeepGarbage: true}

// Package time and this library must make no mistake. The others must only be measurable.
var faultless = []string{"std", "wheel", "wheel-100ms", "timeouts"}

// These workloads set GOMAXPROCS or collect the garbage several times, so they run one after the
// other.
func TestPopulationsOfEachImplementation(t *testing.T) {
	each(t, []string{"ArmStop", "Postpone", "Churn", "Fill", "GC", "Idle"}, func(s Subject, w Workload) { try(t, s, w, tiny) })
}

// large are the implementations with so many slots that each of their wheels makes garbage
// collections slow.
var large = []string{"gozero", "siddontang", "rfyiamcool"}

// The other workloads mostly wait, so all implementations run concurrently, with two workloads at a
// time. A large implementation runs only one workload at a time. Its grace is short, because it
// falls behind on a busy machine.
func TestWorkloadsOfEachImplementation(t *testing.T) {
	t.Parallel()
	sequences := [][]string{
		{"Spread", "Burst", "BurstBlocking"},
		{"Exact", "ArmDuringBurst", "BusyStream", "BusySpread"},
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range Subjects {
		p, own := tiny, sequences
		if slices.Contains(large, s.Name) {
			p.Grace, own = time.Second, [][]string{slices.Concat(sequences...)}
		}
		for _, sequence := range own {
			running.Go(func() {
				for _, name := range sequence {
					w, ok := Find(name)
					if assert.True(t, ok, name) && w.Missing(s.Traits) == "" {
						try(t, s, w, p)
					}
				}
			})
		}
	}
}

// Callers spin between two calls. They would slow down every concurrent workload, and wheels that
// count the ticks of a ticker would fall behind.
func TestSingleCalls(t *testing.T) {
	p := tiny
	p.KeepGarbage = false
	each(t, []string{"BusyReschedule", "BusyRearm", "BusyCallers"}, func(s Subject, w Workload) {
		if slices.Contains(faultless, s.Name) {
			try(t, s, w, p)
		}
	})
}

func TestWorkloadsWithSpinningGoroutines(t *testing.T) {
	p := tiny
	p.Busy, p.KeepGarbage = 2, false
	each(t, []string{"BusyBlocked", "BusyStream", "BusySpread", "BusyReschedule", "BusyRearm"}, func(s Subject, w Workload) {
		if s.Name == "std" || s.Name == "wheel" {
			try(t, s, w, p)
		}
	})
}

func each(t *testing.T, workloads []string, run func(Subject, Workload)) {
	t.Helper()
	for _, name := range workloads {
		w, ok := Find(name)
		require.True(t, ok, name)
		for _, s := range Subjects {
			if w.Missing(s.Traits) == "" {
				run(s, w)
			}
		}
	}
}

func try(t *testing.T, s Subject, w Workload, p Params) {
	t.Helper()
	var phases []string
	p.Phase = func(what string) { phases = append(phases, what) }
	results, err := outcome(s, w, p)
	if !assert.NoError(t, err, "%s of %s", w.Name, s.Name) {
		return
	}
	if w.Parallel {
		assert.Len(t, results, len(p.Procs))
	} else {
		assert.Len(t, results, 1)
	}
	assert.NotEmpty(t, phases)
	for i, r := range results {
		assert.Positive(t, r.N)
		assert.NotEmpty(t, r.Values)
		if w.Parallel {
			assert.Equal(t, p.Procs[i], r.Procs)
		}
		for _, v := range r.Values {
			if slices.Contains([]string{"early", "not-run", "after-stop", "false-stop", "twice"}, v.Unit) && slices.Contains(faultless, s.Name) {
				assert.Zero(t, v.Value, "%s of %s: %s", w.Name, s.Name, v.Unit)
			}
		}
	}
}

func outcome(s Subject, w Workload, p Params) (results []Result, err error) {
	err = s.Run(w, p, func(r Result) { results = append(results, r) })
	return results, err
}

// An implementation that runs callbacks one after another never reaches the quick one. The workload
// must return an error in this case and not hang.
func TestBlocked(t *testing.T) {
	t.Parallel()
	w, _ := Find("Blocked")
	for _, name := range []string{"std", "wheel", "gozero", "gost", "siddontang"} {
		s, ok := FindSubject(name)
		require.True(t, ok)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := outcome(s, w, tiny)
			require.NoError(t, err)
			require.Len(t, results, 1)
			assert.Equal(t, "late-ms", results[0].Values[0].Unit)
		})
	}
	s := newSubject(impl.Implementation[struct{}]{Traits: impl.Traits{Name: "serial"},
		Open: func(impl.Config) (impl.Timers[struct{}], error) { return make(serial, 1000), nil }})
	p := tiny
	p.Grace = 100 * time.Millisecond
	_, err := outcome(s, w, p)
	require.ErrorContains(t, err, "does not run while others block")
}

// serial runs the callbacks of a thousand timers one after another, without regard to their
// deadlines.
type serial chan func()

func (s serial) After(_ time.Duration, id uint64, f func()) struct{} {
	if id == 0 {
		go func() {
			for f := range s {
				f()
			}
		}()
	}
	s <- f
	return struct{}{}
}
func (serial) Stop(struct{}) bool                 { return false }
func (serial) Reset(struct{}, time.Duration) bool { return false }
func (s serial) Close()                           { close(s) }

func TestMissingNamesWhatAnImplementationLacks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ subject, workload, want string }{
		{"siddontang", "ArmStop", "cannot stop a timer"},
		{"siddontang", "Churn", "cannot stop a timer"},
		{"siddontang", "Postpone", "cannot reset a timer"},
		{"gost", "ArmStop", "may drop a call to stop when it is busy, without reporting it"},
		{"gost", "Postpone", "may drop a call to reset when it is busy, without reporting it"},
		{"gozero", "Postpone", ""},
		{"gost", "Fill", "queues adds, and another goroutine inserts the timers later"},
		{"gost", "BusyBlocked", "drops adds while the processors are busy"},
		{"gost", "BusyStream", ""},
		{"siddontang", "GC", "keeps no timers: the adapter's goroutines would be measured"},
		{"manual", "Burst", "does not advance its clock by itself"},
		{"manual", "Blocked", "does not advance its clock by itself"},
		{"timeouts", "BurstBlocking", "hands over values in batches and does not run functions"},
		{"timeouts", "Burst", ""},
		{"timeouts", "BusyStream", "hands over values in batches and does not run functions"},
		{"timeouts", "BusySpread", ""},
		{"manual", "BusyRearm", "does not advance its clock by itself"},
		{"siddontang", "BusyRearm", "cannot stop a timer"},
		{"siddontang", "BusyReschedule", "cannot reset a timer"},
		{"std", "Postpone", ""},
		{"russellluo", "Postpone", "cannot reset a timer"},
		{"antlabs", "Postpone", "may deadlock in reset"},
		{"antlabs", "Churn", ""},
		{"ouqiang", "BusyReschedule", "truncates delays to whole seconds"},
		{"ouqiang", "Spread", "truncates delays to whole seconds"},
		{"ouqiang", "Idle", ""},
	} {
		s, ok := FindSubject(c.subject)
		require.True(t, ok)
		s.Unsupported = "" // depends on the machine
		w, ok := Find(c.workload)
		require.True(t, ok)
		assert.Equal(t, c.want, w.Missing(s.Traits), "%+v", c)
		if c.want != "" {
			_, err := outcome(s, w, tiny)
			require.ErrorContains(t, err, c.want)
		}
	}
	s, _ := FindSubject("siddontang")
	w, _ := Find("Burst")
	assert.Empty(t, w.Missing(s.Traits))
	s.Unsupported = "has a reason"
	assert.Equal(t, "has a reason", w.Missing(s.Traits))
}

func TestEverySubjectHasEveryWorkload(t *testing.T) {
	t.Parallel()
	for _, s := range Subjects {
		assert.Len(t, s.run, len(All))
		for _, w := range All {
			assert.Contains(t, s.run, w.Name)
		}
	}
	_, ok := Find("Nonsense")
	assert.False(t, ok)
	_, ok = FindSubject("nonsense")
	assert.False(t, ok)
}

func TestRunRepeatsEachOperationUntilTheTimeHasPassed(t *testing.T) {
	t.Parallel()
	var calls [3]int
	ops := make([]func(), len(calls))
	for i := range ops {
		ops[i] = func() { calls[i]++ }
	}
	n, took := run(ops, 5*time.Millisecond)
	assert.GreaterOrEqual(t, took, 5*time.Millisecond)
	assert.Equal(t, n, calls[0]+calls[1]+calls[2])
	for _, c := range calls {
		assert.Positive(t, c)
	}
	n, _ = run(ops[:1], 0)
	assert.Equal(t, batch, n, "at least one batch")
}

func TestFloorOnEachNumberOfProcessors(t *testing.T) {
	var all []Result
	RunFloor(Params{Procs: []int{1, 2}, Time: time.Millisecond}, func(r Result) { all = append(all, r) })
	require.Len(t, all, 2)
	for i, r := range all {
		assert.Equal(t, i+1, r.Procs)
		assert.Positive(t, r.N)
		assert.Positive(t, r.Values[0].Value)
	}
	assert.Equal(t, 7, floor(7))
}

func TestCountMistakes(t *testing.T) {
	t.Parallel()
	s, _ := FindSubject("std")
	all := make([]exactTimer[int], 9)
	set := func(i int, calls uint32, ran int64, due time.Duration) *exactTimer[int] {
		timer := &all[i]
		timer.calls.Store(calls)
		timer.ran.Store(ran)
		timer.due = due
		return timer
	}
	set(0, 1, 5, 5)                  // right
	set(1, 1, 4, 5)                  // early
	set(2, 0, 0, 5)                  // did not run
	set(3, 2, 5, 5)                  // twice
	set(4, 0, 0, 5).prevented = true // stopped
	set(5, 1, 5, 5).prevented = true // stopped, and ran
	set(6, 2, 1, 5).resetLate = true // ignored
	set(7, 1, 6, 5).stopped = true   // stopped too late
	set(8, 0, 0, 5).stopped = true   // Stop returned false, and it did not run
	var got Result
	countMistakes(&got, s.Traits, all)
	assert.Equal(t, []Value{{1, "early"}, {1, "not-run"}, {1, "after-stop"}, {1, "false-stop"}, {1, "twice"}}, got.Values)

	wrongResults, _ := FindSubject("antlabs")
	got = Result{}
	countMistakes(&got, wrongResults.Traits, all)
	assert.Equal(t, []Value{{1, "early"}, {1, "not-run"}, {1, "after-stop"}, {1, "false-stop"}, {1, "twice"}}, got.Values, "the results of Stop are trusted")

	noResult, _ := FindSubject("gost")
	all[2].stopped = true // Stop has no result, so the timer may have been stopped in time
	got = Result{}
	countMistakes(&got, noResult.Traits, all)
	assert.Equal(t, []Value{{1, "early"}, {0, "not-run"}, {1, "twice"}}, got.Values)
}
