package timingwheel

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Each timer that was armed is pending, or is counted once by how it has ended.
func TestStatsAddUp(t *testing.T) {
	t.Parallel()
	for _, executor := range []Executor{nil, Inline, Goroutines} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			tw := startWheel(t, Options{Executor: executor, Shards: 3})
			var timers []Timer
			check := func() Stats {
				st := tw.Stats()
				require.EqualValues(t, st.Armed, st.Fired+st.Stopped+st.Discarded+uint64(st.Pending))
				require.LessOrEqual(t, st.Due, st.Pending)
				return st
			}
			for step := range 2000 {
				switch n := len(timers); {
				case n == 0 || rng.IntN(3) == 0:
					timers = append(timers, tw.AfterFunc(time.Duration(rng.IntN(2000))*msec, func() { time.Sleep(msec) }))
				case rng.IntN(2) == 0:
					timers[rng.IntN(n)].Stop()
				default:
					timers[rng.IntN(n)].Reschedule(time.Duration(rng.IntN(2000)) * msec)
				}
				if step == 1000 {
					n := tw.Flush()
					require.EqualValues(t, n, check().Flushed)
				}
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(5)) * msec)
				}
				check()
			}
			before := check()
			require.Positive(t, before.Pending)
			require.Zero(t, before.Discarded)
			tw.Stop()
			tw.Stop()
			after := check()
			require.EqualValues(t, before.Pending, after.Discarded)
			require.Zero(t, after.Pending)
			require.Zero(t, after.Rejected)
			tw.AfterFunc(0, func() {})
			tw.ScheduleFunc(Every(time.Second), func() {})
			st := tw.Stats()
			require.EqualValues(t, 2, st.Rejected)
			require.Equal(t, after.Armed, st.Armed)
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// What has expired and finds nobody to claim it is seen: how many that are and for how long.
func TestStatsOfAStuckWheel(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]func() (Executor, func()){
		"Inline": func() (Executor, func()) { return Inline, func() {} },
		"an executor that runs nothing": func() (Executor, func()) {
			h := &held{}
			return h, func() { h.release() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				executor, run := stuck()
				tw := startWheel(t, Options{Executor: executor, Shards: 1})
				release := make(chan struct{})
				if executor == Inline {
					tw.AfterFunc(0, func() { <-release })
				}
				synctest.Wait()
				require.Zero(t, tw.Stats().Overdue)
				for i := range 10 {
					tw.AfterFunc(time.Duration(i+1)*time.Second, func() {})
				}
				last := tw.AfterFunc(time.Minute, func() {})
				time.Sleep(time.Hour)
				synctest.Wait()
				st := tw.Stats()
				require.Equal(t, time.Hour-time.Second, st.Overdue)
				require.Equal(t, 11, st.Pending)
				if executor != Inline { // there the driver itself is stuck, before it could take them off
					require.Equal(t, 11, st.Due)
				}
				require.True(t, last.Reschedule(24*time.Hour))
				close(release)
				run()
				synctest.Wait()
				st = tw.Stats()
				require.Zero(t, st.Overdue)
				require.Zero(t, st.Due)
				require.Equal(t, 1, st.Pending)
				require.Positive(t, st.MostDue)
			})
		})
	}
}

// With the default executor what blocks makes nothing overdue, and each callback that blocks has
// its worker.
func TestStatsOfBlockedCallbacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{Shards: 1})
		release := make(chan struct{})
		at := time.Now().Add(time.Second)
		for range 50 {
			tw.AtFunc(at, func() { <-release })
		}
		require.Zero(t, tw.Stats().Workers)
		time.Sleep(time.Minute)
		synctest.Wait()
		st := tw.Stats()
		require.Equal(t, 50, st.Running)
		require.GreaterOrEqual(t, st.Workers, 50)
		require.Zero(t, st.Due)
		require.Zero(t, st.Overdue)
		require.GreaterOrEqual(t, st.MostDue, 16)
		require.LessOrEqual(t, st.MostDue, 50)
		close(release)
		synctest.Wait()
		st = tw.Stats()
		require.Zero(t, st.Workers)
		require.Zero(t, st.Running)
	})
}

// In Manual mode what an unwound Advance has left is due; what waits for the next one is not.
func TestStatsOfManualMode(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Start: modelStart, Name: "w", Tick: 5 * msec})
	tw.AfterFunc(time.Second, func() { panic("over") })
	tw.AfterFunc(time.Second, func() {})
	tw.AfterFunc(2*time.Second, func() {})
	require.Panics(t, func() { tw.Advance(modelStart.Add(5 * time.Second)) })
	tw.AfterFunc(0, func() {})
	st := tw.Stats()
	require.Equal(t, 2, st.Due)
	require.Equal(t, 4*time.Second, st.Overdue)
	require.Equal(t, 3, st.Pending)
	require.Equal(t, 3, st.MostDue)
	require.Zero(t, st.Panics, "nobody was told")
	require.Equal(t, "w", st.Name)
	require.Equal(t, 5*msec, st.Tick)
	require.Equal(t, 1, st.Shards)
	require.Equal(t, 3, tw.Advance(modelStart.Add(5*time.Second)))
	require.Zero(t, tw.Stats().Overdue)
}

// A timer whose tick has not come is not overdue, however coarse the tick.
func TestOverdueBeginsWithTheTick(t *testing.T) {
	t.Parallel()
	opts := Options{Tick: time.Minute, Shards: 1}
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, opts)
		tw.AfterFunc(10*time.Second, func() {})
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, tw.Stats().Pending)
		require.Zero(t, tw.Stats().Overdue)
	})
	synctest.Test(t, func(t *testing.T) {
		opts.Executor = &held{}
		tw := startWheel(t, opts)
		tw.AfterFunc(10*time.Second, func() {})
		time.Sleep(time.Minute + 50*time.Second)
		synctest.Wait()
		require.Equal(t, 50*time.Second, tw.Stats().Overdue, "since its tick")
	})
	opts.Executor, opts.Manual, opts.Start = nil, true, modelStart
	tw := startWheel(t, opts)
	tw.AfterFunc(10*time.Second, func() {})
	require.Zero(t, tw.Advance(modelStart.Add(50*time.Second)))
	require.Zero(t, tw.Stats().Overdue)
}

// What waits behind a bucket that all its timers have left is found.
func TestOverdueBehindStoppedTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{Executor: Inline, Shards: 1})
		release := make(chan struct{})
		defer close(release)
		tw.AfterFunc(0, func() { <-release })
		synctest.Wait()
		first := tw.AfterFunc(time.Second, func() {})
		tw.AfterFunc(2*time.Second, func() {})
		time.Sleep(time.Minute)
		require.True(t, first.Stop())
		require.Equal(t, 58*time.Second, tw.Stats().Overdue)
	})
}
