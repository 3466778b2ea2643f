package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// together lets as many goroutines as GOMAXPROCS allows to run at once add timers and stop them, n pairs in all.
func together(shards, n int) (time.Duration, error) {
	tw, err := timingwheel.New(timingwheel.Options{Shards: shards})
	if err != nil {
		return 0, err
	}
	defer tw.Stop()
	goroutines := runtime.GOMAXPROCS(0)
	var done sync.WaitGroup
	start := time.Now()
	for g := range goroutines {
		done.Go(func() {
			for range (n + g) / goroutines {
				must(opStopLatest(opAddLatest(tw, nothing)))
			}
		})
	}
	done.Wait()
	return time.Since(start), nil
}

func nothing() {}
