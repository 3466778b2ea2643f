package timingwheel

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// Sizes are promises of the documents and of the benchmarks: a change here is a decision. They hold
// on 32 bits as well, where only pointers are smaller.
func TestSizesOfHandles(t *testing.T) {
	t.Parallel()
	const word = unsafe.Sizeof(uintptr(0))
	require.EqualValues(t, 8+word, unsafe.Sizeof(Timer{}))
	require.LessOrEqual(t, unsafe.Sizeof(Timer{}), uintptr(16))
	if word == 8 {
		require.LessOrEqual(t, unsafe.Sizeof(deadlineContext{}), uintptr(112), "a size class of the allocator")
		require.LessOrEqual(t, unsafe.Sizeof(family{}), uintptr(96), "a size class of the allocator")
		require.EqualValues(t, 64, unsafe.Sizeof(stripe{}), "a cache line")
	}
	require.LessOrEqual(t, unsafe.Sizeof(tie{}), 5*word)
}

// What there is for each timer holds no pointer, so the garbage collector does not look at it.
func TestTimersHoldNoPointers(t *testing.T) {
	t.Parallel()
	for _, v := range []any{arena.Page{}, [arena.PageSize]uint64{}, chunkMeta{}, chunkPage{}} {
		require.False(t, holdsPointers(reflect.TypeOf(v)), "%T", v)
	}
	require.True(t, holdsPointers(reflect.TypeOf(bucket{})), "a bucket may: there is one for many timers")
}

// Timers are values to be compared and used as keys.
func TestTimerIsComparable(t *testing.T) {
	t.Parallel()
	s, _ := newShardStory(t, Options{})
	a, b := s.after(msec, "a"), s.after(msec, "b")
	names := map[Timer]string{a: "a", b: "b", {}: "zero"}
	same := a
	require.True(t, same == a && a != b && a != Timer{})
	require.Equal(t, "a", names[same])
	require.Len(t, names, 3)
}

// What different goroutines write of a shard lies at least a cache line apart, and so do two
// shards.
func TestShardIsPadded(t *testing.T) {
	t.Parallel()
	const line = 64
	var s shard
	last := unsafe.Offsetof(s.owner) + unsafe.Offsetof(s.owner.sinceCheck) + unsafe.Sizeof(s.owner.sinceCheck)
	require.GreaterOrEqual(t, unsafe.Sizeof(s)-last, uintptr(line))
	for _, part := range []struct {
		name         string
		before, from uintptr // the end of what stands before it
	}{
		{"the neighbour", 0, unsafe.Offsetof(s.config)},
		{"claims", unsafe.Offsetof(s.words) + unsafe.Sizeof(s.words), unsafe.Offsetof(s.claims) + unsafe.Offsetof(s.claims.planRuns)},
		{"removals", unsafe.Offsetof(s.claims) + unsafe.Sizeof(s.claims), unsafe.Offsetof(s.removals) + unsafe.Offsetof(s.removals.head)},
		{"armMu", unsafe.Offsetof(s.removals) + unsafe.Sizeof(s.removals), unsafe.Offsetof(s.armMu)},
		{"wheelMu", unsafe.Offsetof(s.order) + unsafe.Sizeof(s.order), unsafe.Offsetof(s.wheelMu)},
	} {
		require.GreaterOrEqual(t, part.from-part.before, uintptr(line), part.name)
	}
}

func TestStaleHandleIsInert(t *testing.T) {
	t.Parallel()
	for _, placed := range []bool{false, true} {
		s, sh := newShardStory(t, Options{})
		stopped := s.fill(3, msec)
		if placed {
			sh.placeAll()
		}
		s.stopAll(stopped)
		fired := s.fill(5, msec)
		s.to(msec)
		timers := s.fill(2*inboxSize+8, msec)
		slots := map[uint32]bool{}
		for _, e := range timers {
			slots[e.index] = true
		}
		for _, e := range append(stopped, fired...) {
			require.True(t, slots[e.index], "the slot is in use again")
		}
		s.requireInert(append(stopped, fired...))
		s.stopAll(timers)
	}
}

