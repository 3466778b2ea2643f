package timingwheel

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// Tests of timers that callers stop and move while the owner of the wheel works.

// arrived arms n timers and takes them out of the inbox without placing them. An owner is in this
// state between two quanta.
func arrived(s *recordingWheel, n int, d time.Duration) []Timer {
	timers := s.fill(n, d)
	sh := &s.engine.shards[0].shard
	sh.own(sh.takeArrivals)
	return timers
}

// A timer that the owner has taken out of the inbox and has not placed can be stopped and moved.
func TestStopAndRescheduleBetweenInboxAndWheel(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timers := arrived(s, 40, time.Minute)
	sh.own(func() { sh.owner.placeArrivals(10) })
	require.Equal(t, 10, sh.placed())
	s.stopAll([]Timer{timers[3], timers[20], timers[21]})
	require.True(t, timers[30].Reschedule(time.Second))
	require.True(t, timers[31].Reschedule(time.Hour))
	require.True(t, timers[4].Reschedule(time.Second))
	s.verify()
	require.Equal(t, 37, s.Len())
	s.verify()
	require.True(t, sh.slotIsFree(timers[20].index))
	s.to(time.Second)
	require.Len(t, s.ran, 2)
	s.to(time.Minute)
	require.Len(t, s.ran, 34)
	require.Equal(t, 1, s.Len())
}

// A timer of a running wheel is rescheduled while the owner has taken it out of the inbox and has
// not placed it. A later time only changes the word. An earlier time also sets the alarm.
func TestRescheduleBetweenInboxAndWheelFiresOnTime(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		w := newStopwatch()
		timers := make([]Timer, 5)
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Second, w.note)
		}
		sh.own(sh.takeArrivals)
		require.True(t, timers[1].Reschedule(500*ms))
		require.True(t, timers[2].Reschedule(3*time.Second))
		require.True(t, timers[3].Stop())
		verifyShard(t, sh)
		pass(time.Hour)
		require.Equal(t, []int{500, 1000, 1000, 3000}, w.noted())
		verifyShard(t, sh)
	})
}

// A placed timer that is moved to an earlier time is in the inbox and in a bucket until the owner
// places it. Whatever happens meanwhile, it is in one of them afterwards.
func TestTimerInInboxAndBucketFiresOnce(t *testing.T) {
	t.Parallel()
	type wheel struct {
		tw    *TimingWheel
		sh    *shard
		timer Timer
	}
	for name, c := range map[string]struct {
		do   func(w wheel)
		runs []int // ms
	}{
		"nothing":                 {func(wheel) {}, []int{1000}},
		"placed":                  {func(w wheel) { w.sh.placeAll() }, []int{1000}},
		"stopped":                 {func(w wheel) { w.timer.Stop() }, nil},
		"stopped and swept":       {func(w wheel) { w.timer.Stop(); w.sh.own(w.sh.sweepInbox) }, nil},
		"stopped when placed":     {func(w wheel) { w.sh.placeAll(); w.timer.Stop() }, nil},
		"stopped by a former one": {func(w wheel) { w.timer.Stop(); w.tw.AfterFunc(2*time.Second, func() {}).Stop() }, nil},
		"later again":             {func(w wheel) { w.timer.Reschedule(2 * time.Hour) }, []int{7200_000}},
		"to where it was":         {func(w wheel) { w.timer.Reschedule(time.Hour) }, []int{3600_000}},
		"and when placed":         {func(w wheel) { w.timer.Reschedule(time.Hour); w.sh.placeAll() }, []int{3600_000}},
		"earlier still":           {func(w wheel) { w.timer.Reschedule(500 * ms) }, []int{500}},
		"to now":                  {func(w wheel) { w.timer.Reschedule(0) }, []int{0}},
		"flushed":                 {func(w wheel) { w.tw.Flush() }, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				sh := &tw.engine.shards[0].shard
				watch := newStopwatch()
				timer := tw.AfterFunc(time.Hour, watch.note)
				sh.placeAll()
				require.True(t, timer.Reschedule(time.Second))
				require.True(t, timer.word().Has(arena.Listed))
				require.Equal(t, 1, sh.staged())
				require.Equal(t, 1, sh.placed())
				require.Equal(t, arena.Staged, timer.word().Kind())
				verifyShard(t, sh)
				c.do(wheel{tw, sh, timer})
				verifyShard(t, sh)
				synctest.Wait()
				sh.placeAll()
				verifyShard(t, sh)
				require.Equal(t, tw.Len(), sh.placed(), "a free slot is in no bucket")
				pass(10 * time.Hour)
				require.Equal(t, c.runs, watch.noted())
				require.Zero(t, tw.Len())
				require.Zero(t, sh.placed())
				require.True(t, sh.slotIsFree(timer.index))
				verifyShard(t, sh)
			})
		})
	}
}

