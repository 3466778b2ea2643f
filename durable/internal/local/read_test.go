package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// openTest opens a queue of one partition in memory.
func openTest(t *testing.T, db DB, now func() time.Time) (*State, driver.Backend) {
	t.Helper()
	shared := Shared{Name: "local", Now: now}
	s, err := Load(db, &shared, nil)
	require.NoError(t, err)
	b, err := NewStore(direct{s}, &shared).Open(t.Context(), driver.Config{
		Queue: "q", Partitions: 1, DeadLimit: 10, DeadBytes: 1 << 20, DeadAge: time.Hour,
	})
	require.NoError(t, err)
	return s, b
}

// putSpread stores n messages whose due times are spread evenly.
func putSpread(t *testing.T, b driver.Backend, n int, from, to time.Duration) {
	t.Helper()
	for i := 0; i < n; i += driver.MaxBatch {
		var put driver.Put
		for k := i; k < min(n, i+driver.MaxBatch); k++ {
			delay := from + time.Duration(float64(to-from)*float64(k)/float64(n))
			put.Items = append(put.Items, driver.PutItem{ID: fmt.Sprintf("%08d", k), Delay: delay})
		}
		_, err := b.Put(t.Context(), put)
		require.NoError(t, err)
	}
}

// Counts.Due is exact even if the count takes many steps and the clock moves.
func TestDueIsExactBeyondAStep(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	_, b := openTest(t, new(Map), func() time.Time { return now })
	const n = 10*countStep + 7
	putSpread(t, b, n, 0, 10*time.Hour)
	for _, hours := range []int{5, 2, 10} {
		now = time.UnixMilli(1_800_000_000_000).Add(time.Duration(hours) * time.Hour)
		c, err := b.Count(t.Context(), 0)
		require.NoError(t, err)
		assert.InDelta(t, float64(n)*float64(hours)/10, c.Due, 1)
		counts, err := b.CountDue(t.Context(), 0, []time.Duration{0})
		require.NoError(t, err)
		assert.Equal(t, []int64{c.Due}, counts)
	}
}

// A count that stops early is an estimate from spans.
func TestDueIsEstimatedFromSpans(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	s, b := openTest(t, new(Map), func() time.Time { return now })
	const n = 3 * countStep
	putSpread(t, b, n, 0, 100*time.Hour)
	now = now.Add(100 * time.Hour)
	p := s.queues["q"].partitions[0]
	c, err := p.counts(transition.Floor(now))
	require.NoError(t, err)
	assert.Less(t, p.due.until, transition.Floor(now))
	assert.InDelta(t, n, c.Due, n*(1<<spanBits)/float64(100*time.Hour/time.Millisecond))
}

// The numbers of messages that are due later are exact up to a step, and estimated beyond. The
// estimate for a time after all messages is their number.
func TestLaterMessagesAreEstimated(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	_, b := openTest(t, new(Map), func() time.Time { return now })
	const n = 10 * countStep
	putSpread(t, b, n, time.Hour, 1001*time.Hour)
	within := []time.Duration{time.Minute, 51 * time.Hour, 501 * time.Hour, 2000 * time.Hour}
	counts, err := b.CountDue(t.Context(), 0, within)
	require.NoError(t, err)
	assert.Equal(t, int64(0), counts[0])
	assert.InDelta(t, n/20, counts[1], 1)
	assert.InDelta(t, n/2, counts[2], n/1000)
	assert.InDelta(t, n, counts[3], 250, "rounding of a number for each span")
}
