package sampling

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// timers has the timers that have not ended, and their table.
type timers struct {
	pending map[int]*Origin // nil: not sampled
	table   Table[int]
}

func newTimers() *timers {
	ts := &timers{pending: map[int]*Origin{}}
	ts.table = New(1, func(timer int) bool { _, ok := ts.pending[timer]; return !ok })
	return ts
}

// set sets the origin of a timer.
func (ts *timers) set(timer int, o *Origin) {
	ts.pending[timer] = o
	ts.table.Set(timer, o)
}

// check checks that the table has the samples of all pending timers. The table may also have
// samples of timers that have ended.
func (ts *timers) check(t *testing.T) {
	t.Helper()
	require.Len(t, ts.table.places, len(ts.table.All))
	for k, s := range ts.table.All {
		require.Equal(t, k, ts.table.places[s.Timer])
		require.NotNil(t, s.Origin)
	}
	for timer, o := range ts.pending {
		require.Same(t, o, ts.table.Origin(timer))
	}
}

func TestTableModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ts := newTimers()
		for n := range 500 {
			timer := rng.IntN(40) // pending, or about to be armed
			switch rng.IntN(6) {
			case 0, 1:
				ts.set(timer, &Origin{})
			case 2:
				ts.set(timer, nil)
			case 3, 4:
				delete(ts.pending, timer)
			case 5:
				ts.table.Set(-n, &Origin{}) // has ended before
			}
			ts.check(t)
		}
		sampled := 0
		for _, o := range ts.pending {
			if o != nil {
				sampled++
			}
		}
		for range len(ts.table.All) {
			ts.table.Set(-1, nil)
		}
		require.Len(t, ts.table.All, sampled, "samples of ended timers must be dropped")
		ts.check(t)
	}
}

// The number of samples is at most twice the largest number of samples of pending timers, plus a
// few. The timers end in order of arming or at random.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	for _, live := range []int{0, 1, 10, 200} {
		for _, oldestFirst := range []bool{true, false} {
			ts := newTimers()
			var pending []int
			for n := range 20_000 {
				ts.set(n, &Origin{})
				pending = append(pending, n)
				for len(pending) > live {
					k := 0
					if !oldestFirst {
						k = rand.IntN(len(pending))
					}
					delete(ts.pending, pending[k])
					pending = slices.Delete(pending, k, k+1)
				}
				require.LessOrEqual(t, len(ts.table.All), 2*live+4)
			}
		}
	}
}

func TestDistanceIsGeometric(t *testing.T) {
	t.Parallel()
	every := New[int](1, nil)
	require.EqualValues(t, 1, every.Distance())
	for _, rate := range []int{2, 512, 1 << 30} {
		table := New[int](rate, nil)
		const n = 100_000
		sum, ones := 0.0, 0
		for range n {
			d := table.Distance()
			require.Positive(t, d)
			sum += float64(d)
			if d <= int64(rate) {
				ones++
			}
		}
		require.InEpsilon(t, float64(rate), sum/n, 0.05) // 15 standard deviations
		within := 1 - math.Pow(1-1/float64(rate), float64(rate))
		require.InDelta(t, within, float64(ones)/n, 0.02)
	}
}

func TestHereReturnsTheStackOfItsCaller(t *testing.T) {
	t.Parallel()
	o := Here(7)
	require.EqualValues(t, 7, o.Armed)
	f, _ := runtime.CallersFrames(o.PCs).Next()
	require.True(t, strings.HasSuffix(f.Function, "sampling.TestHereReturnsTheStackOfItsCaller"), f.Function)
	require.Equal(t, len(o.PCs), cap(slices.Clip(o.PCs)))
	var deep func(n int) *Origin
	deep = func(n int) *Origin {
		if n == 0 {
			return Here(0)
		}
		return deep(n - 1)
	}
	require.Len(t, deep(3*maxDepth).PCs, maxDepth)
}

func TestTwoDigitsRoundsTowardsZero(t *testing.T) {
	t.Parallel()
	for ns, want := range map[int64]int64{
		0: 0, 1: 1, 99: 99, 100: 100, 101: 100, 109: 100, 110: 110, 754_000_000: 750_000_000,
		-5: -5, -99: -99, -199: -190, math.MaxInt64: 9_200_000_000_000_000_000, math.MinInt64: -9_200_000_000_000_000_000,
	} {
		require.Equal(t, want, twoDigits(ns), ns)
	}
}

// The test writes a profile without samples, and a profile to a writer that fails.
func TestWriteReturnsErrorsOfTheWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProfile("example.org/x", "", 3)
	require.NoError(t, p.Write(&out))
	z, err := gzip.NewReader(&out)
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	require.Contains(t, string(plain), "timers")
	p.Add(Here(0), 1, 2)
	require.ErrorIs(t, p.Write(full{}), io.ErrShortWrite)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestFramesInsideTheLibraryAreRecognised(t *testing.T) {
	t.Parallel()
	p := NewProfile("github.com/o/lib", "", 1)
	for name, inside := range map[string]bool{
		"github.com/o/lib.AfterFunc":                          true,
		"github.com/o/lib.(*Wheel).AfterFunc":                 true,
		"github.com/o/lib.(*Timeouts[go.shape.int]).Add":      true,
		"github.com/o/lib/keyed.(*Keys[go.shape.string]).Set": true,
		"github.com/puzpuzpuz/xsync/v4.(*Map[...]).Compute":   true,
		"github.com/o/lib_test.TestX":                         false,
		"github.com/o/lib/examples/leak.serve":                false,
		"github.com/o/library.F":                              false,
		"main.main":                                           false,
	} {
		require.Equal(t, inside, p.inside(name), name)
	}
}
