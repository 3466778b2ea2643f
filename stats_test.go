package timingwheel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/figures"
)

func TestHistogramBoundsGrowByAtMostAQuarter(t *testing.T) {
	t.Parallel()
	var h Histogram
	last := len(h.Counts) - 1
	require.Equal(t, 256*time.Nanosecond, h.Bound(0))
	require.Equal(t, time.Duration(math.MaxInt64), h.Bound(last))
	require.Greater(t, h.Bound(last-1), 36*time.Hour)
	for i := 1; i < last; i++ {
		lower, upper := h.Bound(i-1), h.Bound(i)
		if upper <= lower || upper-lower > lower/4 {
			t.Fatalf("bucket %d is from %d to %d", i, lower, upper)
		}
	}
	require.Panics(t, func() { h.Bound(-1) })
	require.Panics(t, func() { h.Bound(last + 1) })
}

// A duration is counted in the bucket whose bounds enclose it.
func TestHistogramCountsInTheRightBucket(t *testing.T) {
	t.Parallel()
	check := func(d time.Duration) {
		var h Histogram
		h.Record(d)
		i := slices.Index(h.Counts[:], 1)
		if low := d < 0 || i > 0 && d < h.Bound(i-1); low || d >= h.Bound(i) && d != math.MaxInt64 {
			t.Fatalf("%d is in bucket %d, which ends at %d", d, i, h.Bound(i))
		}
	}
	var h Histogram
	for i := range h.Counts {
		check(h.Bound(i) - 1)
		check(h.Bound(i))
		if i < len(h.Counts)-1 {
			check(h.Bound(i) + 1)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		check(time.Duration(rng.Int64() >> rng.IntN(63)))
	}
}

func TestEmptyHistogramReturnsZero(t *testing.T) {
	t.Parallel()
	var h Histogram
	require.Zero(t, h.Count())
	require.Zero(t, h.Quantile(0.5))
	h.Record(-time.Second)
	require.Equal(t, Histogram{Counts: [histogramBuckets]uint64{1}}, h, "a negative duration must count as 0")
}

// A quantile is not below the exact one, at most a quarter above it, and not above the maximum.
func TestHistogramQuantileIsAtMostAQuarterTooHigh(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		all := make([]time.Duration, 1+rng.IntN(2000))
		var h Histogram
		var sum time.Duration
		for i := range all {
			all[i] = time.Duration(rng.Int64N(1 << (8 + rng.IntN(38))))
			h.Record(all[i])
			sum += all[i]
		}
		slices.Sort(all)
		n := len(all)
		require.EqualValues(t, n, h.Count())
		require.Equal(t, all[n-1], h.Max)
		require.Equal(t, sum, h.Sum)
		for _, q := range []float64{-1, 0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1, 2} {
			rank := int(math.Ceil(min(max(q, 0), 1) * float64(n)))
			want := all[max(rank, 1)-1]
			got := h.Quantile(q)
			if got < want || got > max(want+want/4, 256) || got > h.Max {
				t.Fatalf("seed %d: %v-quantile %v, exactly %v, max %v", seed, q, got, want, h.Max)
			}
		}
		require.Equal(t, h.Max, h.Quantile(1))
	}
}

// The clock of a simulation may jump over centuries.
func TestSumOfAHistogramSaturates(t *testing.T) {
	t.Parallel()
	var h Histogram
	h.Record(time.Second)
	h.Record(math.MaxInt64)
	require.Equal(t, time.Duration(math.MaxInt64), h.Sum)
}

// The model compares the other counters.
func TestStatsCountMovesBucketsAndLevels(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{Tick: ms, WheelSize: 4, Levels: 3}, 0)
	require.Zero(t, s.Stats().Levels, "levels must be made when needed")
	s.after(ms, "a")
	b := s.after(time.Hour, "b")
	s.after(20*ms, "c")
	require.True(t, b.Reschedule(3*ms))
	st := s.Stats()
	require.Equal(t, 2, st.Levels, "the middle level is not in use")
	require.Equal(t, 3, st.Buckets, "buckets of ticks 1, 3 and 16")
	require.True(t, b.Stop())
	require.Equal(t, 2, s.Stats().Buckets, "an empty bucket must not count")
	require.Equal(t, "a c", s.to(20*ms))
	require.EqualValues(t, 1, s.Stats().Moved, "from the bucket of tick 16; it is due then")
}

