package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	assert.Empty(t, merge(nil))
	in := []span{{at(50), at(60)}, {at(10), at(30)}, {at(20), at(25)}, {at(25), at(40)}, {at(40), at(45)}}
	assert.Equal(t, []span{{at(10), at(45)}, {at(50), at(60)}}, merge(in))
	assert.Equal(t, span{at(50), at(60)}, in[0], "the argument is not modified")
}

func TestStalledWithin(t *testing.T) {
	t.Parallel()
	spans := []span{{at(10), at(20)}, {at(30), at(50)}, {at(90), at(100)}}
	for _, tt := range []struct{ from, to, want int }{
		{0, 5, 0},
		{0, 10, 0},
		{0, 15, 5},
		{12, 14, 2},
		{10, 20, 10},
		{20, 30, 0},
		{15, 40, 15},
		{0, 200, 40},
		{100, 200, 0},
		{99, 200, 1},
		{60, 20, 0}, // to is before from
	} {
		got := stalledWithin(spans, at(tt.from), at(tt.to))
		assert.Equal(t, time.Duration(tt.want)*time.Millisecond, got, "%+v", tt)
	}
	assert.Zero(t, stalledWithin(nil, at(0), at(10)))
}

func TestLongestSince(t *testing.T) {
	t.Parallel()
	s := &stalls{lastRun: at(0)}
	ms := func(from, now int) int { return int(s.longestSince(at(from), at(now)).Milliseconds()) }
	assert.Negative(t, ms(0, 4), "no stall")
	assert.Equal(t, 995, ms(0, 1000), "a stall that has not ended")

	s.record(at(5), at(5+int(leastStall.Milliseconds())-1))
	assert.Empty(t, s.spans, "too short to count")
	s.record(at(20), at(50))
	s.record(at(60), at(80))
	assert.Equal(t, 35, ms(0, 81))
	assert.Equal(t, 25, ms(50, 81))
	assert.Equal(t, 5, ms(75, 81), "the rest of the stall")
	assert.Negative(t, ms(80, 81))
	assert.Equal(t, 95, ms(0, 180))
}
