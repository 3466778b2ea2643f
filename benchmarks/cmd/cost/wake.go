package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// wake lets as many wheels of one shard as there are shards each have one timer, which arms itself again, until the
// wheels were woken n times together. It returns the processor time of all these wake-ups, with an add and a callback
// each: what a shard costs that has something due in each tick. (A callback cannot choose its shard, hence the wheels.)
func wake(shards, n int) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	var chains sync.WaitGroup
	chains.Add(shards)
	wheels := make([]*timingwheel.TimingWheel, shards)
	for i := range wheels {
		tw, err := timingwheel.New(timingwheel.Options{Shards: 1})
		if err != nil {
			return 0, err
		}
		defer tw.Stop()
		wheels[i] = tw
	}
	before := processorTime()
	for _, tw := range wheels {
		var again func()
		again = func() {
			if left.Add(-1) < 0 {
				chains.Done()
				return
			}
			tw.AfterFunc(time.Microsecond, again)
		}
		again()
	}
	chains.Wait()
	took := processorTime() - before
	woken := uint64(0)
	for _, tw := range wheels {
		woken += tw.Stats().Wakeups
	}
	return time.Duration(float64(took) / float64(woken) * float64(n)), nil
}
