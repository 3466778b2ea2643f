package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLineOfSample(t *testing.T) {
	t.Parallel()
	s := sample{elapsed: 15 * time.Second, conns: 25000, rate: 123456, pending: 25000, cut: 2500, heap: 1 << 30, goroutines: 55000}
	assert.Contains(t, s.line(false), "late p50 - p99 -")
	s.late = []time.Duration{1500 * time.Microsecond, 123 * time.Millisecond}
	assert.Equal(t, " 15s  conns 25,000  beats/s 123,456  pending 25,000  cut 2,500  late p50 1.5ms p99 123.0ms  heap 1.0 GiB  goroutines 55,000",
		s.line(false))
	assert.Equal(t, " 15s 25,000 conns 123,456/s 25,000 pending 2,500 cut late 1.5/123.0ms 1.0GiB", s.line(true))
	assert.LessOrEqual(t, len(s.line(true)), 79)
	unknown := s
	unknown.pending = unknownPending
	assert.Contains(t, unknown.line(false), "pending -  cut")
	assert.Less(t, len(s.line(false))+barWidth, longLine+10)
}
