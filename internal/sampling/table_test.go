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
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// timers is a page of timers for a test.
type timers struct {
	home  atomic.Pointer[arena.Page]
	words *arena.Page
}

func newTimers() *timers {
	ts := &timers{words: new(arena.Page)}
	ts.home.Store(ts.words)
	return ts
}

// arm arms a timer in a slot.
func (ts *timers) arm(index uint32) Timer {
	return Timer{&ts.home, index, ts.words.Arm(index, 0, 0).Gen()}
}

func (ts *timers) set(index uint32, k arena.Kind) {
	ts.words.Store(index, ts.words.Load(index).With(k))
}

// check checks that the table has the samples in want, and T1 and T2. The table may also have
// samples of timers that have ended.
func check(t *testing.T, table *Table, want map[Timer]*Origin) {
	t.Helper()
	used := 0
	for k, s := range table.entries {
		if s.origin == nil {
			require.Contains(t, table.free, int32(k), "T2")
			continue
		}
		used++
		require.Equal(t, int32(k), table.slots[s.Index], "T1")
	}
	require.Len(t, table.slots, used, "T1")
	require.Len(t, table.free, len(table.entries)-used, "T2")
	for timer, o := range want {
		require.Same(t, o, table.Origin(timer))
	}
}

// The test makes random changes. After each round Each must yield exactly the samples of the timers
// that have not ended.
func TestTableModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ts, table := newTimers(), New(1)
		want := map[Timer]*Origin{}
		for range 500 {
			index := uint32(rng.IntN(40))
			var now Timer // the current timer of the slot
			for timer := range want {
				if timer.Index == index {
					now = timer
				}
			}
			switch rng.IntN(7) {
			case 0, 1, 2: // the timer of the slot ends and another is armed
				timer := ts.arm(index)
				delete(want, now)
				if rng.IntN(2) == 0 {
					want[timer] = &Origin{Armed: rng.Int64()}
					table.Set(timer, want[timer])
				}
			case 3:
				ts.set(index, []arena.Kind{arena.Ended, arena.Dead, arena.Spent, arena.Free, arena.Ending}[rng.IntN(5)])
				delete(want, now)
			case 4:
				if now != (Timer{}) {
					ts.set(index, []arena.Kind{arena.Staged, arena.Placed}[rng.IntN(2)])
				}
			case 5:
				if now != (Timer{}) {
					table.Set(now, nil)
					delete(want, now)
				}
			case 6: // a late call for an earlier timer of the slot
				late := Timer{&ts.home, index, ts.words.Load(index).Gen() - 1}
				table.Set(late, &Origin{})
				table.Set(late, nil)
			}
			check(t, table, want)
		}
		got := map[*Origin]bool{}
		for from, more := 0, true; more; {
			from, more = table.Each(from, 7, func(o *Origin, pg *arena.Page, w arena.Word, i uint32) {
				require.Same(t, ts.words, pg)
				require.Equal(t, ts.words.Load(i), w)
				require.False(t, got[o], "twice")
				got[o] = true
			})
		}
		require.Len(t, got, len(want))
		for _, o := range want {
			require.True(t, got[o])
		}
		require.Len(t, table.slots, len(want), "samples of ended timers must be dropped")
		check(t, table, want)

		ts.home.Store(nil) // releases the page
		table.Each(0, math.MaxInt32, func(*Origin, *arena.Page, arena.Word, uint32) { t.Error("sample of a released page") })
		require.Empty(t, table.slots)
	}
}

// The number of entries is at most twice the largest number of samples of pending timers, plus a
// few.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	for _, live := range []int{0, 1, 10, 200} {
		ts, table := newTimers(), New(1)
		var pending []Timer
		for n := range 20_000 {
			timer := ts.arm(uint32(n % arena.PageSize))
			pending = slices.DeleteFunc(pending, func(p Timer) bool { return p.Index == timer.Index })
			table.Set(timer, &Origin{})
			pending = append(pending, timer)
			for len(pending) > live {
				ts.set(pending[0].Index, arena.Ended)
				pending = pending[1:]
			}
		}
		require.LessOrEqual(t, len(table.entries), 2*live+4, "of %d", live)
	}
}

func TestDistanceIsGeometric(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 1, New(1).Distance())
	for _, rate := range []int{2, 512, 1 << 30} {
		table := New(rate)
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
