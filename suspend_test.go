//go:build unix

package timingwheel

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

const suspendArmed = "timers are armed"

// A process is stopped by SIGSTOP and continued. The timers that became due meanwhile then fire
// promptly and once, and a plan runs once for all missed runs.
func TestDueTimersFireOnceAfterSIGSTOP(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		suspendedChild(t)
		return
	}
	t.Parallel()
	length := 3 * time.Second
	if !testscale.Full() {
		length = time.Second
	}
	command := child("TestDueTimersFireOnceAfterSIGSTOP", length.String())
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill() })

	var output strings.Builder
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Fprintln(&output, lines.Text())
		if lines.Text() == suspendArmed { // the child stops itself next
			var status syscall.WaitStatus
			_, err := syscall.Wait4(command.Process.Pid, &status, syscall.WUNTRACED, nil)
			require.NoError(t, err)
			require.True(t, status.Stopped(), output.String())
			time.Sleep(length)
			require.NoError(t, command.Process.Signal(syscall.SIGCONT))
		}
	}
	assert.NoError(t, command.Wait(), output.String())
	assert.Contains(t, output.String(), suspendArmed)
}

// suspendedChild arms timers that are due before, during and after the stop.
func suspendedChild(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(childEnv))
	require.NoError(t, err)
	tw := startWheel(t, Options{})
	w := startTimeouts(t, Options{}, func(batch []func()) {
		for _, f := range batch {
			f()
		}
	})
	l := newLedger()
	begin := time.Now()
	var runs atomic.Int64
	plan := tw.ScheduleFunc(Every(50*ms), func() { runs.Add(1) })
	var ticks atomic.Int64
	ticker := tw.NewTicker(50 * ms)
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				ticks.Add(1)
			case <-end:
				return
			}
		}
	}()
	var start time.Time
	// Arming is repeated if it took so long that few timers would be due during the stop.
	for time.Since(start) > length/2 {
		start = time.Now()
		for range 1000 {
			l.arm(tw, rand.N(length+time.Second))
			r := l.add(&tracked{notBefore: time.Since(l.start)})
			r.timer = w.Add(0, l.callback(r))
			l.reset(r, rand.N(length+time.Second))
		}
		time.Sleep(length / 10)
		require.Less(t, time.Since(begin), hangTimeout)
	}
	fmt.Println(suspendArmed)

	var gap time.Duration // the longest time between two iterations
	var resumed time.Time
	last := time.Now()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGSTOP))
	for tw.Len() > 2 || w.Len() > 0 || time.Since(start) < length+time.Second {
		time.Sleep(2 * ms)
		now := time.Now()
		if now.Sub(last) > gap {
			gap, resumed = now.Sub(last), now
		}
		last = now
		require.Less(t, now.Sub(begin), hangTimeout+length)
	}
	elapsed, done := time.Since(begin), runs.Load()
	ticked := ticks.Load()
	await(t, "the ticker continues", func() bool { return ticks.Load() > ticked })
	require.True(t, plan.Stop())
	ticker.Stop()
	close(end)
	require.NoError(t, drainWheel(tw))
	await(t, "batches end", drained(w))

	require.Greater(t, gap, length*2/3, "this process was not stopped")
	l.requireNoneLost(t)
	during := 0
	for _, r := range l.records {
		due, ran := l.start.Add(r.notBefore), l.start.Add(time.Duration(r.ranAt.Load()))
		if due.Before(resumed) && due.After(resumed.Add(-gap)) {
			during++
			require.Less(t, ran.Sub(resumed), 10*time.Second, "due during the stop, but not prompt")
		}
	}
	require.Greater(t, during, 300)
	// The scheduler may have continued this goroutine later than the others, so gap may be too
	// long.
	most := int64((elapsed-gap+length/4)/(50*ms)) + 3
	assert.LessOrEqual(t, done, most, "missed runs were replayed")
	assert.LessOrEqual(t, ticked, most, "missed ticks were replayed")
}
