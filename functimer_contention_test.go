package timingwheel

import (
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

// contended calls f while the locks of the first shard are held, as if its owner were preempted. f
// must not wait for them.
func contended(t *testing.T, tw *TimingWheel, f func()) {
	t.Helper()
	s := tw.engine.shards[0]
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	s.armMu.Lock()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(hangTimeout):
		s.armMu.Unlock()
		require.FailNow(t, "the call waits for armMu")
	}
	s.armMu.Unlock()
}

// shardOfTimer returns the shard on which a FuncTimer was armed last.
func shardOfTimer(ft *FuncTimer) *shard { return ft.ref.Load().shard }

// An owner that is preempted while it holds armMu delays no call (G15), and results are exact. A
// Reset to a later deadline, a Touch and a Stop need no lock. Other Resets arm on another shard.
func TestFuncTimersDoNotWaitForArmMu(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 2}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := new(FuncTimer)
		ft.InitStopped(tw, watch.note)
		want := Stats{}
		step := func(name string, shard int, calls func()) {
			t.Helper()
			sendTo(tw, 0)
			contended(t, tw, calls)
			assert.Same(t, &tw.engine.shards[shard].shard, shardOfTimer(ft), name)
			synctest.Wait()
			st := tw.Stats()
			got := Stats{Armed: st.Armed, Fired: st.Fired, Stopped: st.Stopped, Postponed: st.Postponed, Pending: st.Pending}
			assert.Equal(t, want, got, name)
			assert.Equal(t, want.Pending, tw.Len(), name)
			verifyShards(t, tw.engine)
		}
		armOnFirst := func() {
			sendTo(tw, 0)
			assert.False(t, ft.Reset(time.Hour))
			want.Armed++
			want.Pending++
		}
		stop := func() {
			assert.True(t, ft.Stop())
			assert.False(t, ft.Stop())
			want.Stopped++
			want.Pending--
		}
		for _, place := range []func(){func() {}, tw.engine.shards[0].placeAll} { // in the inbox, on the wheel
			armOnFirst()
			place()
			step("Touch", 0, func() { assert.True(t, ft.Touch()) })
			step("Reset, later", 0, func() { assert.True(t, ft.Reset(2*time.Hour)) })
			want.Postponed++
			step("Reset, earlier", 1, func() { assert.True(t, ft.Reset(10*ms)) })
			pass(9 * ms)
			assert.Equal(t, want.Fired, uint64(len(watch.noted())))
			pass(ms)
			want.Fired++
			want.Pending--
			assert.Equal(t, want.Fired, uint64(len(watch.noted())), "not at the old deadline")
			step("Stop after the call", 1, func() { assert.False(t, ft.Stop()) })
			want.Armed++
			want.Pending++
			step("Reset after the call", 1, func() { assert.False(t, ft.Reset(time.Hour)) })
			step("Stop on the other shard", 1, stop)
			armOnFirst()
			place()
			step("Stop", 0, stop)
			want.Armed++
			want.Pending++
			step("Reset after Stop", 1, func() { assert.False(t, ft.Reset(time.Hour)) })
			stop()
		}
		pass(3 * time.Hour)
		assert.Len(t, watch.noted(), 2)
	})
}

// Reset, Stop and Touch race with each other, with the expiry, with Flush and with a goroutine that
// holds armMu much of the time. Each arming ends in one call or in one Stop.
func TestRaceFuncTimersAreExactWhileArmMuIsHeld(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		opts.Shards = max(opts.Shards, 2)
		tw := startWheel(t, opts)
		const timers = 4
		var fts [timers]FuncTimer
		var armed, called, stopped [timers]atomic.Int64
		for k := range fts {
			fts[k].InitStopped(tw, func() { called[k].Add(1) })
		}
		var all sync.WaitGroup
		for g := range 3 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				for range scaled(3_000) {
					k := rng.IntN(timers)
					switch rng.IntN(5) {
					case 0, 1:
						if !fts[k].Reset(time.Duration(rng.IntN(4)) * opts.Tick) {
							armed[k].Add(1)
						}
					case 2:
						if fts[k].Stop() {
							stopped[k].Add(1)
						}
					case 3:
						fts[k].Touch()
					default:
						runtime.Gosched()
					}
				}
			})
		}
		rounds := 0
		concurrently(func() {
			holdArmMu(tw)
			if n := tw.Len(); n < 0 || n > timers+3 { // an arming that is under way may count
				t.Errorf("Len: %d", n)
			}
			if rounds++; rounds%64 == 0 {
				tw.Flush()
			}
		}, all.Wait)
		require.NoError(t, drainWheel(tw), optionName(opts))
		var a, c, st uint64
		for k := range fts {
			assert.Equal(t, armed[k].Load(), called[k].Load()+stopped[k].Load(), "%s: timer %d", optionName(opts), k)
			a, c, st = a+uint64(armed[k].Load()), c+uint64(called[k].Load()), st+uint64(stopped[k].Load())
		}
		stats := tw.Stats()
		assert.Equal(t, a, stats.Armed, "armed")
		assert.Equal(t, c, stats.Fired, "fired")
		assert.Equal(t, st, stats.Stopped, "stopped")
		verifyShards(t, tw.engine)
	}
}

