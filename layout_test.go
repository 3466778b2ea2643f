package timingwheel

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Sizes are promises of the documents and of the benchmarks: a change here is a decision. They hold on 32 bits
// as well, where only pointers are smaller.
func TestSizes(t *testing.T) {
	t.Parallel()
	const word = unsafe.Sizeof(uintptr(0))
	require.EqualValues(t, 16, unsafe.Sizeof(node{}), "four in a cache line")
	require.EqualValues(t, 16, unsafe.Sizeof(chunkMeta{}))
	require.EqualValues(t, 4*chunkSize, unsafe.Sizeof([chunkSize]uint32{}), "an entry is 4 bytes")
	require.EqualValues(t, 8+word, unsafe.Sizeof(Timer{}))
	require.LessOrEqual(t, unsafe.Sizeof(Timer{}), uintptr(16))
	require.LessOrEqual(t, unsafe.Sizeof(bucket{}), uintptr(96))
	if word == 8 {
		require.LessOrEqual(t, unsafe.Sizeof(deadlineContext{}), uintptr(112), "a size class of the allocator")
		require.LessOrEqual(t, unsafe.Sizeof(family{}), uintptr(96), "a size class of the allocator")
		require.EqualValues(t, 64, unsafe.Sizeof(stripe{}), "a cache line")
	}
	require.LessOrEqual(t, unsafe.Sizeof(tie{}), 4*word)
	require.Equal(t, uint32(chunkSize), uint32(posInvalid), "all positions in chunk 0 are special")
	require.Less(t, mergeMax, chunkSize)
	require.LessOrEqual(t, chunkSize, 32, "chunkMeta.alive has a bit for each entry")
	require.Zero(t, chunkPageSize%64, "a page's bitmap is whole words")
	require.LessOrEqual(t, chunkPageSize, pageSize, "pageState.free has a bit for each slot")
}

// What there is for each timer holds no pointer, so the garbage collector does not look at it.
func TestNoPointers(t *testing.T) {
	t.Parallel()
	for _, v := range []any{node{}, chunkMeta{}, [chunkSize]uint32{}, [pageSize]node{}, [chunkPageSize]chunkMeta{}, chunkPage{}, plainPage[uint64]{}, pageState{}} {
		require.False(t, holdsPointers(reflect.TypeOf(v)), "%T", v)
	}
	require.True(t, holdsPointers(reflect.TypeOf(bucket{})), "a bucket may: there is one for many timers")
}

// Timers are values to be compared and used as keys.
func TestTimerIsComparable(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	a, b := s.after(msec, "a"), s.after(msec, "b")
	names := map[Timer]string{a: "a", b: "b", {}: "zero"}
	same := a
	require.True(t, same == a && a != b && a != Timer{})
	require.Equal(t, "a", names[same])
	require.Len(t, names, 3)
}

// What is written of a shard lies at least a cache line away from its neighbours in memory.
func TestShardIsPadded(t *testing.T) {
	t.Parallel()
	const line = 64
	var s shard
	last := unsafe.Offsetof(s.sinceCheck) + unsafe.Sizeof(s.sinceCheck)
	require.GreaterOrEqual(t, unsafe.Sizeof(s)-last, uintptr(line))
	for _, first := range []uintptr{unsafe.Offsetof(s.config), unsafe.Offsetof(s.waiting), unsafe.Offsetof(s.mu)} {
		require.GreaterOrEqual(t, first, uintptr(line))
	}
}

// newSlab is a wheel whose slab a test looks at.
func newSlab(t *testing.T) (*story, *shard) {
	t.Helper()
	s := newStory(t, Options{}, 0)
	return s, &s.engine.shards[0].shard
}

func (s *story) fill(n int, d time.Duration) []Timer {
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = s.after(d, "")
	}
	return timers
}

// fillPlaced is fill with timers that have left the nursery.
func (s *story) fillPlaced(n int, d time.Duration) []Timer {
	timers := s.fill(n, d)
	sh := &s.engine.shards[0].shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.settleYoung()
	return timers
}

func (s *story) stopAll(timers []Timer) {
	s.t.Helper()
	for _, e := range timers {
		if !e.Stop() {
			s.t.Fatalf("timer %+v was not pending", e)
		}
	}
	s.verify()
}

// requireInert sees that none of the handles does anything, though their slots are in use.
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

