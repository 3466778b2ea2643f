package timingwheel

import (
	"math"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inNursery is the number of timers in a shard's nursery.
func inNursery(s *shard) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bits.OnesCount32(s.young.alive &^ nurseryEmpty)
}

// verified checks the invariants of a wheel that may have a driver.
func verified(t *testing.T, s *shard) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(t, s.verify())
}

// A timeout that is stopped soon has never stood on the wheel.
func TestStopInNurseryLeavesTheWheelAlone(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	for range 5 * chunkSize {
		timers := s.fill(chunkSize-posNursery, time.Minute)
		require.Equal(t, len(timers), inNursery(sh))
		s.stopAll(timers)
	}
	require.Zero(t, inNursery(sh))
	require.Zero(t, len(sh.all), "no bucket was ever made")
	require.Zero(t, s.Len())
}

// A full nursery is placed as a whole, in the order of arming, and nothing of it is lost.
func TestFullNurseryIsPlaced(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	names := ""
	for i := range 3 * chunkSize {
		name := string(rune('A' + i%26))
		s.after(time.Minute, name)
		if i > 0 {
			names += " "
		}
		names += name
	}
	require.Zero(t, inNursery(sh), "the one that found it full, and those behind it, are placed at once")
	require.Equal(t, 1, sh.queue.len())
	s.verify()
	require.Equal(t, names, s.to(time.Minute))
}

// A nursery that fills up with timers that live is closed for a while, and one that empties itself is not.
func TestVainNurseryIsClosedForAWhile(t *testing.T) {
	t.Parallel()
	const room = chunkSize - posNursery
	s, sh := newSlab(t)
	s.fill(room+1, time.Minute)
	require.EqualValues(t, nurseryPause, sh.young.closed)
	s.fill(nurseryPause, time.Minute)
	require.Zero(t, inNursery(sh))
	require.Zero(t, sh.young.closed)
	s.fill(2, time.Minute)
	require.Equal(t, 2, inNursery(sh))
	s.verify()

	s, sh = newSlab(t)
	for range 100 {
		s.stopAll(s.fill(room-inNursery(sh), time.Minute)[:room-nurseryVain+1])
		s.fill(1, time.Minute) // finds it full, and places what is left
		require.Equal(t, 1, inNursery(sh))
		require.Zero(t, sh.young.closed)
	}
}

// Holes that stops have left are used again from the end, and order still does not depend on them.
func TestHolesInNursery(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	timers := s.fill(chunkSize-posNursery, time.Minute)
	for i := range timers {
		if i != 3 && i != 10 {
			require.True(t, timers[i].Stop())
		}
	}
	late := s.after(2*time.Minute, "late")
	require.Equal(t, 3, inNursery(sh))
	require.True(t, timers[10].Stop())
	s.verify()
	require.True(t, late.Reschedule(time.Second))
	s.after(time.Second, "later")
	s.verify()
	require.Equal(t, "late later", s.to(time.Second))
	require.Equal(t, 1, s.Len())
}

func TestWhatIsSeenOfTimersInNursery(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	timer := s.after(time.Hour, "a")
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Equal(t, modelStart.Add(time.Hour), at)
	require.Equal(t, 1, inNursery(sh))
	require.Equal(t, 1, s.Len())
	require.True(t, timer.Reschedule(2*time.Hour))
	require.Equal(t, 1, inNursery(sh), "a later deadline is all that is written")
	next, ok := s.Next()
	require.True(t, ok)
	require.False(t, next.After(modelStart.Add(2*time.Hour)))
	s.after(time.Hour, "b")
	require.Equal(t, 1, inNursery(sh))
	require.Equal(t, 2, s.Stats().Buckets)
	s.after(time.Hour, "c")
	require.Equal(t, 3, s.Flush())
	require.Zero(t, inNursery(sh))
	require.Equal(t, "", s.to(0), "Flush has run them")
	s.after(time.Hour, "d")
	s.Stop()
	require.Zero(t, s.Len())
	require.Zero(t, inNursery(sh))
}

