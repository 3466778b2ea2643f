package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gauge counts what runs at the same time.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); {
		m = g.most.Load()
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// armSpread arms n timers on all shards in turn.
func armSpread(tw *TimingWheel, n int, d time.Duration, f func()) []Timer {
	timers := make([]Timer, n)
	for i := range timers {
		s := tw.engine.shards[i%len(tw.engine.shards)]
		timers[i] = armOn(s, s.config.Read()+int64(d), f)
	}
	return timers
}

func TestAtMostLimitCallbacksRunAtOnce(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		for _, n := range []int{1, 2, 7, 100} {
			t.Run(fmt.Sprintf("shards=%d,n=%d", shards, n), func(t *testing.T) {
				t.Parallel()
				tw := startWheel(t, Options{Shards: shards, Executor: Limit(n)})
				var g gauge
				gate := make(chan struct{})
				var ran atomic.Int32
				armSpread(tw, 20*n, ms, func() {
					g.enter()
					defer g.leave()
					<-gate
					ran.Add(1)
				})
				await(t, "the limit is reached", func() bool { return int(g.now.Load()) == n })
				await(t, "all are due", func() bool { return tw.Stats().Due == 19*n })
				assert.Equal(t, 19*n, tw.Len())
				verifyShards(t, tw.engine)
				close(gate)
				require.NoError(t, drainWheel(tw))
				assert.EqualValues(t, 20*n, ran.Load())
				assert.EqualValues(t, n, g.most.Load())
			})
		}
	}
}

// A batch of Timeouts counts as one callback.
func TestAtMostLimitBatchesRunAtOnce(t *testing.T) {
	t.Parallel()
	var g gauge
	var seen atomic.Int32
	gate := make(chan struct{})
	w := startTimeouts(t, Options{Shards: 2, Executor: Limit(3)}, func(batch []int) {
		g.enter()
		defer g.leave()
		<-gate
		seen.Add(int32(len(batch)))
	})
	const n = 20 * perCallMax
	for id := range n {
		armOn(w.engine.shards[id%2], w.engine.config.Read()+int64(ms), id)
	}
	await(t, "the limit is reached", func() bool { return g.now.Load() == 3 })
	await(t, "all others are due", func() bool { st := w.Stats(); return st.Due == st.Pending })
	assert.GreaterOrEqual(t, w.Len(), n-3*perCallMax)
	close(gate)
	await(t, "everything is claimed", drained(w))
	assert.EqualValues(t, n, seen.Load())
	assert.EqualValues(t, 3, g.most.Load())
}

// A due timer that waits for the limit is pending like any other.
func TestDueTimersAtTheLimitCanBeStoppedMovedAndFlushed(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		bubble(t, Options{Shards: shards, Executor: Limit(2)}, func(t *testing.T, tw *TimingWheel) {
			start := time.Now()
			gate := make(chan struct{})
			armSpread(tw, 2, ms, func() { <-gate })
			synctest.Wait()
			time.Sleep(2 * ms)
			synctest.Wait()
			require.Equal(t, 2, tw.Stats().Running)

			var at stopwatch
			at.start = start
			timers := armSpread(tw, 50, ms, at.note)
			time.Sleep(time.Second)
			synctest.Wait()
			st := tw.Stats()
			require.Equal(t, []int{50, 50, 2}, []int{st.Pending, st.Due, st.Running})
			require.Greater(t, st.Overdue, 900*ms)
			next, ok := tw.Next()
			require.True(t, ok)
			require.False(t, next.After(tw.Now()))

			requireAllStop(t, timers[:10])
			for _, e := range timers[10:20] {
				require.True(t, e.Reschedule(time.Minute))
			}
			for _, e := range timers[20:30] {
				require.True(t, e.Reschedule(time.Minute))
				require.True(t, e.Reschedule(0))
				_, ok := e.Deadline()
				require.True(t, ok)
			}
			require.Equal(t, 40, tw.Len())
			require.Equal(t, 40, tw.Flush())
			for _, e := range timers {
				require.False(t, e.Reschedule(time.Minute), "a flushed timer is claimed")
				require.False(t, e.Stop())
			}
			synctest.Wait()
			require.Zero(t, tw.Len())
			require.Equal(t, 40, tw.Stats().Due)
			require.Empty(t, at.noted())
			verifyShards(t, tw.engine)

			close(gate)
			synctest.Wait()
			require.Len(t, at.noted(), 40)
			require.Zero(t, tw.Stats().Due)
			verifyShards(t, tw.engine)
		})
	}
}

// With a limit of one and one shard, due timers run in order of ticks.
func TestLimitOfOneRunsDueTimersInOrderOfTicks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		bubble(t, Options{Shards: 1, Executor: Limit(1), WheelSize: 8, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
			tw.AfterFunc(ms, func() { time.Sleep(10 * time.Second) })
			var ran []time.Duration // ticks
			for range 1000 {
				d := 2*ms + rand.N(8*time.Second)
				tw.AfterFunc(d, func() {
					ran = append(ran, (d+ms-1)/ms)
					if rng.IntN(50) == 0 {
						time.Sleep(time.Second)
					}
				})
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Len(t, ran, 1000)
			require.True(t, slices.IsSorted(ran))
		})
	}
}

