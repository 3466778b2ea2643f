package timingwheel

import (
	"bytes"
	"context"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests read labels from the goroutine profile of the whole process, so they do not run
// beside others.

var labelsLine = regexp.MustCompile(`(?m)^# labels: (.*)$`)

// labelsWithin returns the labels of each goroutine that has a function of that name on its stack;
// "" for one without labels.
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

// myLabels are the labels of the goroutine that calls it.
//
//go:noinline
func myLabels(t *testing.T) string {
	t.Helper()
	all := labelsWithin(t, "myLabels")
	require.Len(t, all, 1)
	return all[0]
}

const labelPrefix = `"callback":"github.com/timingwheel-go/timingwheel.`

// holder has callbacks that block.
type holder struct{ entered, release chan struct{} }

func newHolder() *holder { return &holder{make(chan struct{}, 10), make(chan struct{})} }

func (h *holder) hold() { h.entered <- struct{}{}; <-h.release }

// end lets the callbacks go and waits until none is in any more, so that the next profile does not
// show it.
func (h *holder) end(t *testing.T, tw *TimingWheel) {
	t.Helper()
	close(h.release)
	require.NoError(t, drainWheel(tw))
}

// A goroutine has the labels of its wheel and its callback while it is in that, on each executor,
// and so has one that the callback has started.
func TestCallbackHasLabels(t *testing.T) {
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			h := newHolder()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1, Name: "w1", ProfileLabels: true})
			tw.AfterFunc(0, h.hold)
			receive(t, h.entered, "the callback")
			want := "{" + labelPrefix + `(*holder).hold", "timingwheel":"w1"}`
			require.Equal(t, []string{want}, labelsWithin(t, "(*holder).hold"))
			h.end(t, tw)

			inherited := make(chan string)
			tw.AfterFunc(0, func() { go func() { inherited <- myLabels(t) }() })
			require.Contains(t, receive(t, inherited, "the goroutine of a callback"), labelPrefix+"TestCallbackHasLabels.")
		})
	}
}

// Without the option there are none.
func TestNoLabelsByDefault(t *testing.T) {
	h := newHolder()
	tw := startWheel(t, Options{Name: "w1"})
	tw.AfterFunc(time.Millisecond, h.hold) // at 0 the worker would have those of this goroutine
	receive(t, h.entered, "the callback")
	require.Equal(t, []string{""}, labelsWithin(t, "(*holder).hold"))
	h.end(t, tw)
}

// A plan has the labels of its function, a batch those of the function that takes it.
func TestLabelsOfPlansAndBatches(t *testing.T) {
	h := newHolder()
	tw := startWheel(t, Options{ProfileLabels: true})
	plan := tw.ScheduleFunc(Every(time.Millisecond), h.hold)
	receive(t, h.entered, "the plan's run")
	plan.Stop()
	require.Equal(t, []string{"{" + labelPrefix + `(*holder).hold", "timingwheel":""}`}, labelsWithin(t, "(*holder).hold"))
	h.end(t, tw)

	labels := make(chan string, 1)
	w, err := NewTimeouts(Options{ProfileLabels: true, Name: "w2"}, func([]int) { labels <- myLabels(t) })
	require.NoError(t, err)
	defer w.Stop()
	w.Add(0, 1)
	got := receive(t, labels, "the batch")
	require.Contains(t, got, labelPrefix+"TestLabelsOfPlansAndBatches.")
	require.Contains(t, got, `"timingwheel":"w2"`)
}

// What a callback, or the arming goroutine, has for labels is not seen in the samples of the next
// callback, and a worker between two callbacks has those of the wheel alone.
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

// myLabelsOf is myLabels where several goroutines may ask: of any of them.
func myLabelsOf(t *testing.T) string { return strings.Join(labelsWithin(t, "myLabelsOf"), " ") }

// A worker that a request's goroutine has started has the labels of the wheel, and not those of the
// request.
func TestWorkersDoNotInheritLabels(t *testing.T) {
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			h := newHolder()
			tw := startWheel(t, Options{Executor: executor, Shards: 1, Name: "w1", ProfileLabels: true})
			tw.engine.job.run = func(f []func()) { f[0]() } // so the callback has what its goroutine has
			pprof.Do(context.Background(), pprof.Labels("request", "1"), func(context.Context) { tw.AfterFunc(0, h.hold) })
			receive(t, h.entered, "the callback")
			require.Equal(t, []string{`{"timingwheel":"w1"}`}, labelsWithin(t, "(*holder).hold"))
			h.end(t, tw)
		})
	}
}
