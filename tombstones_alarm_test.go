package timingwheel

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tombstones and the alarm, which Manual mode does not have.

// The alarm is put off when the earliest bucket turns out to be empty. The timer that was on its way into the
// nursery when that was seen is due before the new alarm, and must not get there any more.
func TestAlarmIsPutOffWhileATimerIsArmed(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		tw.engine.defers(math.MaxInt)
		sh := &tw.engine.shards[0].shard
		fill := func(n int) []Timer {
			timers := make([]Timer, n)
			for k := range timers {
				timers[k] = tw.AfterFunc(time.Hour, func() {})
			}
			return timers
		}
		first := tw.AfterFunc(time.Second, func() {})
		stopAll(fill(chunkSize)[:chunkSize-mergeMax])
		require.Zero(t, inNursery(sh), "it was full of timers that live")
		sh.young.closed = 0
		stopAll(fill(chunkSize - posNursery)[:chunkSize-posNursery-nurseryVain+1])
		tw.engine.defers(0)
		require.True(t, first.Stop())
		require.Equal(t, 1, tombstonesOf(sh))
		start, ran := time.Now(), time.Duration(0)
		tw.AfterFunc(2*time.Second, func() { ran = time.Since(start) })
		require.Zero(t, tombstonesOf(sh), "that one found the nursery full, and a chunk on the way")
		verified(t, sh)
		pass(3 * time.Second)
		require.Equal(t, 2*time.Second, ran)
		require.EqualValues(t, 2, tw.Stats().Wakeups, "to move it, and to run it")
	})
}

// The last pending timer leaves from the nursery while a tombstone is on the wheel: the alarm is switched off all the
// same, so that the wheel can be collected.
func TestAlarmIsSwitchedOffThoughATombstoneIsLeft(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		tw.engine.defers(0)
		sh := &tw.engine.shards[0].shard
		first, young := tw.AfterFunc(time.Hour, func() {}), tw.AfterFunc(2*time.Hour, func() {})
		require.Equal(t, 1, inNursery(sh))
		require.True(t, first.Stop())
		require.Equal(t, 1, tombstonesOf(sh))
		require.True(t, young.Stop())
		require.Zero(t, tombstonesOf(sh))
		require.Equal(t, int64(never), sh.wakeAt)
		verified(t, sh)
	})
}

// Credit is for the earliest bucket. Later ones that become empty together spend none.
func TestLaterBucketsSpendNoCredit(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		tw.engine.defers(0)
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(time.Second, func() {})
		var timers []Timer
		for k := range tombstonesMax {
			timers = append(timers, tw.AfterFunc(time.Hour+time.Duration(k)*24*time.Hour, func() {}))
		}
		tw.AfterFunc(10_000*time.Hour, func() {})
		tw.Stats() // places them
		credit := sh.relaxAt
		stopAll(timers)
		require.Zero(t, tombstonesOf(sh))
		require.Positive(t, sh.hollow)
		require.Equal(t, credit, sh.relaxAt)
	})
}

// A timer goes where it belongs by the clock as it stands after the tombstones were settled: where these had emptied
// the earliest bucket, the alarm is set anew, the nursery is placed, and the clock is caught up for that.
func TestClockMovesWhileATimerIsPlaced(t *testing.T) {
	t.Parallel()
	const tick = time.Hour
	tw := startWheel(t, Options{Shards: 1, Tick: tick, WheelSize: 8, Levels: 4})
	tw.engine.defers(math.MaxInt)
	sh := &tw.engine.shards[0].shard
	arm := func(ticks int) Timer {
		return tw.AtFunc(tw.Now().Add(time.Duration(ticks)*tick-time.Minute), func() {})
	}
	first := arm(2)
	full := make([]Timer, chunkSize) // of the bucket of ticks 16 to 23
	for k := range full {
		full[k] = arm(20)
	}
	arm(1000)
	tw.Stats() // places them
	stopAll(full[:20])
	tw.engine.defers(0)
	stopAll(append(full[20:], first))
	require.Equal(t, chunkSize-20+1, tombstonesOf(sh))
	sh.young.closed = 0
	arm(2000)
	require.Equal(t, 1, inNursery(sh))

	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.observe(17*int64(tick) + int64(tick)/2) // the driver is late
	i, n := sh.add(0)                          // AfterFunc(0),
	*sh.callback(i) = func() {}
	n.deadline = 20 * int64(tick) // a Reschedule to later before a worker comes,
	j, claimed, ok := sh.next()   // which puts it back
	require.True(t, ok && claimed == nil && j == i)
	require.Zero(t, sh.tombs.n)
	require.EqualValues(t, 17, sh.cur)
	require.NoError(t, sh.verify())
}
