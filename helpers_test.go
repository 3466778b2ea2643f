package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// armOn arms a timer on a shard of the test's choice.
func armOn[T any](s *shardOf[T], deadline int64, v T) Timer {
	s.armMu.Lock()
	return s.arm(deadline, 0, v, 0)
}

// firstLevel returns the level of the first bucket.
func firstLevel[T any](s *shardOf[T]) int {
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	s.settleAll()
	top, _ := s.owner.wheel.queue.Min()
	return int(top.level)
}

// own calls f while the caller is the owner of the wheel, and lets go of it without looking at what
// was asked for meanwhile.
func (s *shard) own(f func()) {
	s.wheelMu.Lock()
	defer s.unlock()
	f()
}

// placeAll places everything that was armed, and carries out all removals.
func (s *shard) placeAll() { s.own(s.settleAll) }

// verified checks the invariants of a shard that may have a driver.
func verified(t *testing.T, s *shard) {
	t.Helper()
	s.wheelMu.Lock()
	err := s.verify()
	s.wheelMu.Unlock()
	require.NoError(t, err)
}

// staged returns the number of slots in the inbox.
func (s *shard) staged() int {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	return len(s.inbox.staged)
}

// placed returns the number of entries of buckets that are queued on the wheel.
func (s *shard) placed() (n int) {
	s.own(func() { n = s.owner.wheel.live })
	return n
}

// tickets returns the number of deadlines in the table of far deadlines.
func (s *shard) tickets() int {
	s.far.mu.Lock()
	defer s.far.mu.Unlock()
	return len(s.far.ticks)
}

// bucketsUsed returns the number of buckets that are not spare.
func (s *shard) bucketsUsed() (n int) {
	s.own(func() { n = len(s.owner.store.all) - len(s.owner.store.spare) })
	return n
}

// word returns the word of the slot to which a handle points.
func (t Timer) word() arena.Word { return loadWord(&t.shard().slots.Pages, t.index) }

// swapWord changes the word of a timer as another goroutine would.
func (t Timer) swapWord(change func(w arena.Word) arena.Word) {
	pg := t.shard().slots.Pages.At(t.index >> arena.PageShift)
	pg.Store(t.index, change(pg.Load(t.index)))
}

// unnamed reports whether a slot is free: no timer, list or batch names it. Slots that were claimed
// a moment ago are given back first.
func (s *shard) unnamed(i uint32) bool {
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	s.reclaim()
	s.armMu.Lock()
	defer s.armMu.Unlock()
	for _, f := range s.inbox.free {
		if f == i {
			return true
		}
	}
	return s.slots.Pages.At(i>>arena.PageShift) == nil || s.slots.Pager.IsFree(int(i>>arena.PageShift), i&arena.PageMask)
}

// newShardStory is a story of one shard, whose parts the test looks at.
func newShardStory(t *testing.T, opts Options) (*story, *shard) {
	t.Helper()
	s := newStory(t, opts, 0)
	return s, &s.engine.shards[0].shard
}

// fill arms n timers for the same time.
func (s *story) fill(n int, d time.Duration) []Timer {
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = s.after(d, "")
	}
	return timers
}

// fillPlaced is fill with timers that have left the inbox.
func (s *story) fillPlaced(n int, d time.Duration) []Timer {
	timers := s.fill(n, d)
	s.engine.shards[0].placeAll()
	return timers
}

func (s *story) stopAll(timers []Timer) {
	s.t.Helper()
	requireAllStop(s.t, timers)
	s.verify()
}

func requireAllStop(t *testing.T, timers []Timer) {
	t.Helper()
	for k, e := range timers {
		if !e.Stop() {
			t.Fatalf("timer %d was not pending", k)
		}
	}
}

// requireInert checks that none of the handles does anything, though their slots may be in use.
func (s *story) requireInert(stale []Timer) {
	s.t.Helper()
	pending := s.Len()
	for _, e := range stale {
		_, ok := e.Deadline()
		if e.Stop() || e.Reschedule(0) || e.RescheduleAt(modelStart) || ok {
			s.t.Fatalf("stale handle %+v has acted on another timer", e)
		}
	}
	require.Equal(s.t, pending, s.Len())
}
