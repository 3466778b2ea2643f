package clock

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2024, time.February, 29, 12, 0, 0, 0, time.UTC)

// checkTicks compares Ticks with plain division, up to LastTick.
func checkTicks(t *testing.T, d, x int64) {
	t.Helper()
	v := NewTicks(d)
	floor, ceil := x/d, x/d
	if x%d != 0 {
		ceil++
	}
	if v.Floor(x) != min(floor, LastTick-1) || v.Ceil(x) != min(ceil, LastTick) {
		t.Fatalf("%d / %d: floor %d, ceil %d, want %d, %d", x, d, v.Floor(x), v.Ceil(x), floor, ceil)
	}
	if end := Saturated(floor*d, d); v.Begin(floor+1) != end {
		t.Fatalf("the end of tick %d of %d ns is %d, want %d", floor, d, v.Begin(floor+1), end)
	}
}

// ticksEdges returns dividends around multiples of d, powers of two, and the ends of the range.
func ticksEdges(d int64) []int64 {
	edges := []int64{0, 1, 2, math.MaxInt64, math.MaxInt64 - 1}
	for i := range 63 {
		p := int64(1) << i
		edges = append(edges, p-1, p, p+1)
		if q := p - p%d; q > 0 {
			edges = append(edges, q-1, q, q+1, q+d-1, q+d-q%2)
		}
	}
	last := math.MaxInt64 - math.MaxInt64%d
	return append(edges, last-1, last, d-1, d, d+1)
}

func TestTicksAgreeWithDivisionAtEdges(t *testing.T) {
	t.Parallel()
	divisors := []int64{
		int64(time.Microsecond), int64(time.Millisecond), int64(time.Second), int64(time.Hour), // the range of Options.Tick
		2, 3, 5, 7, 999, 1001, 1_234_567, math.MaxInt32, math.MaxInt64, math.MaxInt64 - 1,
	}
	for i := 1; i < 63; i++ {
		divisors = append(divisors, 1<<i, 1<<i+1, max(2, int64(1)<<i-1))
	}
	for _, d := range divisors {
		for _, x := range ticksEdges(d) {
			if x >= 0 { // q+d may overflow
				checkTicks(t, d, x)
			}
		}
	}
}

func TestTicksAgreeWithDivisionAtRandom(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		checkTicks(t, 2+rng.Int64N(math.MaxInt64-1)>>rng.IntN(62), rng.Int64()>>rng.IntN(63))
	}
}

func FuzzTicks(f *testing.F) {
	f.Add(int64(time.Millisecond), int64(math.MaxInt64))
	f.Add(int64(3), int64(1)<<62)
	f.Fuzz(func(t *testing.T, d, x int64) {
		if d > 1 && x >= 0 {
			checkTicks(t, d, x)
		}
	})
}

func TestLaterSaturates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ now, d, clamped, later int64 }{
		{0, 0, 0, 0},
		{5, 3, 8, 8},
		{5, -3, 2, 5},
		{5, -5, 0, 5},
		{5, -6, 0, 5},
		{5, math.MinInt64, 0, 5},
		{0, math.MinInt64, 0, 0},
		{0, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{1, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{1, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64},
		{1, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64 - 1},
		{math.MaxInt64, 1, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, math.MinInt64, 0, math.MaxInt64},
		{math.MaxInt64, -math.MaxInt64, 0, math.MaxInt64},
		{1 << 62, 1 << 62, math.MaxInt64, math.MaxInt64},
	} {
		require.Equal(t, c.clamped, max(Saturated(c.now, c.d), 0), "%+v", c)
		require.Equal(t, c.later, Later(c.now, c.d), "%+v", c)
	}
}

// A Manual clock uses the wall reading of a time, with or without a monotonic reading, and is exact
// over its range.
func TestManualTimelineConvertsExactly(t *testing.T) {
	t.Parallel()
	for _, origin := range []int64{0, 1, 1 << 61} {
		c := Timeline{Base: start, Origin: origin, Manual: new(atomic.Int64)}
		for _, r := range []int64{origin, origin + 1, 0, 1, 1 << 62, math.MaxInt64} {
			got, now := c.Instant(c.TimeAt(r))
			require.Equal(t, r, got)
			require.EqualValues(t, Unread, now)
		}
		for at, want := range map[time.Time]int64{
			{}: 0, start.AddDate(-300, 0, 0): 0, start.AddDate(300, 0, 0): math.MaxInt64,
		} {
			got, _ := c.Instant(at)
			require.Equal(t, want, got, "%v", at)
		}
	}
}

// A running clock converts a time of the wall clock with a reading of the clock.
func TestRunningTimelineConvertsWallTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in a bubble times have no monotonic reading
		c := Timeline{Base: time.Now()}
		time.Sleep(time.Hour)
		require.Equal(t, int64(time.Hour), c.Read())
		at := time.Now().Add(time.Minute)
		for _, date := range []time.Time{at, at.UTC(), at.In(time.FixedZone("", 3600))} {
			deadline, now := c.Instant(date)
			require.Equal(t, int64(time.Hour+time.Minute), deadline)
			require.Equal(t, int64(time.Hour), now)
		}
		deadline, _ := c.Instant(time.Time{})
		require.Zero(t, deadline)
		require.True(t, at.Equal(c.TimeAt(int64(time.Hour+time.Minute))))
	})
}

func TestSaturatedStopsAtBounds(t *testing.T) {
	t.Parallel()
	const least, most = math.MinInt64, math.MaxInt64
	for _, tt := range []struct {
		now  int64
		d    int64
		want int64
	}{
		{0, 0, 0}, {5, 3, 8}, {5, -3, 2}, {5, -8, -3}, {most - 1, 1, most}, {most, 1, most}, {1, most, most},
		{most, most, most}, {0, least, least}, {1, least, least + 1}, {-1, least, least}, {-1, most, most - 1},
	} {
		require.Equal(t, tt.want, Saturated(tt.now, tt.d), "%d + %d", tt.now, tt.d)
	}
}

// A time with a monotonic reading is converted exactly and without reading the clock.
func TestRunningTimelineUsesMonotonicReadings(t *testing.T) {
	t.Parallel()
	c := Timeline{Base: time.Now(), Origin: 7}
	for _, d := range []time.Duration{0, 1, time.Hour, -1 - 7, 1 << 40} {
		deadline, now := c.Instant(c.Base.Add(d))
		require.Equal(t, max(7+int64(d), 0), deadline)
		require.EqualValues(t, Unread, now)
	}
}
