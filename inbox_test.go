package timingwheel

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// While no owner places timers, an inbox of pending timers is swept at growing intervals, so that
// arming stays O(1).
func TestInboxOfPendingTimersIsSweptLessOften(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	looked := 0
	sh.owner.mu.Lock()
	for range 1 << 14 {
		at := sh.inbox.sweepAt
		if s.after(time.Hour, ""); sh.inbox.sweepAt != at {
			looked += at
		}
	}
	require.Len(t, sh.inbox.staged, 1<<14)
	require.Less(t, looked, 2<<14)
	require.Greater(t, looked, 1<<13)
	sh.owner.drainAll()
	sh.unlock()
	require.Equal(t, inboxSize, sh.inbox.sweepAt)
	require.Equal(t, int64(never), sh.inbox.first)
}

// Each record that a goroutine pushes is taken exactly once, although the owner takes the stack
// concurrently.
func TestRaceRemovalsLoseNoRecord(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 64 * arena.PageSize / 8
	var r removalStack
	pages := make([]*arena.Page, goroutines*each/arena.PageSize)
	for p := range pages {
		pages[p] = new(arena.Page)
	}
	var pushers sync.WaitGroup
	for g := range uint32(goroutines) {
		pushers.Go(func() {
			for k := range uint32(each) {
				i := k*goroutines + g
				pg := pages[i>>arena.PageShift]
				pg.Store(i, pg.Arm(i, 0, 0).With(arena.Dead).WithBits(r.link()))
				if n := r.push(chain{pg, i, i + 1, 1}); n < 1 {
					t.Errorf("push: %d", n)
				}
			}
		})
	}
	seen := make([]int, goroutines*each)
	total := 0
	done := make(chan struct{})
	go func() { pushers.Wait(); close(done) }()
	for over := false; !over; {
		over = isClosed(done)
		n, at := r.len(), r.take()
		took := 0
		for ; at != 0; took++ {
			i := uint32(at - 1)
			seen[i]++
			at = pages[i>>arena.PageShift].Load(i).Bits()
		}
		require.GreaterOrEqual(t, took, n)
		total += took
	}
	require.Equal(t, goroutines*each, total)
	require.NotContains(t, seen, 0)
	require.Zero(t, r.take())
	require.Zero(t, r.len())
}

// A timer that is stopped early never reaches the wheel, and its record and cache lines are reused.
func TestStopInTheInboxDoesNotTouchTheWheel(t *testing.T) {
	t.Parallel()
	for others, most := range map[int]int{0: inboxSize + freeRecords, inboxSize/2 - 1: 2 * inboxSize} {
		s, sh := newRecordingWheelAndShard(t, Options{})
		s.fill(others, time.Hour)
		records := map[uint32]bool{}
		for range 100 * inboxSize {
			timer := s.after(time.Minute, "")
			records[timer.index] = true
			require.True(t, timer.Stop())
			require.False(t, timer.Stop())
			require.Equal(t, arena.Ended, timer.word().Kind())
		}
		require.LessOrEqual(t, len(records), most)
		require.Less(t, sh.staged(), inboxSize)
		require.Empty(t, sh.owner.store.all, "no bucket was created")
		require.Zero(t, sh.removals.len())
		require.Equal(t, others, s.Len())
		s.verify()
	}
}

// While a call to Stop has swapped the word but has not yet cleared the payload, the owner must not
// free the record.
func TestRecordIsNotReusedBeforeItsStopEnds(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timer, other := s.after(time.Minute, "stopped"), s.after(time.Minute, "other")
	pg, to := timer.end()
	require.NotNil(t, pg)
	for range 3 {
		require.False(t, sh.recordIsFree(timer.index))
		require.False(t, timer.Stop(), "another Stop has won")
		require.False(t, timer.Reschedule(0))
		sh.placeAll()
		s.verify()
	}
	require.Equal(t, 2, s.Len(), "the Stop has not returned")
	timer.finishStop(pg, to)
	require.False(t, sh.recordIsFree(timer.index))
	sh.placeAll()
	require.True(t, sh.recordIsFree(timer.index))
	require.EqualValues(t, 1, s.Stats().Stopped)
	s.verify()
	require.Equal(t, "other", s.to(time.Minute))
	require.False(t, other.Stop())
}

// Timers that are moved to an earlier deadline pass through the inbox. The inbox must not grow,
// because stopped timers in it occupy records.
func TestInboxStaysSmallIfTimersAreMovedEarlier(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	s := tw.engine.shards[0]
	timers := make([]Timer, max(scaled(50_000), 5000))
	for i := range timers {
		timers[i] = tw.AfterFunc(10*time.Hour, func() {})
	}
	most := 0
	for d := 9 * time.Hour; d > 6*time.Hour; d -= time.Hour {
		for _, timer := range timers {
			require.True(t, timer.Reschedule(d))
			most = max(most, s.staged())
		}
	}
	assert.LessOrEqual(t, most, 2*inboxSize)
	for _, timer := range timers {
		require.True(t, timer.Stop())
	}
	assert.LessOrEqual(t, s.staged()+s.removals.len(), 2*inboxSize+removalGroup)
	verifyShards(t, tw.engine)
}
