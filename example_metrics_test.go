package timingwheel_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// newLogger writes to standard output, without what differs from run to run.
func newLogger() *slog.Logger {
	varies := []string{slog.TimeKey, "took", "source", "bytes"}
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains(varies, a.Key) {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// Panics go to the log, and the program goes on.
func ExampleOptions_logPanics() {
	logger := newLogger()
	tw, pass := newManual(timingwheel.Options{
		OnPanic: func(value any, stack []byte) {
			logger.Error("a timer panicked", "panic", value, "has_stack", len(stack) > 0)
		},
	})
	tw.AfterFunc(time.Second, func() { panic("out of cheese") })
	pass(time.Second)
	fmt.Println("panics:", tw.Stats().Panics)
	// Output:
	// level=ERROR msg="a timer panicked" panic="out of cheese" has_stack=true
	// panics: 1
}

// reindex is a callback that takes its time.
func reindex() { time.Sleep(250 * time.Millisecond) }

// Slow callbacks go to the log. One that does not return is reported as well, with Running set, but for Manual mode, which
// this example is in.
func ExampleOptions_onSlow() {
	logger := newLogger()
	tw, pass := newManual(timingwheel.Options{
		Name:      "maintenance",
		SlowAfter: 200 * time.Millisecond,
		OnSlow: func(c timingwheel.SlowCallback) {
			level := slog.LevelWarn
			if c.Running {
				level = slog.LevelError // it may be stuck
			}
			logger.Log(context.Background(), level, "a slow timer", "callback", c)
		},
	})
	tw.AfterFunc(time.Second, func() {})
	tw.AfterFunc(time.Second, reindex)
	pass(time.Second)
	fmt.Println("slow:", tw.Stats().Slow)
	// Output:
	// level=WARN msg="a slow timer" callback.wheel=maintenance callback.func=github.com/timingwheel-go/timingwheel_test.reindex callback.running=false callback.payloads=1
	// slow: 1
}

// A plan of the wheel writes its figures to the log, once a minute.
func ExampleStats_LogValue() {
	logger := newLogger()
	tw, pass := newManual(timingwheel.Options{Name: "orders"})
	tw.ScheduleFunc(timingwheel.Every(time.Minute), func() { logger.Info("timers", "stats", tw.Stats()) })

	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {})
	pass(time.Second)
	pass(59 * time.Second)
	// Output:
	// level=INFO msg=timers stats.name=orders stats.pending=1 stats.most_due=3 stats.armed=5 stats.fired=4 stats.stopped=0 stats.running=1 stats.moved=4 stats.buckets=1 stats.levels=3 stats.lateness.p50=0s stats.lateness.p99=0s stats.lateness.max=0s
}

// The samples of a profile say which wheel and which callback they are about. Here it is a profile of goroutines, taken
// by a callback that finds itself in it.
func ExampleOptions_profileLabels() {
	tw, pass := newManual(timingwheel.Options{Name: "maintenance", ProfileLabels: true})
	tw.AfterFunc(time.Second, lookAtMyself)
	pass(time.Second)
	// Output:
	// {"callback":"github.com/timingwheel-go/timingwheel_test.lookAtMyself", "timingwheel":"maintenance"}
}

func lookAtMyself() {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	labels := regexp.MustCompile(`(?m)^# labels: (\{.*lookAtMyself.*\})$`)
	fmt.Printf("%s\n", labels.FindSubmatch(profile.Bytes())[1])
}
