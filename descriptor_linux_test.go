package timingwheel

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timerDescriptors returns the number of timer descriptors of the process.
func timerDescriptors(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, file := range files {
		if link, _ := os.Readlink("/proc/self/fd/" + file.Name()); strings.Contains(link, "timerfd") {
			n++
		}
	}
	return n
}

// A wheel has one descriptor for any number of shards, and one goroutine while a timer is near, and
// neither before nor after the wheel's Stop. Not parallel: the counts are for the whole process.
func TestDescriptorIsOpenOnlyWhileATimerIsNear(t *testing.T) {
	files, goroutines := timerDescriptors(t), runtime.NumGoroutine()
	none := func() bool { return timerDescriptors(t) == files && runtime.NumGoroutine() <= goroutines }
	var wheels []*TimingWheel
	for _, opts := range []Options{{Shards: 4}, {Shards: 1, Executor: Goroutines}, {Manual: true}} {
		tw := startWheel(t, opts)
		wheels = append(wheels, tw)
		for range 20 {
			tw.AfterFunc(time.Hour, func() {})
			tw.AfterFunc(time.Hour, func() {}).Stop()
		}
	}
	assert.True(t, none(), "a descriptor or a goroutine for a distant timer")
	await(t, "descriptors are open", func() bool { // this goroutine may be preempted for longer than 90 ms
		for _, tw := range wheels {
			for range 20 {
				tw.AfterFunc(90*ms, func() {})
			}
		}
		return timerDescriptors(t) == files+2
	})
	for _, tw := range wheels {
		tw.Stop()
	}
	await(t, "descriptors and goroutines have ended", none)
	for _, tw := range wheels {
		assert.Zero(t, tw.AfterFunc(ms, func() {}))
	}
	assert.True(t, none())
}