// sweepInbox sweeps the inbox as a caller that arms a timer does.
func (s *shard) sweepInbox() {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	s.inbox.sweep(&s.slots)
}

// The old bucket of a timer that was moved to an earlier time expires before the owner takes the
// inbox.
func TestOldBucketOfAMovedTimerExpires(t *testing.T) {
	t.Parallel()
	bubble(t, Options{WheelSize: 4, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
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
		require.True(t, sh.slotIsFree(timers[1].index))
		verifyShard(t, sh)
	})
}

// A Stop takes effect before the entry leaves the bucket: the handle is inert, the callback is
// released and Len is exact. The slot is reused only after the entry has left.
func TestStoppedPlacedTimerIsInertAtOnce(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	typed := s.engine.shards[0]
	timers := s.fillPlaced(4*removalsMax, time.Minute)
	for k, e := range timers[:removalsMax-1] {
		require.True(t, e.Stop())
		require.Equal(t, k+1, sh.removals.len())
		require.Nil(t, typed.values.At(e.index >> arena.PageShift)[e.index&arena.PageMask])
		require.Equal(t, arena.Dead, e.word().Kind())
		require.False(t, e.Stop())
		require.False(t, e.Reschedule(time.Second))
		_, ok := e.Deadline()
		require.False(t, ok)
		require.False(t, sh.slotIsFree(e.index))
	}
	s.verify()
	require.Equal(t, 4*removalsMax, sh.placed(), "the entries are still there")
	for range 3 {
		require.NotEqual(t, timers[0].index, s.after(time.Hour, "").index)
	}
	require.True(t, timers[removalsMax-1].Stop())
	require.Zero(t, sh.removals.len(), "carried out together")
	for _, e := range timers[:removalsMax] {
		require.True(t, sh.slotIsFree(e.index))
	}
	s.verify()
	s.stopAll(timers[removalsMax : removalsMax+5])
	require.Equal(t, 5, sh.removals.len())
	require.Equal(t, 3*removalsMax-5+3, s.Len(), "Len is exact and carries the removals out")
	require.Zero(t, sh.removals.len())
	s.verify()
	s.requireInert(timers[:removalsMax+5])
}

// Few entries are dead at any time, whatever the number of stopped timers and their order.
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
				if dead := sh.placed() - (n - stopped - 1); dead >= removalsMax {
					t.Fatalf("%d dead entries", dead)
				}
			}
			require.Less(t, sh.placed(), removalsMax, "the rest waits for the next removals")
			s.verify()
		})
	}
}

// A backlog of removals has grown while wheelMu was held. Further Stops carry out more removals
// than they add.
func TestBacklogOfRemovalsShrinks(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timers := s.fillPlaced(5000, time.Minute)
	sh.wheelMu.Lock()
	requireAllStop(t, timers[:4000])
	sh.unlockAndDrain()
	require.Equal(t, 5000-callerQuantum, sh.placed())
	for k := 4000; sh.owner.takenRemovals != 0; k += removalsMax {
		before := sh.placed()
		require.Less(t, k+removalsMax, len(timers))
		s.stopAll(timers[k : k+removalsMax])
		require.LessOrEqual(t, sh.placed(), max(before-callerQuantum, len(timers)-k-removalsMax))
	}
}