// Over several shards, counters are sums, and Levels is the number of the shard with the most
// levels.
func TestStatsAddUpOverShards(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{Shards: 3, WheelSize: 4, Levels: 3}, 0)
	for k, sh := range s.TimingWheel.engine.shards {
		for range k + 1 {
			armOn(sh, int64(time.Duration(1<<(2*k))*ms), func() {})
		}
	}
	st := s.Stats()
	require.Equal(t, 1+2+3, st.Pending)
	require.Equal(t, 3, st.Buckets)
	require.Equal(t, 1, st.Levels, "each shard has one level in use")
	require.Equal(t, 6, s.Advance(modelStart.Add(time.Minute)))
	st = s.Stats()
	require.EqualValues(t, 6, st.Fired)
	require.EqualValues(t, 6, st.Lateness.Count())
	require.Equal(t, time.Minute-ms, st.Lateness.Max)
}

// In Manual mode and with Timeouts the lateness of each timer is measured, from its deadline
// rounded up to a tick.
func TestLatenessCountsEachTimer(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	w, err := NewTimeouts(Options{Manual: true, Start: modelStart}, func([]int) {})
	require.NoError(t, err)
	for i := range 40 {
		s.after(ms/2, "")
		w.Add(ms/2, i)
	}
	s.to(2 * ms)
	w.Advance(modelStart.Add(2 * ms))
	for _, h := range []Histogram{s.Stats().Lateness, w.Stats().Lateness} {
		require.EqualValues(t, 40, h.Count())
		require.Equal(t, ms, h.Max)
		require.Equal(t, ms*time.Duration(h.Count()), h.Sum)
		require.Equal(t, ms, h.Quantile(0.5))
	}
	s = newRecordingWheel(t, Options{}, 0)
	s.after(0, "on time")
	s.to(0)
	require.EqualValues(t, 1, s.Stats().Lateness.Count())
	require.Zero(t, s.Stats().Lateness.Max)
}

// The alarm wakes a driver once for each bucket that expires, and for nothing else: not while the
// wheel is idle and not for rounds.
func TestWheelWakesOncePerExpiringBucket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   Options
		delays []time.Duration
		most   uint64
	}{
		"one timer":           {Options{}, []time.Duration{5 * ms}, 1},
		"one tick":            {Options{}, []time.Duration{5 * ms, 5 * ms, 5*ms - 1}, 1},
		"three ticks":         {Options{}, []time.Duration{5 * ms, 7 * ms, 9 * ms}, 3},
		"rounds":              {Options{WheelSize: 2, Levels: 1}, []time.Duration{1001 * ms}, 1},
		"one for each level":  {Options{WheelSize: 2, Levels: 10}, []time.Duration{1023 * ms}, 10},
		"earlier, one by one": {Options{}, []time.Duration{9 * ms, 8 * ms, 7 * ms, 2 * ms}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.opts, func(t *testing.T, tw *TimingWheel) {
				for _, d := range c.delays {
					tw.AfterFunc(d, func() {})
				}
				time.Sleep(30 * day)
				st := tw.Stats()
				require.EqualValues(t, len(c.delays), st.Fired)
				require.LessOrEqual(t, st.Wakeups, c.most)
				require.Positive(t, st.Wakeups)
			})
		})
	}
}

