package plan

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

const ms = time.Millisecond

// bubble runs a test on fake time, with a wheel of one shard.
func bubble(t *testing.T, test func(t *testing.T, tw *timingwheel.TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{Shards: 1})
		require.NoError(t, err)
		test(t, tw)
		require.NoError(t, tw.Shutdown(context.Background()))
		synctest.Wait()
	})
}

// pass lets d of fake time pass and then whatever is due at its end come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// manual is a wheel that is driven by hand, from midnight of a day in 2030.
func manual(t *testing.T) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: midnight})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

var midnight = time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)

// advance moves the clock to d after midnight, and again until nothing more is due there.
func advance(tw *timingwheel.TimingWheel, d time.Duration) {
	for tw.Advance(midnight.Add(d)) > 0 {
	}
}

// begun is a run as the tests look at it, in milliseconds since its plan began.
type begun struct{ planned, started int }

// diary notes the runs of a plan.
type diary struct {
	start time.Time
	mu    sync.Mutex // of note; runs may overlap
	runs  []begun
}

func (d *diary) note(r timingwheel.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = append(d.runs, begun{int(r.Planned.Sub(d.start) / ms), int(r.Started.Sub(d.start) / ms)})
}

// started are the times at which the runs began.
func (d *diary) started() (times []int) {
	for _, r := range d.runs {
		times = append(times, r.started)
	}
	return times
}