// holdArmMu holds armMu for some time, as a preempted goroutine would.
func holdArmMu(tw *TimingWheel) {
	s := tw.engine.shards[0]
	s.armMu.Lock()
	spin(2 * time.Microsecond)
	s.armMu.Unlock()
	runtime.Gosched()
}

// No call is early or missing while armMu is held much of the time. Each goroutine resets one timer
// twice, and the results show which calls must come.
func TestRaceResetsAreNeverEarlyWhileArmMuIsHeld(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		opts.Shards = max(opts.Shards, 2)
		tw := startWheel(t, opts)
		var all sync.WaitGroup
		for g := range 3 {
			all.Go(func() {
				start := time.Now()
				calls := make(chan time.Duration, 2)
				var ft FuncTimer
				ft.InitStopped(tw, func() { calls <- time.Since(start) })
				rng := rand.New(rand.NewPCG(uint64(g), 8))
				for range scaled(300) {
					var promised []time.Duration
					for range 2 {
						d := time.Duration(rng.IntN(5)) * opts.Tick
						at := time.Since(start) + d
						if ft.Reset(d) {
							promised = promised[:len(promised)-1]
						}
						promised = append(promised, at)
						if rng.IntN(3) == 0 {
							spin(opts.Tick)
						}
					}
					var ran []time.Duration
					for range promised {
						ran = append(ran, receive(t, calls, "a call"))
					}
					slices.Sort(ran)
					slices.Sort(promised)
					for k := range ran {
						if ran[k] < promised[k] {
							t.Errorf("%s: early by %v", optionName(opts), promised[k]-ran[k])
						}
					}
				}
			})
		}
		concurrently(func() { holdArmMu(tw) }, all.Wait)
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	}
}

// The wheel is stopped while Resets move timers between its shards. Each arming has been fired,
// stopped or discarded.
func TestRaceFuncTimersThatChangeTheirShardAreCountedWhenTheWheelStops(t *testing.T) {
	t.Parallel()
	for range scaled(300) {
		tw := startWheel(t, Options{Tick: minTick, Shards: 2})
		var armed, called, stopped atomic.Int64
		var fts [8]FuncTimer
		for k := range fts {
			fts[k].InitStopped(tw, func() { called.Add(1) })
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for n := range 100 {
					ft := &fts[n%len(fts)]
					if !ft.Reset(time.Duration(n%5) * time.Microsecond) {
						armed.Add(1) // or the wheel was stopped
					}
					if n%3 == 0 && ft.Stop() {
						stopped.Add(1)
					}
				}
			})
		}
		all.Go(func() {
			for !tw.engine.shards[0].closed.Load() {
				holdArmMu(tw)
			}
		})
		spin(time.Duration(rand.IntN(200)) * time.Microsecond)
		tw.Stop()
		all.Wait()
		require.NoError(t, tw.Shutdown(t.Context()))
		st := tw.Stats()
		assert.Equal(t, st.Armed, st.Fired+st.Stopped+st.Discarded)
		assert.EqualValues(t, armed.Load(), st.Armed+st.Rejected)
		assert.EqualValues(t, called.Load(), st.Fired)
		assert.EqualValues(t, stopped.Load(), st.Stopped)
	}
}
