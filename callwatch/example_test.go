package callwatch_test

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
	"github.com/timingwheel-go/timingwheel/callwatch"
)

// reindex is a slow callback.
func reindex() { time.Sleep(250 * time.Millisecond) }

// Slow callbacks are logged when they have ended. A report with Running set comes earlier and names
// a callback that may be stuck.
func ExampleSlow() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{slog.TimeKey, "took", "source"}, a.Key) {
				return slog.Attr{} // differs from run to run
			}
			return a
		},
	}))
	slow := callwatch.NewSlow(200*time.Millisecond, func(r callwatch.Report) {
		if !r.Running {
			logger.Warn("slow timer", "callback", r)
		}
	})
	tw, err := timingwheel.New(timingwheel.Options{Name: "maintenance", Manual: true, Around: slow.Around})
	if err != nil {
		panic(err)
	}
	tw.AfterFunc(time.Second, func() {})
	tw.AfterFunc(time.Second, reindex)
	tw.Advance(tw.Now().Add(time.Second))
	fmt.Println(slow.Count())
	// Output:
	// level=WARN msg="slow timer" callback.wheel=maintenance callback.func=github.com/timingwheel-go/timingwheel/callwatch_test.reindex callback.running=false callback.payloads=1
	// 1 0
}

// A callback that does not return is reported while it runs, and once more when it has returned.
func ExampleReport() {
	release, returned := make(chan struct{}), make(chan struct{})
	slow := callwatch.NewSlow(10*time.Millisecond, func(r callwatch.Report) {
		fmt.Println(r.Call.Wheel, "running:", r.Running, "took 10 ms or more:", r.Took >= 10*time.Millisecond)
		if r.Running {
			close(release)
		} else {
			close(returned)
		}
	})
	tw, err := timingwheel.New(timingwheel.Options{Name: "mail", Around: slow.Around})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	tw.AfterFunc(0, func() { <-release })
	<-returned
	// Output:
	// mail running: true took 10 ms or more: true
	// mail running: false took 10 ms or more: true
}

// Samples of a profile have labels with the name of the wheel and the callback. This callback takes
// a profile of goroutines and prints the labels of its own sample.
func ExampleLabels() {
	tw, err := timingwheel.New(timingwheel.Options{Name: "maintenance", Manual: true, Around: callwatch.Labels(context.Background())})
	if err != nil {
		panic(err)
	}
	tw.AfterFunc(time.Second, printLabels)
	tw.Advance(tw.Now().Add(time.Second))
	// Output:
	// {"callback":"github.com/timingwheel-go/timingwheel/callwatch_test.printLabels", "timingwheel":"maintenance"}
}

func printLabels() {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	labels := regexp.MustCompile(`(?m)^# labels: (\{.*printLabels.*\})$`)
	fmt.Printf("%s\n", labels.FindSubmatch(profile.Bytes())[1])
}