func TestRemoveAllTakesTheNursery(t *testing.T) {
	t.Parallel()
	w, err := NewTimeouts(Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	for i := range 5 {
		w.Add(time.Hour, i)
	}
	require.Equal(t, 5, inNursery(&w.engine.shards[0].shard))
	require.ElementsMatch(t, []int{0, 1, 2, 3, 4}, w.RemoveAll())
	require.Zero(t, w.Len())
}

// Nothing stays in the nursery that is due before the next alarm: all fire in their very tick.
func TestNurseryIsNeverLate(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		start := time.Now()
		at := map[string]time.Duration{}
		arm := func(name string, d time.Duration) Timer {
			return tw.AfterFunc(d, func() { at[name] = time.Since(start) })
		}
		arm("alarm", time.Minute)
		require.Zero(t, inNursery(sh), "it has to set the alarm")
		arm("after", 61*time.Second)
		moved := arm("moved", time.Hour)
		arm("far", 24*time.Hour)
		require.Equal(t, 3, inNursery(sh))
		arm("before", time.Second)
		require.Equal(t, 3, inNursery(sh))
		verified(t, sh)
		require.True(t, moved.Reschedule(2*time.Second), "after the alarm for before")
		verified(t, sh)
		require.True(t, moved.Reschedule(time.Second/2))
		require.Equal(t, 2, inNursery(sh), "it has to set the alarm")
		verified(t, sh)
		pass(25 * time.Hour)
		assert.Equal(t, map[string]time.Duration{
			"alarm": time.Minute, "after": 61 * time.Second, "moved": time.Second / 2, "far": 24 * time.Hour, "before": time.Second,
		}, at)
	})
}

// Stopping the timer that the alarm was set for moves the alarm: the nursery must not be behind it then.
func TestNurseryWhenTheAlarmMoves(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		start := time.Now()
		first := tw.AfterFunc(time.Second, func() {})
		tw.AfterFunc(time.Hour, func() {})
		sh.mu.Lock()
		sh.settleWheel()
		sh.mu.Unlock()
		var ran time.Duration
		tw.AfterFunc(time.Minute, func() { ran = time.Since(start) })
		require.Equal(t, 1, inNursery(sh))
		require.True(t, first.Stop())
		verified(t, sh)
		require.Zero(t, inNursery(sh))
		pass(time.Minute)
		assert.Equal(t, time.Minute, ran)
		assert.EqualValues(t, 1, tw.Stats().Stopped)
	})
}

// While no alarm is set nothing may wait for one, not even what never fires.
func TestNurseryNeedsAnAlarm(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(math.MaxInt64, func() { assert.Fail(t, "beyond the clock's range") })
		require.Zero(t, inNursery(sh))
		verified(t, sh)
	})
}

// A nursery that was emptied by Stop keeps no alarm for long, and so no forgotten wheel.
func TestAlarmOfAnEmptyNurseryIsSoon(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		sh.mu.Lock()
		sh.relaxAt = math.MaxInt64 // no credit to switch it off
		sh.mu.Unlock()
		placed, young := tw.AfterFunc(time.Hour, func() {}), tw.AfterFunc(2*time.Hour, func() {})
		require.Equal(t, 1, inNursery(sh))
		require.True(t, placed.Stop())
		require.True(t, young.Stop())
		sh.mu.Lock()
		left := time.Duration(sh.quiet - sh.clock())
		sh.mu.Unlock()
		require.LessOrEqual(t, left, linger+2*defaultTick)
		pass(time.Second)
		require.EqualValues(t, 1, tw.Stats().Wakeups)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		require.EqualValues(t, int64(never), sh.wakeAt)
	})
}

// What is armed with no delay after a Flush waits behind it, also where the nursery had timers that were overdue.
func TestPromptBucketIsNotOneOfAFlush(t *testing.T) {
	bubble(t, Options{Executor: kept{}}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(ms, func() {})
		sh.mu.Lock()
		sh.driving = true // by a driver that is late
		sh.mu.Unlock()
		tw.AfterFunc(2*ms, func() {})
		require.Equal(t, 1, inNursery(sh))
		pass(4 * ms)
		tw.AfterFunc(time.Hour, func() {}) // reads the clock
		require.Equal(t, 3, tw.Flush())
		tw.AfterFunc(0, func() {})
		sh.mu.Lock()
		defer sh.mu.Unlock()
		require.NotNil(t, sh.prompt)
		require.False(t, sh.prompt.flush)
		require.Same(t, sh.prompt, sh.due.tail)
		sh.driving = false
	})
}

// kept is an executor that runs nothing.
type kept struct{}

func (kept) Go(func()) {}

// The next run of a plan may wait in the nursery, and its handle works there as well.
func TestPlanInNursery(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(time.Second, func() {})
		runs := 0
		plan := tw.ScheduleFunc(Every(time.Minute), func() { runs++ })
		require.Equal(t, 1, inNursery(sh))
		verified(t, sh)
		pass(2 * time.Minute)
		require.Equal(t, 2, runs)
		tw.AfterFunc(time.Second, func() {})
		synctest.Wait()
		require.True(t, plan.Stop())
		verified(t, sh)
		pass(time.Hour)
		require.Equal(t, 2, runs)
	})
}
