package timingwheel

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// newInbox returns an inbox and its slots.
func newInbox() (*inbox, *arena.Slots) {
	ib, slots := &inbox{}, &arena.Slots{Closed: func(int) {}}
	ib.init()
	return ib, slots
}

// armInbox arms a timer in a free slot.
func armInbox(ib *inbox, slots *arena.Slots, tick int64) uint32 {
	var i uint32
	if n := len(ib.free); n > 0 {
		i, ib.free = ib.free[n-1], ib.free[:n-1]
	} else {
		var ok bool
		if i, ok = slots.Take(); !ok {
			slots.Open(slots.Pager.Next(), new(arena.Page))
			i, _ = slots.Take()
		}
	}
	slots.Pages.At(i>>arena.PageShift).Arm(i, 0, uint64(tick))
	ib.add(i, tick)
	return i
}

func setKind(slots *arena.Slots, i uint32, k arena.Kind, flags arena.Word) {
	pg := slots.Pages.At(i >> arena.PageShift)
	pg.Store(i, pg.Load(i).With(k)|flags)
}

// A slot without further generations leaves the inbox and is not free.
func TestSweepRetiresExhaustedSlot(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	i, other := armInbox(ib, slots, 5), armInbox(ib, slots, 5)
	pg := slots.Pages.At(0)
	for _, k := range []uint32{i, other} {
		setKind(slots, k, arena.Ended, 0)
	}
	for !pg.Load(i).Exhausted() { // all bits of the generation
		pg.Store(i, pg.Load(i)|(1<<20-1<<6))
	}
	ib.sweep(slots)
	require.Equal(t, []uint32{other}, ib.free)
	require.False(t, slots.Pager.IsFree(0, i))
	require.EqualValues(t, 2, ib.stopped)
}

// While no owner places timers, an inbox of pending timers is swept at growing intervals, so that
// arming stays O(1).
func TestInboxOfPendingTimersIsSweptLessOften(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	looked := 0
	for n := 1; n <= 1<<14; n++ {
		armInbox(ib, slots, 5)
		if len(ib.staged) >= ib.sweepAt {
			looked += len(ib.staged)
			require.True(t, ib.sweep(slots))
		}
	}
	require.Len(t, ib.staged, 1<<14)
	require.Less(t, looked, 2<<14)
	ib.take(nil)
	require.Equal(t, inboxSize, ib.sweepAt)
	require.Equal(t, int64(never), ib.first)
}

// Each slot that a goroutine pushes is taken exactly once, although the owner takes the stack
// concurrently.
func TestRaceRemovalsLoseNoSlot(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 64 * arena.PageSize / 8
	var r slotStack
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
				w := pg.Arm(i, 0, 0).With(arena.Dead).WithBits(r.link())
				pg.Store(i, w)
				if n := r.push(pg, i, w); n < 1 {
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

// A timer that is stopped early never reaches the wheel, and its slot and cache lines are reused.
func TestStopInTheInboxDoesNotTouchTheWheel(t *testing.T) {
	t.Parallel()
	for others, most := range map[int]int{0: inboxSize + freeSlots, inboxSize/2 - 1: 2 * inboxSize} {
		s, sh := newRecordingWheelAndShard(t, Options{})
		s.fill(others, time.Hour)
		slots := map[uint32]bool{}
		for range 100 * inboxSize {
			timer := s.after(time.Minute, "")
			slots[timer.index] = true
			require.True(t, timer.Stop())
			require.False(t, timer.Stop())
			require.Equal(t, arena.Ended, timer.word().Kind())
		}
		require.LessOrEqual(t, len(slots), most)
		require.Less(t, sh.staged(), inboxSize)
		require.Empty(t, sh.owner.store.all, "no bucket was created")
		require.Zero(t, sh.removals.len())
		require.Equal(t, others, s.Len())
		s.verify()
	}
}

// While a Stop has swapped the word but has not yet cleared the payload, the owner must not free
// the slot.
func TestSlotIsNotReusedBeforeItsStopEnds(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timer, other := s.after(time.Minute, "stopped"), s.after(time.Minute, "other")
	timer.swapWord(func(w arena.Word) arena.Word { return w.With(arena.Ending) })
	for range 3 {
		sh.placeAll()
		s.verify()
		require.False(t, sh.slotIsFree(timer.index))
		require.False(t, timer.Stop(), "another Stop has won")
		require.False(t, timer.Reschedule(0))
		require.Equal(t, 1, sh.staged())
	}
	timer.swapWord(func(w arena.Word) arena.Word { return w.With(arena.Ended) })
	sh.placeAll()
	require.True(t, sh.slotIsFree(timer.index))
	require.Zero(t, sh.staged())
	require.EqualValues(t, 1, s.Stats().Stopped)
	s.verify()
	require.Equal(t, "other", s.to(time.Minute))
	require.False(t, other.Stop())
}

// Timers that are moved to an earlier deadline pass through the inbox. The inbox must not grow,
// because stopped timers in it occupy slots.
func TestInboxStaysSmallIfTimersAreMovedEarlier(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	s := engineOf(tw).shards[0]
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
	assert.LessOrEqual(t, s.staged()+s.removals.len(), 2*inboxSize+removalsMax)
	verifyShards(t, engineOf(tw))
}