// The successor of a page that was given back uses the same slots and generations again. Handles of
// the old page must not reach its timers.
func TestHandleOfAReturnedPageIsInert(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	old := s.fill(4*arena.PageSize, time.Hour)
	homes := slices.Clone(s.engine.shards[0].homes)
	s.stopAll(old)
	sh.placeAll()
	require.Less(t, sh.slots.Here, 4)
	timers := s.fill(4*arena.PageSize, time.Hour)
	named := map[[2]uint32]bool{}
	for _, e := range timers {
		named[[2]uint32{e.index, e.gen}] = true
	}
	reused := 0
	for _, e := range old {
		if named[[2]uint32{e.index, e.gen}] {
			reused++
			require.NotContains(t, timers, e)
		}
	}
	require.Greater(t, reused, arena.PageSize/2, "slots with the same number and generation")
	require.NotEqual(t, homes, s.engine.shards[0].homes)
	s.requireInert(old)
	s.stopAll(timers)
}

// age makes a slot have its last generation, of which the handle is returned.
func age(timer Timer) Timer {
	timer.swapWord(func(w arena.Word) arena.Word {
		for !w.Exhausted() { // all bits of the generation
			w |= (1<<28 - 1<<6)
		}
		return w
	})
	timer.gen = timer.word().Gen()
	return timer
}

// The slot whose generations are used up is never handed out again, whether its timer was stopped
// or has fired.
func TestSlotWithItsLastGenerationIsRetired(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *story, timer Timer){
		"stopped": func(s *story, timer Timer) { require.True(s.t, timer.Stop()) },
		"stopped on the wheel": func(s *story, timer Timer) {
			s.engine.shards[0].placeAll()
			require.True(s.t, timer.Stop())
		},
		"fired": func(s *story, _ Timer) { s.to(msec) },
	} {
		for _, neighbours := range []int{0, 10} {
			s, sh := newShardStory(t, Options{})
			others := s.fill(neighbours, time.Hour)
			e := age(s.after(msec, ""))
			end(s, e)
			require.False(t, e.Stop())
			s.verify()
			for range 3 {
				timers := s.fill(2*arena.PageSize, time.Hour)
				for _, o := range timers {
					require.False(t, e.home == o.home && e.index == o.index, name)
				}
				s.requireInert([]Timer{e})
				s.stopAll(timers)
			}
			s.stopAll(others)
			require.Zero(t, s.Len())
			verified(t, sh)
		}
	}
}

// Generations go on where a page was given back and opened again, so handles from before stay
// inert.
func TestHandlesStayInertWhenPagesComeBack(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	rng := rand.New(rand.NewPCG(5, 5))
	var stale []Timer
	for round := range 5 {
		timers := s.fill(10*arena.PageSize, time.Hour)
		require.GreaterOrEqual(t, sh.slots.Here, 10)
		s.requireInert(stale)
		for range rng.IntN(2000) { // some slots have many generations
			k := rng.IntN(arena.PageSize) // free slots in many pages would hold these
			require.True(t, timers[k].Stop())
			stale = append(stale, timers[k])
			timers[k] = s.after(time.Hour, "")
		}
		if round%2 == 0 {
			s.stopAll(timers)
		} else {
			require.Equal(t, len(timers), s.Flush())
		}
		require.Zero(t, s.Len())
		require.LessOrEqual(t, sh.slots.Here, 5, "an empty page, and those of the free slots of the inbox")
		stale = append(stale, timers...)
		s.requireInert(stale)
	}
}

// A handle whose page was given back and not opened again does nothing.
func TestHandleOfAPageThatIsGone(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	timers := s.fill(4*arena.PageSize, time.Hour)
	s.stopAll(timers)
	s.Len()
	gone := 0
	for _, e := range timers {
		if sh.slots.Pages.At(e.index>>arena.PageShift) == nil {
			gone++
		}
	}
	require.Positive(t, gone)
	s.requireInert(timers)
}

