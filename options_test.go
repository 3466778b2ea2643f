package timingwheel

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The error for a bad option names the field, its value and the accepted range.
func TestBadOptionErrorNamesFieldValueAndRange(t *testing.T) {
	t.Parallel()
	ranges := map[string][]string{
		"Tick":        {"µs", "1h"},
		"WheelSize":   {"power of two", "2", "65536"},
		"Levels":      {"1", "16"},
		"Shards":      {"1", "1024"},
		"Executor":    {"function", "nil"},
		"ProfileRate": {"1", "2^30", "0"},
		"Start":       {"zero", "Manual"},
	}
	for _, c := range []struct {
		field, value string
		opts         Options
	}{
		{"Tick", "-1ns", Options{Tick: -1}},
		{"Tick", "1ns", Options{Tick: 1}},
		{"Tick", "999ns", Options{Tick: minManualTick - 1}},
		{"Tick", "1h0m0.000000001s", Options{Tick: time.Hour + 1}},
		{"Tick", "-2562047h47m16.854775808s", Options{Tick: math.MinInt64}},
		{"Tick", "2562047h47m16.854775807s", Options{Tick: math.MaxInt64}},
		{"WheelSize", "-1", Options{WheelSize: -1}},
		{"WheelSize", "-4", Options{WheelSize: -4}},
		{"WheelSize", "1", Options{WheelSize: 1}},
		{"WheelSize", "3", Options{WheelSize: 3}},
		{"WheelSize", "255", Options{WheelSize: 255}},
		{"WheelSize", "65537", Options{WheelSize: 65537}},
		{"WheelSize", "131072", Options{WheelSize: 131072}},
		{"WheelSize", fmt.Sprint(math.MinInt), Options{WheelSize: math.MinInt}},
		{"Levels", "-1", Options{Levels: -1}},
		{"Levels", "17", Options{Levels: 17}},
		{"Levels", fmt.Sprint(math.MaxInt), Options{Levels: math.MaxInt}},
		{"Shards", "-1", Options{Shards: -1}},
		{"Shards", "1025", Options{Shards: 1025}},
		{"Executor", "ExecutorFunc(nil)", Options{Executor: ExecutorFunc(nil)}},
		{"ProfileRate", "-1", Options{ProfileRate: -1}},
		{"ProfileRate", "1073741825", Options{ProfileRate: 1<<30 + 1}},
		{"Start", "2001-09-09", Options{Start: modelStart}},
	} {
		for _, manual := range []bool{false, true} {
			if c.opts.Manual = manual; manual && c.field == "Start" {
				continue
			}
			_, err := New(c.opts)
			_, err2 := NewTimeouts(c.opts, func([]int) {})
			for _, err := range []error{err, err2} {
				require.ErrorIs(t, err, ErrOption)
				require.Regexp(t, "^timingwheel: ", err.Error())
				require.Contains(t, err.Error(), "Options."+c.field+" is "+c.value)
				for _, part := range ranges[c.field] {
					require.Contains(t, err.Error(), part)
				}
			}
		}
	}
}

func TestShortestTick(t *testing.T) {
	t.Parallel()
	for manual, shortest := range map[bool]time.Duration{false: 50 * time.Microsecond, true: time.Microsecond} {
		tw, err := New(Options{Tick: shortest, Manual: manual})
		require.NoError(t, err)
		tw.Stop()
		_, err = New(Options{Tick: shortest - 1, Manual: manual})
		require.ErrorContains(t, err, fmt.Sprintf("Options.Tick is %v; it must be from %v to 1h", shortest-1, shortest))
	}
}

