package timingwheel

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The watchdog costs no wake-up while nothing runs, and none for callbacks that are known to be slow.
func TestWatchdogRestsWhileNothingRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{OnSlow: func(SlowCallback) {}, Shards: 1})
		d := tw.engine.watch
		require.Nil(t, d.timer)
		release := make(chan struct{})
		tw.AfterFunc(0, func() { <-release })
		synctest.Wait()
		require.True(t, d.armed.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, d.armed.Load(), "the only callback is known to be slow")
		require.Equal(t, 1, tw.Stats().SlowRunning)
		tw.AfterFunc(0, func() {})
		synctest.Wait()
		require.True(t, d.armed.Load())
		time.Sleep(2 * defaultSlow)
		synctest.Wait()
		require.False(t, d.armed.Load())
		close(release)
		synctest.Wait()
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// Looks have a pause between them, so that a stream of callbacks that are almost slow does not keep the watchdog busy.
func TestWatchdogPausesBetweenLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		twoNaps(t, &log)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		calls := log.take()
		require.Len(t, calls, 2)
		assert.Equal(t, 80*time.Millisecond, calls[0].Took)
		assert.Equal(t, 89*time.Millisecond, calls[1].Took, "an eighth of SlowAfter later, and not after 1 ms")
		time.Sleep(time.Hour)
	})
	require.Equal(t, time.Millisecond, pauseFor(1))
	require.Equal(t, time.Second, pauseFor(8*time.Second))
}

// What many callbacks at once have needed for their records is given back.
func TestWatchdogGivesMemoryBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{Shards: 1, OnSlow: func(SlowCallback) {}})
		d := tw.engine.watch
		release := make(chan struct{})
		for range 1000 {
			tw.AfterFunc(0, func() { <-release })
		}
		synctest.Wait()
		require.GreaterOrEqual(t, len(d.active), 1000)
		close(release)
		synctest.Wait()
		require.Nil(t, d.active)
		require.LessOrEqual(t, len(d.spare), spareRecords)
		tw.AfterFunc(0, func() {})
		synctest.Wait()
		require.EqualValues(t, 1001, tw.Stats().Fired)
	})
}

// A look lets others come in between, and misses none of those who stay.
func TestWatchdogMissesNobody(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{SlowAfter: time.Hour})
	d := tw.engine.watch
	var stay, others []*watched[func()]
	for range 64 {
		others = append(others, d.join())
		stay = append(stay, d.join())
	}
	over := make(chan struct{})
	var churn sync.WaitGroup
	for k := range 2 {
		churn.Go(func() {
			mine := slices.Clone(others[k*32 : (k+1)*32])
			for {
				select {
				case <-over:
					return
				default:
				}
				for _, r := range mine { // all, so that those who stay come to be the last, and are moved
					d.leave(r)
				}
				for i := range mine {
					mine[i] = d.join()
				}
			}
		})
	}
	for range 200 {
		met := map[*watched[func()]]bool{}
		d.each(1, func(r *watched[func()]) { met[r] = true })
		for _, r := range stay {
			require.True(t, met[r])
		}
	}
	close(over)
	churn.Wait()
}