func TestStringTellsNamePendingAndLevels(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Name: "sessions", Manual: true})
	assert.Equal(t, `TimingWheel "sessions": 0 pending, 0 levels`, tw.String())
	tw.AfterFunc(ms, boom)
	tw.AfterFunc(time.Minute, boom)
	assert.Equal(t, `TimingWheel "sessions": 2 pending, 2 levels`, fmt.Sprint(tw))
	tw.Stop()
	assert.Equal(t, `TimingWheel "sessions": 0 pending, 0 levels`, tw.String())
	w, err := NewTimeouts(Options{}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	w.Add(time.Hour, 1)
	assert.Equal(t, "Timeouts: 1 pending, 1 level", w.String())
}

// Each timer that was armed is pending, or is counted once by the way in which it has ended.
func TestStatsCountEachTimerOnce(t *testing.T) {
	t.Parallel()
	for _, executor := range []Executor{nil, Inline, Goroutines} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			tw := startWheel(t, Options{Executor: executor, Shards: 3})
			var timers []Timer
			check := func() Stats {
				st := tw.Stats()
				flushed := int(st.Armed-st.Fired-st.Stopped-st.Discarded) - st.Pending // and not begun
				require.GreaterOrEqual(t, flushed, 0)
				require.LessOrEqual(t, flushed, min(st.Due, int(st.Flushed)))
				require.LessOrEqual(t, st.Due, st.Pending+flushed)
				return st
			}
			for step := range 2000 {
				switch n := len(timers); {
				case n == 0 || rng.IntN(3) == 0:
					timers = append(timers, tw.AfterFunc(time.Duration(rng.IntN(2000))*ms, func() { time.Sleep(ms) }))
				case rng.IntN(2) == 0:
					timers[rng.IntN(n)].Stop()
				default:
					timers[rng.IntN(n)].Reschedule(time.Duration(rng.IntN(2000)) * ms)
				}
				if step == 1000 {
					n := tw.Flush()
					require.EqualValues(t, n, check().Flushed)
				}
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(5)) * ms)
				}
				check()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			before := check()
			require.Equal(t, before.Armed, before.Fired+before.Stopped+uint64(before.Pending))
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

// The sums agree in each snapshot while another goroutine arms and stops timers.
func TestRaceStatsCountEachTimerOnce(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	concurrently(func() { tw.AfterFunc(time.Hour, boom).Stop() }, func() {
		for range scaled(20_000) {
			st := tw.Stats()
			require.Equal(t, st.Armed, st.Fired+st.Stopped+st.Discarded+uint64(st.Pending))
		}
	})
}

// Due and Overdue show how many expired timers wait for a worker, and for how long.
func TestStatsShowTimersThatWaitForAWorker(t *testing.T) {
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
				first := tw.AfterFunc(time.Second, func() {})
				for i := range 10 {
					tw.AfterFunc(time.Duration(i+2)*time.Second, func() {})
				}
				last := tw.AfterFunc(time.Minute, func() {})
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, time.Hour-time.Second, tw.Stats().Overdue)
				require.True(t, first.Stop())
				st := tw.Stats()
				require.Equal(t, time.Hour-2*time.Second, st.Overdue, "the first bucket has no timer")
				require.Equal(t, 11, st.Pending)
				if executor != Inline { // with Inline the driver is blocked and cannot collect the timers
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
			})
		})
	}
}

// In Manual mode a panic leaves timers that are due.
func TestManualStatsAfterAPanic(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Start: modelStart, Name: "w", Tick: 5 * ms})
	tw.AfterFunc(time.Second, func() { panic("over") })
	tw.AfterFunc(time.Second, func() {})
	tw.AfterFunc(2*time.Second, func() {})
	require.Panics(t, func() { tw.Advance(modelStart.Add(5 * time.Second)) })
	tw.AfterFunc(0, func() {})
	st := tw.Stats()
	require.Equal(t, 3, st.Due)
	require.Equal(t, 4*time.Second, st.Overdue)
	require.Equal(t, 3, st.Pending)
	require.Zero(t, st.Panics, "without OnPanic no panic is counted")
	require.Equal(t, "w", st.Name)
	require.Equal(t, 5*ms, st.Tick)
	require.Equal(t, 1, st.Shards)
	require.Equal(t, 3, tw.Advance(modelStart.Add(5*time.Second)))
	require.Zero(t, tw.Stats().Overdue)
}

