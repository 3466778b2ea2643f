package timingwheel

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Callbacks that block hold up nobody of their lot, and soon there are no lots any more. What their slots took is
// free again while they still run.
func TestBlockedCallbackOfALotHoldsUpNobody(t *testing.T) {
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		const n = 10 * chunkSize
		release := make(chan struct{})
		for range n {
			tw.AfterFunc(time.Second, func() { <-release })
		}
		quick := false
		tw.AfterFunc(time.Second, func() { quick = true })
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, quick)
		s := tw.engine.shards[0]
		s.mu.Lock()
		assert.Equal(t, n, s.running)
		assert.Zero(t, s.pending)
		assert.Empty(t, s.lots)
		assert.LessOrEqual(t, s.lotSize, 2)
		assert.Zero(t, chunksUsed(&s.shard))
		s.mu.Unlock()
		verifyShards(t, tw.engine)
		close(release)
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// Callbacks of one lot that wait for each other all run.
func TestCallbacksOfALotMeet(t *testing.T) {
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		meet := make(chan int)
		var met atomic.Int32
		for i := range chunkSize {
			tw.AfterFunc(time.Second, func() {
				if i%2 == 0 {
					meet <- i
				} else {
					<-meet
					met.Add(1)
				}
			})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.EqualValues(t, chunkSize/2, met.Load())
	})
}

// Where no spare gets to begin, another worker takes over what a blocked one holds, when it has seen that nothing
// of it was claimed meanwhile.
func TestIdleLotIsTakenOver(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		release := make(chan struct{})
		var ran atomic.Int32
		for i := range chunkSize {
			tw.AfterFunc(time.Second, func() {
				if i == 0 {
					<-release
				}
				ran.Add(1)
			})
		}
		const others = (idleLooks + 1) * chunkSize
		for range others {
			tw.AfterFunc(2*time.Second, func() { ran.Add(1) })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, ran.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, others+chunkSize-1, ran.Load())
		verifyShards(t, tw.engine)
		close(release)
		synctest.Wait()
	})
}

// Chains of zero delays, enough of them for lots, must not keep the bucket open from which they are taken: what is due
// behind it would never run.
func TestZeroDelayChainsInLotsStarveNobody(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	var over atomic.Bool
	var chain func()
	chain = func() {
		if !over.Load() {
			tw.AfterFunc(0, chain)
		}
	}
	for range 4 * chunkSize { // more than the workers hold at any time
		tw.AfterFunc(0, chain)
	}
	ran := make(chan struct{})
	tw.AfterFunc(20*time.Millisecond, func() { close(ran) })
	receive(t, ran, "a timer beside the chains")
	over.Store(true)
}

// A worker that comes for another lot recalls those of which nothing was claimed since somebody last looked.
func TestIdleLotIsRecalled(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Executor: &held{}})
	s := &tw.engine.shards[0].shard
	for range 3 * chunkSize {
		tw.AfterFunc(0, func() {})
	}
	tw.Advance(tw.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	busy, idle := &lot{}, &lot{}
	s.lotSize = 8
	require.Equal(t, 8, s.fillLot(busy, s.lotSize))
	require.Equal(t, 8, s.fillLot(idle, s.lotSize))
	require.Equal(t, 3*chunkSize-16, s.ready)
	_, f := idle.claim()
	require.NotNil(t, f)
	look := func(times int) {
		for range times {
			busy.claim()
			s.recallIdleLots()
		}
	}
	look(idleLooks) // no progress is seen from the second look on
	require.Len(t, s.lots, 2)
	look(1)
	require.Equal(t, []*lot{busy}, s.lots)
	_, f = idle.claim()
	require.Nil(t, f)
	require.Equal(t, 4, s.lotSize)
	require.Equal(t, 3*chunkSize-9, s.ready)
	require.NoError(t, s.verify())
	look(idleLooks) // busy is used up, and its worker is in a callback
	require.Empty(t, s.lots)
	require.Equal(t, 4, s.lotSize, "nothing was left of it")
	s.returnLot(busy)
	require.Equal(t, 3*chunkSize-9, s.ready)
	require.Equal(t, 3*chunkSize-9, s.pending)
	require.NoError(t, s.verify())
}

// What is recalled goes first, as it has been due for longest, and buckets do not pile up, although a worker leaves
// every lot.
func TestRecalledTimersGoFirst(t *testing.T) {
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		const n = 20000
		var ran, most atomic.Int64
		s := tw.engine.shards[0]
		for i := range n {
			tw.AfterFunc(time.Second, func() {
				ran.Add(1)
				if i%100 == 0 {
					s.mu.Lock()
					most.Store(max(most.Load(), int64(len(s.all)-len(s.spare))))
					s.mu.Unlock()
				}
				if i%2 == 0 {
					runtime.Goexit()
				}
			})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.EqualValues(t, n, ran.Load())
		assert.Less(t, most.Load(), int64(300))
		assert.Less(t, len(s.all), 300)
	})
}

// Lots whose last callback takes its time do not pile up, even where no spare gets to begin.
func TestUsedUpLotsDoNotPileUp(t *testing.T) {
	alone(t, func(t *testing.T, tw *TimingWheel) {
		release := make(chan struct{})
		for k := range 500 {
			for j := range 2 {
				tw.AfterFunc(time.Duration(k+1)*time.Second, func() {
					if j == 1 {
						<-release
					}
				})
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s := tw.engine.shards[0]
		s.mu.Lock()
		assert.LessOrEqual(t, len(s.lots), idleLooks+1)
		s.mu.Unlock()
		close(release)
		synctest.Wait()
		s.mu.Lock()
		assert.Zero(t, chunksUsed(&s.shard))
		s.mu.Unlock()
	})
}

// A worker that blocks in a single callback has given its lot away.
func TestBlockedWorkerHoldsNoLot(t *testing.T) {
	lotBubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		release := make(chan struct{})
		for range 200 {
			tw.AfterFunc(time.Second, func() {})
			tw.AfterFunc(time.Second, func() { tw.AfterFunc(0, func() { <-release }) })
			time.Sleep(time.Second)
			synctest.Wait()
		}
		s.mu.Lock()
		assert.Zero(t, s.pending)
		assert.Zero(t, chunksUsed(&s.shard))
		assert.Less(t, len(s.all), 50)
		s.mu.Unlock()
		close(release)
	})
}

// A chain of flushes must not run ahead of what was due before.
func TestChainOfFlushesStarvesNobody(t *testing.T) {
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			lotBubble(t, Options{Executor: executor}, func(t *testing.T, tw *TimingWheel) {
				var links, others, before atomic.Int32
				var chain func()
				chain = func() {
					if links.Add(1) < 1000 {
						tw.AfterFunc(time.Hour, chain)
						tw.Flush()
					}
				}
				tw.AfterFunc(time.Second, chain)
				for range 10 {
					tw.AfterFunc(time.Second, func() {
						if others.Add(1) == 10 {
							before.Store(links.Load())
						}
					})
				}
				time.Sleep(time.Second)
				synctest.Wait()
				assert.EqualValues(t, 1000, links.Load())
				assert.EqualValues(t, 10, others.Load())
				assert.Less(t, before.Load(), int32(900))
			})
		})
	}
}