// While the limit is reached, timers still arrive, cascade and become due.
func TestWheelAdvancesWhileTheLimitIsReached(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 1, Executor: Limit(1), WheelSize: 8, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
		gate := make(chan struct{})
		tw.AfterFunc(0, func() { <-gate })
		var ran int
		const n = 5 * quantum
		for k := range n { // more than a driver handles in one go, so that it has to come back
			tw.AfterFunc(time.Duration(1+k%5)*time.Second, func() { ran++ })
		}
		for k := range 5 {
			time.Sleep(time.Second)
			synctest.Wait()
			time.Sleep(2 * ms)
			synctest.Wait()
			st := tw.Stats()
			require.Equal(t, []int{n, (k + 1) * quantum, 1}, []int{st.Pending, st.Due, st.Running})
			verifyShards(t, tw.engine)
		}
		close(gate)
		synctest.Wait()
		require.Equal(t, n, ran)
	})
}

// Shards take turns: a shard that always has due timers does not keep the only goroutine.
func TestShardsTakeTurnsAtALimitOfOne(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 4, Executor: Limit(1)})
	var end atomic.Bool
	var link func()
	link = func() {
		if !end.Load() {
			armOn(tw.engine.shards[0], 0, link)
		}
	}
	for range 100 {
		link()
	}
	for range scaled(100) {
		ran := make(chan struct{}, 3)
		for _, s := range tw.engine.shards[1:] {
			armOn(s, s.config.Read(), func() { ran <- struct{}{} })
		}
		for range 3 {
			receive(t, ran, "a callback of another shard")
		}
	}
	end.Store(true)
	require.NoError(t, drainWheel(tw))
}

// The wheel is stopped while due timers of all shards wait for the limit. No callback begins
// afterwards, Shutdown waits for the running ones, and no goroutine is left.
func TestStopWhileShardsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw, err := New(Options{Shards: 4, Executor: Limit(2)})
		require.NoError(t, err)
		var began atomic.Int32
		armSpread(tw, 100, ms, func() { began.Add(1); time.Sleep(time.Hour) })
		time.Sleep(time.Second)
		synctest.Wait()
		tw.Stop()
		require.Zero(t, tw.Len())
		require.EqualValues(t, 98, tw.Stats().Discarded)
		require.NoError(t, tw.Shutdown(t.Context()))
		require.EqualValues(t, 2, began.Load())
		synctest.Wait()
	})
}

// A million callbacks that block hold no more goroutines than the limit.
func TestMillionBlockedCallbacksHoldNoMoreGoroutinesThanTheLimit(t *testing.T) {
	const n = 100
	all := scaled(1_000_000)
	before := runtime.NumGoroutine()
	tw := startWheel(t, Options{Executor: Limit(n)})
	gate := make(chan struct{})
	var g gauge
	var ran atomic.Int32
	for range all {
		tw.AfterFunc(ms, func() {
			g.enter()
			<-gate
			g.leave()
			ran.Add(1)
		})
	}
	most := 0
	await(t, "all other timers are due", func() bool {
		most = max(most, runtime.NumGoroutine())
		return tw.Stats().Due == all-n
	})
	assert.EqualValues(t, n, g.now.Load())
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+n+5)
	// The spares of workers, and drivers, come and go.
	assert.LessOrEqual(t, most, before+2*n+4*len(tw.engine.shards)*runtime.GOMAXPROCS(0))
	t.Logf("%d goroutines at rest, at most %d seen, %d before", runtime.NumGoroutine(), most, before)
	close(gate)
	require.NoError(t, drainWheel(tw))
	assert.EqualValues(t, all, ran.Load())
	assert.EqualValues(t, n, g.most.Load())
	goroutinesReturnTo(t, before)
}

// Goroutines arm, stop, move and flush timers whose callbacks block until another goroutine
// releases them. Each released callback makes room for another one, so all callbacks run in the
// end.
func TestRaceBlockingTimersWithASmallLimit(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{
		{Shards: 1, Executor: limitOf(1)},
		{Shards: 1, Executor: limitOf(2), WheelSize: 2, Levels: 2, Tick: minTick},
		{Shards: 3, Executor: limitOf(2), WheelSize: 8, Levels: 3, Tick: 50 * time.Microsecond},
		{Shards: 4, Executor: limitOf(5)},
		{Shards: 2, Executor: limitOf(40), Tick: 100 * time.Microsecond},
	} {
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			opts.OnPanic = func(any, []byte) {}
			tw := startWheel(t, opts)
			l := newLedger()
			l.mayBeEarly = true
			var g gauge
			doors := make(chan chan struct{}, 100) // of callbacks that block
			opened := make(chan struct{})
			go func() {
				defer close(opened)
				for door := range doors {
					spin(rand.N(30 * time.Microsecond))
					close(door)
				}
			}()
			block := func() {
				door := make(chan struct{})
				doors <- door
				<-door
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					var own []*tracked
					for range max(scaled(3000), 300) {
						switch k := rand.IntN(8); {
						case k < 4:
							r := &tracked{}
							note := l.callback(r)
							kind := rand.IntN(8)
							r.timer = tw.AfterFunc(rand.N(2*ms), func() {
								g.enter()
								defer g.leave()
								note()
								switch kind {
								case 0, 1:
									block()
								case 2:
									panic("reported")
								case 3:
									runtime.Goexit()
								case 4:
									runtime.Gosched()
								}
							})
							own = append(own, l.add(r))
						case len(own) == 0:
						case k < 6:
							own[rand.IntN(len(own))].stop()
						case k == 6:
							l.reset(own[rand.IntN(len(own))], rand.N(2*ms))
						case rand.IntN(50) == 0:
							tw.Flush()
						}
					}
				})
			}
			concurrently(func() {
				verifyShards(t, tw.engine)
				tw.Len()
				time.Sleep(ms)
			}, all.Wait)
			l.requireNoneLostAndCounted(t, tw)
			close(doors)
			<-opened
			assert.LessOrEqual(t, int(g.most.Load()), int(opts.Executor.(limitOf)))
		})
	}
}