// A timer is not overdue before its tick has come, even if ticks are long.
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
		require.Equal(t, 50*time.Second, tw.Stats().Overdue, "time since the tick")
	})
	opts.Executor, opts.Manual, opts.Start = nil, true, modelStart
	tw := startWheel(t, opts)
	tw.AfterFunc(10*time.Second, func() {})
	require.Zero(t, tw.Advance(modelStart.Add(50*time.Second)))
	require.Zero(t, tw.Stats().Overdue)
}

// logged returns the attributes of a value in a log record.
func logged(t *testing.T, value any) map[string]any {
	t.Helper()
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", value)
	var record struct{ V map[string]any }
	require.NoError(t, json.Unmarshal(out.Bytes(), &record))
	return record.V
}

// All exporters read package metrics, so they would omit a field that is missing there. Counters
// are unsigned, other counts are ints, and the memory is an unsigned gauge.
func TestEachFieldOfStatsIsAMetric(t *testing.T) {
	t.Parallel()
	var st Stats
	fields := map[string]float64{} // all but Name and the histogram, each with a different value
	v := reflect.ValueOf(&st).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		n := i + 100
		switch {
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(int64(n) * int64(time.Second))
		case f.CanInt():
			f.SetInt(int64(n))
		case f.CanUint():
			f.SetUint(uint64(n))
		default:
			assert.Contains(t, []string{"Name", "Lateness"}, name)
			continue
		}
		fields[name] = float64(n)
	}
	st.Lateness.Max = 3 * time.Second
	for m, v := range figures.Numbers(&st) {
		require.Contains(t, fields, m.Field)
		assert.Equal(t, fields[m.Field], m.Float(&st), m.Field)
		_, unsigned := v.(uint64)
		assert.Equal(t, m.Kind == figures.Counter || m.Field == "Bytes", unsigned, m.Field)
		delete(fields, m.Field)
	}
	assert.Empty(t, fields, "fields that are not in the table")
	for _, m := range figures.Table {
		switch {
		case m.Kind == figures.Histogram:
			assert.Equal(t, "Lateness", m.Field)
		case strings.Contains(m.Field, "."):
			assert.Equal(t, 3.0, m.Float(&st), m.Field)
		}
	}
}

// A log record has all figures that are not 0, and the name as the only option.
func TestLogRecordHasEachMetric(t *testing.T) {
	t.Parallel()
	st := Stats{Tick: 1, Shards: 1}
	want := []string{}
	v := reflect.ValueOf(&st).Elem()
	for m := range figures.Numbers(&st) {
		if m.Kind == figures.Setting {
			continue
		}
		if f := v.FieldByName(m.Field); f.CanInt() {
			f.SetInt(1)
		} else {
			f.SetUint(1)
		}
		want = append(want, m.Key())
	}
	record := logged(t, st)
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(record)))
}

func TestLogRecordOmitsMostZeros(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Start: modelStart, Name: "w"})
	require.Equal(t, map[string]any{
		"name": "w", "pending": 0.0, "armed": 0.0, "fired": 0.0, "stopped": 0.0, "running": 0.0,
	}, without(logged(t, tw.Stats()), "bytes"))
	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {}).Reschedule(2 * time.Hour)
	tw.AfterFunc(time.Hour, func() {}).Stop()
	tw.Advance(modelStart.Add(3 * time.Second))
	require.Equal(t, map[string]any{
		"name": "w", "pending": 1.0, "armed": 5.0, "fired": 3.0, "stopped": 1.0, "running": 0.0,
		"postponed": 1.0, "moved": 3.0, "buckets": 1.0, "levels": 2.0,
		"lateness": map[string]any{"p50": 2e9, "p99": 2e9, "max": 2e9},
	}, without(logged(t, tw.Stats()), "bytes"))
}

func without(m map[string]any, key string) map[string]any {
	delete(m, key)
	return m
}