// Each field is valid at its limits, alone and together with the others. The default of one field
// never makes another field invalid.
func TestLimitsOfOptionsAreValid(t *testing.T) {
	t.Parallel()
	for _, tick := range []time.Duration{0, minTick, 1_234_567, time.Hour} {
		for _, size := range []int{0, 2, 65536} {
			for _, levels := range []int{0, 1, 16} {
				for _, shards := range []int{0, 1, 1024} {
					opts := Options{Tick: tick, WheelSize: size, Levels: levels, Shards: shards, Manual: true}
					valid, err := opts.validate()
					require.NoError(t, err, "%+v", opts)
					require.Equal(t, tick == 0, valid.Tick != opts.Tick)
					require.Equal(t, size == 0, valid.WheelSize != opts.WheelSize)
					require.Equal(t, levels == 0, valid.Levels != opts.Levels)
					again, err := valid.validate()
					require.NoError(t, err)
					require.Equal(t, valid, again, "validate changed valid options")
				}
			}
		}
	}
}

// A Limit serves one wheel, and one that New has refused for another reason stays unused.
func TestLimitServesOneWheel(t *testing.T) {
	t.Parallel()
	limit := Limit(2)
	_, err := New(Options{Executor: limit, Tick: -1})
	require.ErrorContains(t, err, "Tick")
	tw, err := New(Options{Executor: limit})
	require.NoError(t, err)
	defer tw.Stop()
	_, err = NewTimeouts(Options{Executor: limit}, func([]int) {})
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, "Options.Executor is a Limit that another wheel has; it must be a Limit of its own")
	for _, n := range []int{0, -1, math.MinInt} {
		require.PanicsWithValue(t, fmt.Sprintf("timingwheel: Limit: n is %d; it must be positive", n), func() { Limit(n) })
	}
}

// A Limit without a wheel is an Executor like any other.
func TestLimitRunsFunctionsOfAnyCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := Limit(3)
		var g gauge
		var ran atomic.Int32
		for k := range 20 {
			limit.Go(func() {
				g.enter()
				defer g.leave()
				ran.Add(1)
				time.Sleep(time.Second)
				if k%4 == 0 {
					runtime.Goexit()
				}
			})
		}
		time.Sleep(7*time.Second + ms)
		require.EqualValues(t, 20, ran.Load())
		require.EqualValues(t, 3, g.most.Load())
	})
}

func TestZeroOptionsTakeTheirDefaults(t *testing.T) {
	t.Parallel()
	o, err := Options{}.validate()
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, o.Tick)
	require.Equal(t, Options{Tick: o.Tick, WheelSize: defaultWheelSize, Levels: defaultLevels, Shards: o.Shards}, o)
	require.GreaterOrEqual(t, o.Shards, min(runtime.GOMAXPROCS(0), maxShards))
	require.LessOrEqual(t, o.Shards, maxShards)
	o, err = Options{Manual: true}.validate()
	require.NoError(t, err)
	require.Equal(t, 1, o.Shards)
	require.Equal(t, Inline, o.Executor)
	o, err = Options{Manual: true, Executor: Goroutines}.validate()
	require.NoError(t, err)
	require.Equal(t, Goroutines, o.Executor)
}

// The clock of a Manual wheel begins at Start or at the time of New.
func TestManualClockBeginsAtStart(t *testing.T) {
	t.Parallel()
	before := time.Now()
	tw, err := New(Options{Manual: true})
	require.NoError(t, err)
	require.False(t, tw.Now().Before(before))
	require.False(t, tw.Now().After(time.Now()))
	for _, start := range []time.Time{modelStart, time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)} {
		tw, err := New(Options{Manual: true, Start: start})
		require.NoError(t, err)
		require.True(t, tw.Now().Equal(start))
	}
}

// Levels beyond the range of a time.Duration are left out.
func TestLevelsBeyondTheRangeAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, levels, want int }{
		{2, 16, 16}, {256, 4, 4}, {256, 16, 8}, {65536, 16, 4}, {65536, 3, 3}, {4096, 16, 6}, {16, 16, 16}, {32, 16, 13},
	} {
		conf := Options{Tick: time.Microsecond, WheelSize: c.size, Levels: c.levels}.config()
		require.Equal(t, c.want, conf.last+1, "%+v", c)
		require.Less(t, uint(conf.last)*conf.bits, uint(63), "%+v: the interval of a level is out of range", c)
	}
}
