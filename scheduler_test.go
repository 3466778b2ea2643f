package timingwheel

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first run after now stands at a multiple of d after the one that was missed, however large
// the numbers are.
func TestEverySkipsMissedRuns(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	missed := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct{ d, late, want time.Duration }{
		{10, 0, 10},
		{10, 9, 10},
		{10, 10, 20},
		{10, 35, 40},
		{1, 604_800e9, 604_800e9 + 1},
		{1, math.MaxInt64 - 1, math.MaxInt64},
		{math.MaxInt64, 0, math.MaxInt64},
		{200 * year, 100 * year, 200 * year},
	} {
		s := Every(row.d).(Skipper)
		assert.Equal(t, missed.Add(row.want), s.Skip(missed, missed.Add(row.late)), "every %v, %v late", row.d, row.late)
	}
	for _, d := range []time.Duration{150 * year, 200 * year, math.MaxInt64} {
		now := missed.Add(250 * year).Add(50 * year) // more than a Duration holds
		next := Every(d).(Skipper).Skip(missed, now)
		assert.True(t, next.After(now), "every %v: %v", d, next)
		now = missed.Add(250 * year)
		next = Every(d).(Skipper).Skip(missed, now)
		assert.True(t, next.After(now), "every %v: %v", d, next)
	}
}

// On 32 bits a run each millisecond counts to the end of int in 25 days.
func TestRunsAreNotCountedBeyondInt(t *testing.T) {
	t.Parallel()
	tw, err := New(Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	first := tw.Now().Add(ms)
	var numbers []int
	p := &followed{
		plan:     plan{wheel: tw, planned: first},
		follower: followFunc(func(r Run) Step { return at(r.Planned, 1) }),
		f:        func(r Run) { numbers = append(numbers, r.N) },
		n:        math.MaxInt - 1,
	}
	p.start(p.run)
	for range 3 {
		tw.Advance(tw.Now().Add(ms))
	}
	assert.Equal(t, []int{math.MaxInt, math.MaxInt, math.MaxInt}, numbers)
}
