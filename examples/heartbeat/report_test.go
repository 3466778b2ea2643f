package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	assert.Nil(t, quantiles(nil, 50))
	assert.Equal(t, []time.Duration{7, 7, 7}, quantiles([]time.Duration{7}, 0, 50, 100))
	var ds []time.Duration
	for i := 200; i > 0; i-- {
		ds = append(ds, time.Duration(i))
	}
	assert.Equal(t, []time.Duration{100, 198, 200}, quantiles(ds, 50, 99, 100))
}

func TestSampleLine(t *testing.T) {
	t.Parallel()
	s := sample{elapsed: 15 * time.Second, conns: 25000, rate: 123456, pending: 25000, cut: 2500, heap: 1 << 30, goroutines: 55000}
	assert.Contains(t, s.line(false), "late p50 - p99 -")
	s.late = []time.Duration{1500 * time.Microsecond, 123 * time.Millisecond}
	assert.Equal(t, " 15s  conns 25,000  beats/s 123,456  pending 25,000  cut 2,500  late p50 1.5ms p99 123.0ms  heap 1.0 GiB  goroutines 55,000",
		s.line(false))
	assert.LessOrEqual(t, len(s.line(true)), 79)
	assert.Less(t, len(s.line(false))+barWidth, longLine+10)
}

func TestReportNamesWhatWasWrong(t *testing.T) {
	t.Parallel()
	o := &outcome{stalls: []span{{at(0), at(30)}}}
	var out bytes.Buffer
	o.print(&out)
	assert.Contains(t, out.String(), "RIGHT")
	assert.Contains(t, out.String(), "stalled 1 time, for 30ms in all and 30ms at most")

	for range faultsShown + 2 {
		o.verdict.fault(account{addr: someAddr}, "was cut though it beat")
	}
	o.interrupted = true
	out.Reset()
	o.print(&out)
	for _, want := range []string{"interrupted", "127.0.0.1:4000 (to stay) was cut though it beat", "and 2 more", "WRONG: 12 faults"} {
		assert.Contains(t, out.String(), want)
	}
}