// A timer is armed after a long idle time, while removals are outstanding. The owner places it by
// the current clock.
func TestClockCatchesUpBeforePlacing(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: time.Hour, WheelSize: 8, Levels: 4}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		arm := func(ticks int) Timer { return tw.AfterFunc(time.Duration(ticks)*time.Hour-time.Minute, func() {}) }
		first, full := arm(200), make([]Timer, 20)
		for k := range full {
			full[k] = arm(300)
		}
		last := arm(1000)
		sh.placeAll()
		time.Sleep(150 * time.Hour)
		requireAllStop(t, append(full[:19], first))
		require.Positive(t, sh.removals.len())
		timer := arm(5)
		require.Equal(t, 0, firstLevel(tw.engine.shards[0]))
		require.Zero(t, sh.removals.len())
		verifyShard(t, sh)
		require.True(t, timer.Stop())
		pass(2000 * time.Hour)
		require.False(t, last.Stop())
	})
}

func TestWheelStopCountsRemovalsAsStopped(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	s.stopAll(s.fillPlaced(40, time.Minute)[:5])
	require.Equal(t, 5, sh.removals.len())
	s.Stop()
	require.Zero(t, s.Stats().Buckets)
	require.EqualValues(t, 5, s.Stats().Stopped)
	require.EqualValues(t, 35, s.Stats().Discarded)
	_, ok := s.Next()
	require.False(t, ok)
	require.Zero(t, s.Advance(modelStart.Add(time.Hour)))
}

func TestNextNamesNoBucketOfStoppedTimers(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	first := s.after(50*ms, "first")
	s.fill(5, time.Hour)
	before, _ := s.Next()
	require.True(t, first.Stop())
	require.Equal(t, 1, sh.removals.len())
	next, ok := s.Next()
	require.True(t, ok)
	require.True(t, next.After(before), "%v", next)
}

func TestFlushAndRemoveAllSkipStoppedTimers(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	s.stopAll(s.fillPlaced(10, time.Minute)[:5])
	require.Equal(t, 5, sh.removals.len())
	require.Equal(t, 5, s.Flush())
	require.Len(t, s.ran, 5)
	s.verify()

	w, err := NewTimeouts(Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	timers := make([]Timer, 10)
	for k := range timers {
		timers[k] = w.Add(time.Minute, k)
	}
	w.engine.shards[0].placeAll()
	requireAllStop(t, timers[:5])
	require.Equal(t, 5, w.engine.shards[0].removals.len())
	require.Equal(t, []int{5, 6, 7, 8, 9}, w.RemoveAll())
	require.Zero(t, w.Len())
}

// A large bucket that cascades before it expires must not move the clock past queued buckets.
func TestEarlyBucketDoesNotMoveTheClockPastOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw, err := New(Options{Shards: 1, WheelSize: 4096, Tick: minTick})
		require.NoError(t, err)
		defer tw.Stop()
		for i := range 1100 {
			tw.AfterFunc(time.Duration(2990+i)*minTick, func() {})
		}
		for range 4 * earlyMin { // on the second level, from tick 4096 on; they cascade at tick 4076
			tw.AfterFunc(5000*minTick, func() {})
		}
		s := tw.engine.shards[0]
		s.wheelMu.Lock()
		s.drainAll()
		s.config.Base = s.config.Base.Add(-4080 * minTick) // the machine has stalled
		var broken error
		s.advanceClock(s.config.Read())
		for done := false; !done; {
			done = s.owner.expire()
			broken = cmp.Or(broken, s.verify())
		}
		s.startDriver()
		s.wheelMu.Unlock()
		require.NoError(t, broken)
		time.Sleep(time.Second)
		require.Zero(t, tw.Len())
	})
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
		assert.Less(t, ran, backlog/4, "placed before the first callback; two quanta on an idle machine")
		assert.True(t, last)
		assert.Equal(t, backlog, tw.Len())
		verifyShard(t, &s.shard)
		close(release)
		pass(time.Hour)
		assert.Zero(t, tw.Len())
	})
}