func TestStaleHandleIsInert(t *testing.T) {
	t.Parallel()
	s, _ := newSlab(t)
	stopped := s.fill(3, msec)
	s.stopAll(stopped)
	fired := s.fill(5, msec)
	s.to(msec)
	timers := s.fill(8, msec)
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

// The slot whose generations are used up is never handed out again, whether it was stopped or has fired,
// and even as the one that is kept aside.
func TestExhaustedSlotIsRetired(t *testing.T) {
	t.Parallel()
	for _, fire := range []bool{false, true} {
		for _, neighbours := range []int{0, 10} {
			s, sh := newSlab(t)
			others := s.fill(neighbours, time.Hour)
			e := s.after(msec, "")
			sh.nodes.must(e.index).gen = maxGen - 1
			e.gen = maxGen - 1
			if fire {
				s.to(msec)
			} else {
				require.True(t, e.Stop())
			}
			require.False(t, e.Stop())
			s.verify()
			for range 3 {
				timers := s.fill(2*pageSize, time.Hour)
				for _, o := range timers {
					require.NotEqual(t, e.index, o.index)
				}
				s.requireInert([]Timer{e})
				s.stopAll(timers)
			}
			s.stopAll(others)
		}
	}
}

// A page with a slot that is used up is not made again once it was given back: other pages take its place.
func TestPageWithExhaustedSlotIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	timers := s.fill(4*pageSize, time.Hour)
	e := &timers[2*pageSize+3]
	lost := e.index >> pageShift
	sh.nodes.must(e.index).gen, e.gen = maxGen-1, maxGen-1
	s.stopAll(timers)
	require.Nil(t, sh.nodes.pages[lost])
	more := s.fill(5*pageSize, time.Hour)
	for _, o := range more {
		require.NotEqual(t, lost, o.index>>pageShift)
	}
	s.requireInert(timers)
	s.stopAll(more)
}

// Generations go on where a page was given back and made again, so handles from before stay inert.
func TestSuccessorOfPageStartsAboveItsGenerations(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	rng := rand.New(rand.NewPCG(5, 5))
	var stale []Timer
	highest := map[uint32]uint32{} // by page
	for range 4 {
		timers := s.fill(3*pageSize, time.Hour)
		for _, e := range timers {
			if last, again := highest[e.index>>pageShift]; again && sh.nodes.floors[e.index>>pageShift] > 0 {
				require.Greater(t, e.gen, last, "page %d", e.index>>pageShift)
			}
		}
		s.requireInert(stale)
		for range rng.IntN(2000) { // some slots have many generations
			k := rng.IntN(len(timers))
			require.True(t, timers[k].Stop())
			stale = append(stale, timers[k])
			timers[k] = s.after(time.Hour, "")
		}
		clear(highest)
		s.stopAll(timers)
		for _, e := range append(stale, timers...) {
			if p := e.index >> pageShift; sh.nodes.pages[p] == nil {
				highest[p] = max(highest[p], e.gen)
			}
		}
		require.NotEmpty(t, highest, "pages were given back")
		stale = append(stale, timers...)
	}
}

// After a spike the memory of nodes, payloads, order and lists goes back, but for a page of each.
func TestPagesAreGivenBackAfterASpike(t *testing.T) {
	t.Parallel()
	for _, fire := range []bool{false, true} {
		s, sh := newSlab(t)
		s.stopAll(s.fill(1, time.Hour))
		before := s.Stats().Bytes
		timers := s.fill(40*pageSize, time.Minute)
		require.Equal(t, 40, nodePages(sh))
		require.Greater(t, s.Stats().Bytes, before+40*pageSize*16)
		if fire {
			s.to(time.Minute)
		} else {
			s.stopAll(timers)
		}
		require.LessOrEqual(t, nodePages(sh), 2, "an empty page, and that of the slot kept aside")
		require.LessOrEqual(t, chunksUsed(sh), 2, "of empty buckets that are still queued")
		for p, pg := range sh.nodes.pages {
			require.Equal(t, pg == nil, s.engine.shards[0].values[p] == nil, "payloads of page %d", p)
			require.Equal(t, pg == nil, sh.seqs[p] == nil, "order of page %d", p)
		}
		require.Less(t, s.Stats().Bytes, before+64<<10)
	}
}

// Each survivor of a spike holds its page; new timers go to the lowest pages with room, so that the survivors
// of many spikes gather.
func TestLowestPagesAreFilledFirst(t *testing.T) {
	t.Parallel()
	const pages = 20
	s, sh := newSlab(t)
	timers := s.fill(pages*pageSize, time.Hour)
	var survivors []Timer
	for i, e := range timers {
		if i%pageSize == 7 {
			survivors = append(survivors, e)
			continue
		}
		require.True(t, e.Stop())
	}
	require.Equal(t, pages, nodePages(sh), "the worst case: one page for each survivor")
	more := s.fill(4*pageSize-4, time.Hour)
	for k, e := range more {
		require.LessOrEqual(t, e.index>>pageShift, uint32(k/(pageSize-1)), "timer %d", k)
	}
	require.Equal(t, pages, nodePages(sh))
	s.stopAll(survivors)
	require.LessOrEqual(t, nodePages(sh), 6)
	s.stopAll(more)
}
