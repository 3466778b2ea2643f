package timingwheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests of timers that callers stop and move while the owner of the wheel works.

// A timer of a running wheel is rescheduled while the owner has taken it out of the inbox and has
// not placed it. A later time only changes the word. An earlier time also sets the alarm.
func TestRescheduleBetweenInboxAndWheelFiresOnTime(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := tw.engine.shards[0]
		w := newStopwatch()
		timers := make([]Timer, 5)
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Second, w.note)
		}
		sh.own(sh.owner.takeArrivals)
		require.True(t, timers[1].Reschedule(500*ms))
		require.True(t, timers[2].Reschedule(3*time.Second))
		require.True(t, timers[3].Stop())
		verifyShard(t, sh)
		pass(time.Hour)
		require.Equal(t, []int{500, 1000, 1000, 3000}, w.noted())
		verifyShard(t, sh)
	})
}

// The old bucket of a timer that was moved to an earlier time expires before the owner takes the
// inbox.
func TestOldBucketOfAMovedTimerExpires(t *testing.T) {
	t.Parallel()
	bubble(t, Options{WheelSize: 4, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
		sh := tw.engine.shards[0]
		watch := newStopwatch()
		timers := make([]Timer, 5)
		for k := range timers {
			timers[k] = tw.AfterFunc(60*ms, watch.note) // in a bucket that expires at 48 ms
		}
		sh.placeAll()
		require.True(t, timers[0].Reschedule(55*ms))
		require.True(t, timers[1].Reschedule(55*ms))
		require.True(t, timers[1].Stop())
		require.True(t, timers[2].Reschedule(55*ms))
		require.True(t, timers[2].Reschedule(70*ms))
		sh.own(func() {
			sh.owner.tick = 50
			require.True(t, sh.owner.expire())
			require.NoError(t, sh.verify())
			require.Equal(t, 2, sh.owner.wheel.live, "the timers that were not moved")
			sh.owner.tick = 0
		})
		pass(time.Second)
		require.Equal(t, []int{55, 60, 60, 70}, watch.noted())
		require.True(t, sh.recordIsFree(timers[1].index))
		verifyShard(t, sh)
	})
}

// Few entries are dead at any time, regardless of the number and the order of stopped timers.
func TestDeadEntriesAreBounded(t *testing.T) {
	t.Parallel()
	for name, order := range removal {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sh := newRecordingWheelAndShard(t, Options{})
			const n = 2000
			timers := make([]Timer, n)
			for k := range timers {
				timers[k] = s.after(time.Duration(k+1)*10*ms, "")
			}
			sh.placeAll()
			for stopped, k := range order(n) {
				require.True(t, timers[k].Stop())
				if dead := sh.placed() - (n - stopped - 1); dead >= removalGroup {
					t.Fatalf("%d dead entries", dead)
				}
			}
			require.Less(t, sh.placed(), removalGroup, "the rest waits for the next removals")
			s.verify()
		})
	}
}

// A backlog of removals has grown while owner.mu was held. Further Stops carry out more removals
// than they add.
func TestBacklogOfRemovalsShrinks(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timers := s.fillPlaced(5000, time.Minute)
	sh.owner.mu.Lock()
	requireAllStop(t, timers[:4000])
	sh.unlockAndDrain()
	require.Equal(t, 5000-callerQuantum, sh.placed())
	for k := 4000; sh.owner.removing != 0; k += removalGroup {
		before := sh.placed()
		require.Less(t, k+removalGroup, len(timers))
		s.stopAll(timers[k : k+removalGroup])
		require.LessOrEqual(t, sh.placed(), max(before-callerQuantum, len(timers)-k-removalGroup))
	}
}

// The driver finds a backlog of arrivals. It must not place all of them before it serves a due
// timer, and a callback that blocks must not delay the others.
func TestDueTimersDoNotWaitForABacklogOfArrivals(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		const backlog = 100 * quantum
		ran, last := 0, false
		release := make(chan struct{})
		s.own(func() { // callers find the wheel taken
			tw.AfterFunc(0, func() {
				s.own(func() { ran = s.owner.wheel.live + 1 })
				<-release
			})
			for range backlog {
				tw.AfterFunc(time.Hour, func() {})
			}
			tw.AfterFunc(0, func() { last = true })
		})
		synctest.Wait()
		assert.NotZero(t, ran)
		assert.Less(t, ran, backlog, "placed before the first callback, which competes with the driver for the wheel")
		assert.True(t, last)
		assert.Equal(t, backlog, tw.Len())
		verifyShard(t, s)
		close(release)
		pass(time.Hour)
		assert.Zero(t, tw.Len())
	})
}
