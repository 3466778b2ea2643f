package planner

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The first run after now comes a multiple of d after the missed run, even for very large
// durations.
func TestEverySkipsMissedRunsInPhase(t *testing.T) {
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
		s := Every(row.d)
		assert.Equal(t, missed.Add(row.want), s.Missed(missed, missed.Add(row.late)), "every %v, %v late", row.d, row.late)
	}
	for _, d := range []time.Duration{150 * year, 200 * year, math.MaxInt64} {
		now := missed.Add(250 * year).Add(50 * year) // more than a Duration holds
		next := Every(d).Missed(missed, now)
		assert.True(t, next.After(now), "every %v: %v", d, next)
		now = missed.Add(250 * year)
		next = Every(d).Missed(missed, now)
		assert.True(t, next.After(now), "every %v: %v", d, next)
	}
}

type next func(time.Time) time.Time

func (f next) Next(t time.Time) time.Time { return f(t) }

type factory struct{ Scheduler }

func (s factory) NewPlanner() Planner { return &struct{ Plain }{Plain(s)} }

// A Factory returns a new planner for each plan. Every is its own planner, without an allocation.
func TestForReturnsThePlannerOfAScheduler(t *testing.T) {
	hourly := next(Every(time.Hour).Next)
	var every Scheduler = Every(time.Hour)
	assert.Equal(t, Every(time.Hour), For(every))
	assert.Zero(t, testing.AllocsPerRun(100, func() { For(every) }))
	assert.IsType(t, Plain{}, For(hourly))
	s := factory{hourly}
	assert.NotSame(t, For(s), For(s))
}

// Each method of Plain calls Next at most once, with the documented time.
func TestPlainCallsNextOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	var asked []time.Time
	c := For(next(func(t time.Time) time.Time {
		asked = append(asked, t)
		return t.Add(time.Minute)
	}))
	later := now.Add(time.Hour)
	assert.Equal(t, now.Add(time.Minute), c.First(now))
	assert.Equal(t, Step{Next: later.Add(time.Minute)}, c.Before(Run{N: 1, Planned: later, Started: now}))
	assert.Equal(t, later, c.After(later, now), "After must not call Next")
	assert.Equal(t, now.Add(time.Minute), c.Missed(later, now))
	assert.Equal(t, []time.Time{now, later, now}, asked)
}
