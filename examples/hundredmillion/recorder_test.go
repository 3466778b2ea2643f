package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const afterAll = 3 * farAhead // all timers are due

// dueOf returns the deadline of a timer.
func dueOf(p *plan, id uint64) time.Duration {
	_, due := p.of(id)
	return due
}

func TestRecorderCountsEachFault(t *testing.T) {
	t.Parallel()
	p := testPlan(1)
	for name, tt := range map[string]struct {
		now                   time.Duration
		batches               [][]uint64
		count                 uint64
		twice, early, unknown faultCount
	}{
		"none":                      {},
		"some":                      {now: afterAll, batches: [][]uint64{{1, 2, 3}, {4}}, count: 4},
		"at the deadline":           {now: dueOf(&p, 7), batches: [][]uint64{{7}}, count: 1},
		"early by a nanosecond":     {now: dueOf(&p, 7) - 1, batches: [][]uint64{{7}}, count: 1, early: faultCount{1, 7}},
		"twice in one batch":        {now: afterAll, batches: [][]uint64{{1, 2, 1}}, count: 3, twice: faultCount{1, 1}},
		"twice in two":              {now: afterAll, batches: [][]uint64{{1}, {2, 1}, {1}}, count: 4, twice: faultCount{2, 1}},
		"the last one":              {now: afterAll, batches: [][]uint64{{999}}, count: 1},
		"beyond the last one":       {now: afterAll, batches: [][]uint64{{1000}, {1 << 40}}, count: 2, unknown: faultCount{2, 1 << 40}},
		"a batch as large as it is": {now: afterAll, batches: [][]uint64{make([]uint64, 256)}, count: 256, twice: faultCount{255, 0}},
	} {
		rec := newRecorder(&p, time.Now(), 1000)
		for _, b := range tt.batches {
			rec.expireAt(tt.now, b)
		}
		got := rec.result()
		assert.Equal(t, tt.count, got.count, name)
		assert.EqualValues(t, tt.count, rec.fired.Load(), name)
		assert.Equal(t, tt.twice, got.twice, name)
		assert.Equal(t, tt.early, got.early, name)
		assert.Equal(t, tt.unknown, got.unknown, name)
	}
}

func TestLatenessPercentiles(t *testing.T) {
	t.Parallel()
	p := testPlan(1)
	rec := newRecorder(&p, time.Now(), 1000)
	assert.Nil(t, rec.late(50))
	for id := range uint64(100) {
		rec.expireAt(dueOf(&p, id)+time.Duration(id+1)*time.Millisecond, []uint64{id})
	}
	late := rec.late(50, 99)
	assert.InDelta(t, 50*time.Millisecond, late[0], float64(time.Millisecond))
	assert.InDelta(t, 99*time.Millisecond, late[1], float64(time.Millisecond))
	assert.Equal(t, 100*time.Millisecond, late[2])
	rec.expireAt(dueOf(&p, 100)+24*time.Hour, []uint64{100}) // beyond the range of the histogram
	assert.Equal(t, 24*time.Hour, rec.late()[0])
}

func TestChecksumDistinguishesSets(t *testing.T) {
	t.Parallel()
	sum := func(ids ...uint64) (c checksum) {
		for _, id := range ids {
			c.add(id)
		}
		return c
	}
	assert.Equal(t, sum(1, 2, 3), sum(3, 1, 2))
	merged := sum(1)
	merged.merge(sum(2, 3))
	assert.Equal(t, sum(1, 2, 3), merged)
	for _, other := range [][]uint64{{1, 2}, {1, 2, 4}, {1, 2, 3, 3}, {0, 2, 4}, {1, 1, 1, 2, 3}, {2, 2, 2}} {
		o := sum(other...)
		assert.NotEqual(t, sum(1, 2, 3).sum, o.sum, other)
		// Two more additions of a number do not change the xor, only the sum.
		if len(other) != 5 {
			assert.NotEqual(t, sum(1, 2, 3).xor, o.xor, other)
		}
	}
}
