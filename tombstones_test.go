package timingwheel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// defers sets from how many pending timers on a stop leaves a tombstone.
func (e *engine[T]) defers(from int) {
	for _, s := range e.shards {
		s.lock()
		s.tombs.from = from
		s.mu.Unlock()
	}
}

func tombstonesOf(s *shard) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tombs.n
}

// What a stop promises does not wait for its entry: the handle is dead, the callback gone, the slot free.
func TestTombstoneIsAnEntryOnly(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(0)
	timers := s.fillPlaced(2*chunkSize, time.Minute)
	for k, e := range timers[:tombstonesMax-1] {
		require.True(t, e.Stop())
		require.Equal(t, k+1, tombstonesOf(sh))
		require.Nil(t, *sh.callback(e.index))
		require.Equal(t, len(timers)-k-1, s.Len())
	}
	s.verify()
	s.requireInert(timers[:tombstonesMax-1])
	again := s.after(time.Hour, "again")
	require.Equal(t, timers[0].index, again.index, "its slot is in use again, its entry is not yet gone")
	require.True(t, timers[tombstonesMax].Stop())
	require.Zero(t, tombstonesOf(sh), "settled when there are many")
	s.verify()
	s.stopAll(timers[tombstonesMax+1 : tombstonesMax+4])
	require.Equal(t, 3, tombstonesOf(sh))
	require.Equal(t, 2, s.Stats().Buckets, "to count buckets settles them")
	require.Zero(t, tombstonesOf(sh))
	s.verify()
}

func TestLastTimerLeavesNoTombstone(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(0)
	s.stopAll(s.fillPlaced(10, time.Minute))
	require.Zero(t, tombstonesOf(sh))
	_, ok := s.Next()
	require.False(t, ok)
}

func TestStopOfWheelWithTombstones(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(0)
	s.stopAll(s.fillPlaced(40, time.Minute)[:5])
	require.Equal(t, 5, tombstonesOf(sh))
	s.Stop()
	require.Zero(t, s.Stats().Buckets)
	_, ok := s.Next()
	require.False(t, ok)
	require.Zero(t, s.Advance(modelStart.Add(time.Hour)))
}

// A full last chunk makes room by moving its living entries, of which a tombstone is none, though its slot may be
// another timer's by then.
func TestAppendMovesNoTombstone(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	timers := s.fillPlaced(chunkSize, time.Minute)
	s.engine.defers(math.MaxInt)
	s.stopAll(timers[:chunkSize-mergeMax])
	s.engine.defers(0)
	require.True(t, timers[20].Stop())
	elsewhere := s.fillPlaced(1+chunkSize-mergeMax, time.Hour)
	require.True(t, slices.ContainsFunc(elsewhere, func(e Timer) bool { return e.index == timers[20].index }))
	require.Equal(t, 1, tombstonesOf(sh))
	s.fillPlaced(1, time.Minute)
	require.Zero(t, tombstonesOf(sh))
	s.verify()
	s.to(time.Minute)
	require.Len(t, s.ran, mergeMax)
	s.stopAll(elsewhere)
}

// Settling what stands in its own bucket may free that bucket while a timer is on the way there.
func TestBucketIsFreedOnTheWayThere(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(math.MaxInt)
	s.after(time.Hour, "last")
	var empty []Timer
	for k := range hollowMax {
		empty = append(empty, s.after(time.Duration(k+1)*msec, "never"))
	}
	timers := s.fillPlaced(chunkSize, time.Minute)
	s.stopAll(empty)
	s.stopAll(timers[:20])
	s.engine.defers(0)
	s.stopAll(timers[20:])
	require.Equal(t, chunkSize-20, tombstonesOf(sh))
	require.Equal(t, hollowMax, sh.hollow)
	s.after(time.Minute, "alone")
	s.verify()
	require.Equal(t, "alone", s.to(time.Minute))
	require.Equal(t, "last", s.to(time.Hour))
}

// Buckets that have lost their last timers as tombstones do not pile up.
func TestTombstonesEmptyBuckets(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(0)
	s.after(24*time.Hour, "last")
	var timers []Timer
	for k := range 3 * hollowMax {
		timers = append(timers, s.after(time.Duration(k+1)*msec, "never"))
	}
	sh.settleWheel()
	s.stopAll(timers)
	require.LessOrEqual(t, sh.queue.len(), hollowMax+tombstonesMax+1)
	require.LessOrEqual(t, s.wakeups(), 4, "those of the last one, which moves from wheel to wheel")
}

// Chunks are merged and given back as if each entry had left by itself.
func TestTombstonesThinOutChunks(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(0)
	timers := s.fillPlaced(100*chunkSize, time.Minute)
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(timers), func(i, k int) { timers[i], timers[k] = timers[k], timers[i] })
	for len(timers) > chunkSize {
		s.stopAll(timers[:7])
		timers = timers[7:]
	}
	s.Stats()
	s.verify()
	require.LessOrEqual(t, chunksUsed(sh), 2*chunkSize/(mergeMax/2), "of two neighbours one is not sparse")
	s.to(time.Minute)
	require.Len(t, s.ran, len(timers))
}

// A chunk that tombstones empty in one go leaves two neighbours that were sparse for long.
func TestNeighboursOfAnEmptiedChunkMeet(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(math.MaxInt)
	timers := s.fillPlaced(3*chunkSize, time.Minute)
	first, second, third := timers[:chunkSize], timers[chunkSize:2*chunkSize], timers[2*chunkSize:]
	s.stopAll(first[10:])
	s.stopAll(third[10:])
	s.stopAll(second[tombstonesMax-1:])
	s.engine.defers(0)
	s.stopAll(second[:tombstonesMax-1])
	require.Equal(t, 3, chunksUsed(sh))
	s.Stats()
	s.verify()
	require.Equal(t, 1, chunksUsed(sh))
}

// What takes everything takes no tombstone.
func TestFlushWithTombstones(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	s.engine.defers(0)
	s.stopAll(s.fillPlaced(10, time.Minute)[:5])
	require.Equal(t, 5, tombstonesOf(sh))
	require.Equal(t, 5, s.Flush())
	require.Len(t, s.ran, 5)
	s.verify()
}

func TestRemoveAllWithTombstones(t *testing.T) {
	t.Parallel()
	w, err := NewTimeouts(Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	w.engine.defers(0)
	timers := make([]Timer, 10)
	for k := range timers {
		timers[k] = w.Add(time.Minute, k)
	}
	w.Stats() // places them
	stopAll(timers[:5])
	require.Equal(t, 5, tombstonesOf(&w.engine.shards[0].shard))
	require.Equal(t, []int{5, 6, 7, 8, 9}, w.RemoveAll())
	require.Zero(t, w.Len())
}

func TestNextNamesNoBucketOfTombstones(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	first := s.after(50*msec, "first")
	s.after(time.Hour, "second")
	before, _ := s.Next()
	s.engine.defers(0)
	require.True(t, first.Stop())
	require.Equal(t, 1, tombstonesOf(sh))
	next, ok := s.Next()
	require.True(t, ok)
	require.True(t, next.After(before), "%v", next)
}

func stopAll(timers []Timer) {
	for _, e := range timers {
		e.Stop()
	}
}