// After a spike the memory of slots, payloads and lists goes back, but for a page of each.
func TestPagesAreGivenBackAfterASpike(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *story, timers []Timer){
		"stopped": func(s *story, timers []Timer) { s.stopAll(timers) },
		"fired":   func(s *story, _ []Timer) { s.to(time.Minute) },
		"flushed": func(s *story, _ []Timer) { s.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sh := newShardStory(t, Options{})
			s.stopAll(s.fill(1, time.Hour))
			before := s.Stats().Bytes
			timers := s.fill(40*arena.PageSize, time.Minute)
			require.Equal(t, 40, sh.slots.Here)
			require.Greater(t, s.Stats().Bytes, before+40*arena.PageSize*16)
			end(s, timers)
			require.Zero(t, s.Len())
			require.LessOrEqual(t, sh.slots.Here, 2, "an empty page, and that of the free slots of the inbox")
			require.LessOrEqual(t, sh.owner.store.chunks.used(), 2)
			require.LessOrEqual(t, sh.owner.store.chunks.here, 2)
			for p := range uint32(40) {
				require.Equal(t, sh.slots.Pages.At(p) == nil, s.engine.shards[0].values.At(p) == nil, "payloads of page %d", p)
			}
		})
	}
}

// Each survivor of a spike holds its page. New timers go to the lowest pages with room, so the
// survivors of many spikes gather.
func TestLowestPagesAreFilledFirst(t *testing.T) {
	t.Parallel()
	const pages = 20
	s, sh := newShardStory(t, Options{})
	timers := s.fill(pages*arena.PageSize, time.Hour)
	var survivors []Timer
	for i, e := range timers {
		if i%arena.PageSize == 7 {
			survivors = append(survivors, e)
			continue
		}
		require.True(t, e.Stop())
	}
	require.Equal(t, pages, s.Len())
	require.Equal(t, pages, sh.slots.Here, "the worst case: one page for each survivor")
	more := s.fill(4*(arena.PageSize-1)-inboxSize, time.Hour)
	low := 0
	for _, e := range more {
		if e.index>>arena.PageShift < 5 {
			low++
		}
	}
	require.GreaterOrEqual(t, low, len(more)-inboxSize-freeSlots, "but for those that the inbox had at hand")
	require.Equal(t, pages, sh.slots.Here)
	s.stopAll(survivors)
	s.Len()
	require.LessOrEqual(t, sh.slots.Here, 8)
	s.stopAll(more)
}

func TestShardVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	for want, damage := range map[string]func(s *story, sh *shard, timers []Timer){
		"S2":        func(_ *story, sh *shard, timers []Timer) { *sh.owner.store.pos(timers[3].index)++ },
		"position":  func(_ *story, sh *shard, timers []Timer) { *sh.owner.store.pos(timers[4].index) = 0 },
		"S3":        func(_ *story, sh *shard, _ []Timer) { sh.owner.store.all[0].tail += 3 },
		"live":      func(_ *story, sh *shard, _ []Timer) { sh.owner.store.all[0].live++; sh.owner.wheel.live++ },
		"S4: slot":  func(s *story, sh *shard, _ []Timer) { setKind(&sh.slots, s.after(msec, "").index, arena.Placed, 0) },
		"S4: timer": func(s *story, sh *shard, _ []Timer) { s.after(msec, ""); sh.inbox.first = never },
		"S4: free":  func(_ *story, sh *shard, timers []Timer) { sh.inbox.free = append(sh.inbox.free, timers[0].index) },
		"S5": func(_ *story, _ *shard, timers []Timer) {
			timers[0].swapWord(func(w arena.Word) arena.Word { return w.WithBits(1) })
		},
		"S8":         func(_ *story, sh *shard, _ []Timer) { sh.owner.aged -= arena.Near },
		"S6: 0":      func(_ *story, sh *shard, _ []Timer) { sh.owner.due.ready++ },
		"of workers": func(_ *story, sh *shard, _ []Timer) { sh.owner.crew.running-- },
	} {
		s, sh := newShardStory(t, Options{})
		timers := s.fillPlaced(10, time.Minute)
		require.NoError(t, sh.verify())
		damage(s, sh, timers)
		require.ErrorContains(t, sh.verify(), want)
	}
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(time.Minute, func() {})
		at := sh.alarm.at.Load()
		sh.alarm.at.Store(never)
		require.ErrorContains(t, sh.verify(), "S7: a timer")
		sh.alarm.at.Store(at)
		sh.placeAll()
		at = sh.alarm.at.Load()
		sh.alarm.at.Store(never)
		require.ErrorContains(t, sh.verify(), "S7: bucket")
		sh.alarm.at.Store(at)
	})
}
