package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sendTo makes each goroutine arm on shard i.
func sendTo(tw *TimingWheel, i uint32) {
	for k := range tw.engine.routes {
		tw.engine.routes[k].Store(i)
	}
}

// goingTo is the number of entries that lead to shard i. Which one is this goroutine's changes as
// its stack moves.
func goingTo(tw *TimingWheel, i uint32) (n int) {
	for k := range tw.engine.routes {
		if tw.engine.routes[k].Load() == i {
			n++
		}
	}
	return n
}

// A goroutine keeps to one shard until it meets another one there, and then to the next one.
func TestArmingMovesOnIfItsShardIsTaken(t *testing.T) {
	t.Parallel()
	const shards = 4
	tw := startWheel(t, Options{Shards: shards})
	for at := range uint32(shards) {
		sendTo(tw, at)
		s, next := tw.engine.shards[at], (at+1)%shards
		for range 1000 {
			require.Same(t, &s.shard, tw.AfterFunc(time.Hour, func() {}).shard())
		}
		require.Equal(t, len(tw.engine.routes), goingTo(tw, at))
		s.armMu.Lock()
		timer := tw.AfterFunc(time.Hour, func() {})
		s.armMu.Unlock()
		require.Same(t, &tw.engine.shards[next].shard, timer.shard())
		require.Equal(t, len(tw.engine.routes)-1, goingTo(tw, at))
		require.Equal(t, 1, goingTo(tw, next))
	}
}

// If all shards are taken a caller waits for one of them, and then arms its timer.
func TestArmingWaitsIfAllShardsAreTaken(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 3})
	for _, s := range tw.engine.shards {
		s.armMu.Lock()
	}
	armed := make(chan Timer)
	go func() { armed <- tw.AfterFunc(time.Hour, func() {}) }()
	for _, s := range tw.engine.shards {
		s.armMu.Unlock()
	}
	timer := receive(t, armed, "AfterFunc")
	require.True(t, timer.Stop())
}

// A driver or a worker that is preempted while it holds the wheel keeps no caller from its shard.
func TestArmingKeepsToItsShardWhileTheWheelIsHeld(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 4})
	sendTo(tw, 2)
	s := tw.engine.shards[2]
	s.wheelMu.Lock()
	for range 10 * inboxSize {
		require.Same(t, &s.shard, tw.AfterFunc(time.Hour, func() {}).shard())
	}
	s.unlockAndTend()
	require.Equal(t, len(tw.engine.routes), goingTo(tw, 2))
	require.Equal(t, 10*inboxSize, tw.Len())
	verified(t, &s.shard)
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
