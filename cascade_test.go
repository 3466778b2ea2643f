package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"
)

// A huge bucket of a coarse level, which began to move early, is put aside for those of finer levels that expire
// meanwhile: their timers are due, and its are not.
func TestFinerBucketsMoveFirst(t *testing.T) {
	t.Parallel()
	var c cascade
	require.False(t, c.any())
	for id, level := range []int32{2, 1, 15, 1, 2, 0} {
		c.push(&bucket{id: uint32(id), level: level, at: 10 - int64(level)})
	}
	var order []uint32
	for c.turn < fairTurn-2 {
		b := c.next()
		require.EqualValues(t, bucketCascading, b.state)
		order = append(order, b.id)
		c.remove(b)
		if b.id == 3 {
			c.push(&bucket{id: 6, level: 1})
		}
	}
	require.Equal(t, []uint32{5, 1, 3, 6, 0, 4}, order)
	require.True(t, c.any())
	c.remove(c.next())
	require.False(t, c.any())
}

// Where finer buckets never come to an end, a coarse one has every eighth turn, once it has expired before them.
func TestCoarseBucketHasItsTurn(t *testing.T) {
	t.Parallel()
	var c cascade
	coarse, early := &bucket{level: 3, at: 5}, &bucket{level: 2, at: 1000}
	c.push(coarse)
	c.push(early)
	turns := map[*bucket]int{}
	for at := range int64(80) {
		c.push(&bucket{at: 6 + at})
		b := c.next()
		turns[b]++
		if b.level == 0 {
			c.remove(b)
		}
	}
	require.Equal(t, 80/fairTurn, turns[coarse])
	require.Zero(t, turns[early], "it is not due yet")
}

// Callbacks that arm themselves again, more than their shard can bear, keep no timer of a coarser level from firing.
func TestOverloadStarvesNobody(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1, Executor: Inline})
	var off atomic.Bool
	defer off.Store(true)
	var again func()
	again = func() {
		for begin := time.Now(); time.Since(begin) < time.Microsecond; {
		}
		if !off.Load() {
			tw.AfterFunc(ms, again)
		}
	}
	fired := make(chan int, 1)
	tw.AfterFunc(300*ms, func() { fired <- 1 })
	for range 2000 {
		tw.AfterFunc(ms, again)
	}
	require.Equal(t, 1, receive(t, fired, "the timer of the second level"))
}

// Where callbacks block, workers are started several at once, one for each call that they will find, and one alone where most of what
// was claimed since the last time has ended, however many are blocked for long.
func TestSparesComeTogetherWhereCallbacksBlock(t *testing.T) {
	t.Parallel()
	var h spareCounter
	s := &shard{host: &h}
	s.batch = 1
	s.cascade.used = 1
	for i, step := range []struct{ claimed, stay, due, most, want int }{
		{1, 1, 1000, manySpares, 1}, {1, 1, 1000, manySpares, 2}, {2, 2, 1000, manySpares, 4}, {4, 2, 1000, manySpares, 8},
		{8, 8, 3, manySpares, 3}, {3, 3, 1000, manySpares, 32}, {32, 32, 1000, manySpares, 64}, {64, 64, 1000, manySpares, 128},
		{128, 128, 1000, manySpares, 128}, {128, 63, 1000, manySpares, 1}, {1, 1, 1000, manySpares, 2}, {2, 2, 1000, 1, 1},
		{0, 0, 1000, manySpares, 1}, {1, 1, 1000, manySpares, 2}, {5, -100, 1000, manySpares, 1}, {1, 1, 0, manySpares, 1},
	} {
		s.counters.fired += uint64(step.claimed)
		s.running += step.stay
		s.ready, s.spares, h.started = step.due, 0, 0
		s.startSpares(s.addSpares(step.most))
		require.Equal(t, step.want, s.spares, "step %d: %+v", i, step)
		require.Equal(t, step.want, h.started, "step %d: %+v", i, step)
		require.Zero(t, s.addSpares(step.most), "there are spares")
	}
}

// What blocks are whole batches of payloads: what is claimed is counted as what runs is.
func TestSparesComeTogetherWhereBatchesBlock(t *testing.T) {
	t.Parallel()
	var h spareCounter
	s := &shard{host: &h}
	s.batch = 256
	for i, step := range []struct{ claimed, stay, want int }{
		{256, 1, 1}, {256, 1, 2}, {512, 2, 4}, {900, 4, 8}, {2048, 3, 1}, {100, 1, 2}, {256, 0, 1},
	} {
		s.counters.fired += uint64(step.claimed)
		s.running += step.stay
		s.ready, s.spares, h.started = 100_000, 0, 0
		s.startSpares(s.addSpares(manySpares))
		require.Equal(t, step.want, s.spares, "step %d: %+v", i, step)
	}
}

// spareCounter is a host that starts nothing.
type spareCounter struct {
	host
	started int
}

func (h *spareCounter) spawn() { h.started++ }

// The fair turn is that of the bucket that has expired first, which need not be of the coarsest level.
func TestFairTurnIsThatOfTheFirstExpired(t *testing.T) {
	t.Parallel()
	var c cascade
	for l, at := range []int64{10, 5, 8} {
		c.push(&bucket{level: int32(l), at: at})
	}
	for range fairTurn - 1 {
		require.EqualValues(t, 0, c.next().level)
	}
	require.EqualValues(t, 1, c.next().level)
}
