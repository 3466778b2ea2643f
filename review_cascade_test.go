package timingwheel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A large bucket of a coarse level takes long to move. It does not delay the buckets of finer
// levels that expire meanwhile.
func TestLargeCoarseBucketDelaysNoFinerOne(t *testing.T) {
	t.Parallel()
	const size, heavy = 16, 100 * quantum
	const first = size * size * size // the beginning of the large bucket, which is one of level 3
	w, err := NewTimeouts(Options{Tick: ms, WheelSize: size, Levels: 4, Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	for range heavy {
		w.Add((first+2*size*size)*ms, 0)
	}
	require.Zero(t, w.Advance(modelStart))
	require.Zero(t, w.Advance(w.Now().Add((first-size*size/2)*ms)))
	w.Add((size*size/2+2*size)*ms, 1) // of tick first + 2*size

	s := w.engine.shards[0]
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	s.drainAll()
	o := &s.owner
	o.tick = first
	require.False(t, o.expire(), "the large bucket has begun to move")
	o.tick = first + 2*size // some ticks later
	quanta := 0
	for ; len(o.expired) == 0; quanta++ {
		o.expire()
	}
	require.Less(t, quanta, heavy/quantum/4, "quanta by which the timer is late")
}
