package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sendTo makes every goroutine arm on shard i.
func sendTo(tw *TimingWheel, i uint32) {
	for k := range tw.engine.routes {
		tw.engine.routes[k].Store(i)
	}
}

// goingTo is the number of entries that lead to shard i. Which one is this goroutine's changes as its stack moves.
func goingTo(tw *TimingWheel, i uint32) (n int) {
	for k := range tw.engine.routes {
		if tw.engine.routes[k].Load() == i {
			n++
		}
	}
	return n
}

// A goroutine keeps to one shard until it meets somebody there, and then to the next one.
func TestArmingMovesOnWhereItMeetsSomebody(t *testing.T) {
	t.Parallel()
	const shards = 4
	tw := startWheel(t, Options{Shards: shards})
	for at := range uint32(shards) {
		sendTo(tw, at)
		s, next := tw.engine.shards[at], (at+1)%shards
		for range 1000 {
			require.Same(t, &s.shard, tw.AfterFunc(time.Hour, func() {}).shard)
		}
		require.Equal(t, len(tw.engine.routes), goingTo(tw, at))
		s.mu.Lock()
		timer := tw.AfterFunc(time.Hour, func() {})
		s.mu.Unlock()
		require.Same(t, &tw.engine.shards[next].shard, timer.shard)
		require.Equal(t, len(tw.engine.routes)-1, goingTo(tw, at))
		require.Equal(t, 1, goingTo(tw, next))
	}
}

// It leaves a shard for which those wait who stop and reset.
func TestArmingLeavesACrowdedShard(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 2})
	sendTo(tw, 1)
	s := tw.engine.shards[1]
	timer := tw.AfterFunc(time.Hour, func() {})
	for range crowd {
		s.mu.Lock()
		waited := make(chan bool)
		go func() { waited <- timer.Reschedule(time.Hour) }()
		await(t, "Reschedule waits for the lock", func() bool { return s.waiting.Load() > 0 })
		s.mu.Unlock()
		require.True(t, <-waited)
	}
	require.Equal(t, crowd, s.crowded)
	require.Same(t, &s.shard, tw.AfterFunc(time.Hour, func() {}).shard)
	require.Equal(t, 1, goingTo(tw, 0))
	require.Zero(t, s.crowded)
}

func TestRoutesReachEveryShard(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{2, 3, 64, maxShards} {
		found := map[uint32]bool{}
		r := newRoutes(shards)
		for i := range r {
			found[r[i].Load()] = true
		}
		require.Len(t, found, shards)
	}
}
