package timingwheel_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Around counts the calls to each function, by name. It defers the count, so that a call that
// panics counts as well.
func ExampleOptions_around() {
	calls := map[string]int{}
	tw, err := timingwheel.New(timingwheel.Options{
		Manual: true,
		Around: func(c timingwheel.Call, run func()) {
			name := runtime.FuncForPC(c.Func).Name()
			defer func() { calls[name[strings.LastIndexByte(name, '.')+1:]]++ }()
			run()
		},
	})
	if err != nil {
		panic(err)
	}
	tw.AfterFunc(time.Second, reindex)
	tw.ScheduleFunc(timingwheel.Every(2*time.Second), purge)
	for range 5 {
		tw.Advance(tw.Now().Add(time.Second))
	}
	fmt.Println(calls)
	// Output: map[purge:2 reindex:1]
}

func reindex() {}

func purge() {}

func ExampleTimingWheel_Stats() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
	tw.AfterFunc(time.Second, func() {})
	tw.AfterFunc(time.Minute, func() {}).Stop()
	tw.AfterFunc(time.Hour, func() {})
	tw.Advance(tw.Now().Add(1500 * time.Millisecond))

	st := tw.Stats()
	fmt.Println("armed:", st.Armed)
	fmt.Println("fired:", st.Fired, "stopped:", st.Stopped, "pending:", st.Pending)
	fmt.Println("most late:", st.Lateness.Max)
	// Output:
	// armed: 3
	// fired: 1 stopped: 1 pending: 1
	// most late: 500ms
}

func ExampleHistogram() {
	var h timingwheel.Histogram
	for i := range 100 {
		h.Record(time.Duration(i+1) * time.Millisecond)
	}
	fmt.Println("count:", h.Count(), "sum:", h.Sum, "max:", h.Max)
	median := h.Quantile(0.5) // at most a quarter too high
	fmt.Println(median >= 50*time.Millisecond, median <= 62*time.Millisecond)
	// Output:
	// count: 100 sum: 5.05s max: 100ms
	// true true
}

// An exporter passes the non-empty buckets on, with their upper bounds.
func ExampleHistogram_Bound() {
	var h timingwheel.Histogram
	h.Record(100 * time.Nanosecond)
	h.Record(time.Microsecond)
	h.Record(time.Microsecond)
	for i, n := range h.Counts {
		if n > 0 {
			fmt.Println(n, "below", h.Bound(i))
		}
	}
	// Output:
	// 1 below 256ns
	// 2 below 1.024µs
}

// arm is found in the profile of the pending timers.
func arm(tw *timingwheel.TimingWheel) { tw.AfterFunc(time.Hour, func() {}) }

// A program writes the profile to a file for go tool pprof. This example looks for the function
// that armed the pending timer.
func ExampleTimingWheel_WriteProfile() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, ProfileRate: 1}) // every timer
	if err != nil {
		panic(err)
	}
	arm(tw)

	var file bytes.Buffer
	if err := tw.WriteProfile(&file); err != nil {
		panic(err)
	}
	unzipped, err := gzip.NewReader(&file)
	if err != nil {
		panic(err)
	}
	profile, err := io.ReadAll(unzipped)
	if err != nil {
		panic(err)
	}
	fmt.Println(bytes.Contains(profile, []byte(".arm")))
	// Output: true
}

// A plan logs the figures of its wheel once a minute.
func ExampleStats_LogValue() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "bytes" {
				return slog.Attr{} // differs from run to run
			}
			return a
		},
	}))
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Name: "orders"})
	if err != nil {
		panic(err)
	}
	tw.ScheduleFunc(timingwheel.Every(time.Minute), func() { logger.Info("timers", "stats", tw.Stats()) })

	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {})
	tw.Advance(tw.Now().Add(time.Second))
	tw.Advance(tw.Now().Add(59 * time.Second))
	// Output:
	// level=INFO msg=timers stats.name=orders stats.pending=1 stats.armed=5 stats.fired=4 stats.stopped=0 stats.running=1 stats.moved=4 stats.buckets=1 stats.levels=2 stats.lateness.p50=0s stats.lateness.p99=0s stats.lateness.max=0s
}
