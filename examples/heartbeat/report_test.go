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

func TestReportListsFaults(t *testing.T) {
	t.Parallel()
	res := &result{stalls: []span{{at(0), at(30)}}}
	var out bytes.Buffer
	res.print(&out)
	assert.Contains(t, out.String(), "PASS")
	assert.Contains(t, out.String(), "stalled 1 time, 30ms in total and 30ms at most")

	for range faultsShown + 2 {
		res.verdict.fault(clientRecord{addr: someAddr}, "was cut")
	}
	res.interrupted = true
	out.Reset()
	res.print(&out)
	for _, want := range []string{"interrupted", "client 127.0.0.1:4000 (stay) was cut", "and 2 more", "FAIL: 12 faults"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestComparisonPrintsDifferences(t *testing.T) {
	t.Parallel()
	cfg := smallComparison()
	made := func(impl string, cpu time.Duration, heap uint64) *result {
		cfg.impl = impl
		return &result{cfg: cfg, beats: 1000, cpu: cpu, heap: heap}
	}
	wheel, wrong, interrupted := made("wheel", 41*time.Millisecond, 150_000), made("std", 39*time.Millisecond, 90_000), made("net", 1, 1)
	wheel.verdict.cutDelays = make([]time.Duration, 12)
	wrong.verdict.faults = []string{"a fault"}
	interrupted.interrupted = true
	var out bytes.Buffer
	printComparison(&out, []*result{made(none, 40*time.Millisecond, 120_000), wheel, wrong, interrupted})
	assert.Equal(t, [][]string{
		{"none", "0 of 12", "1,000", "40ms", "40.0µs", "", "2,000 B", "", "-"},
		{"wheel", "12 of 12", "1,000", "41ms", "41.0µs", "+1.0µs", "2,500 B", "+500 B", "right"},
		{"std", "0 of 12", "1,000", "39ms", "39.0µs", "-1.0µs", "1,500 B", "-500 B", "FAIL"},
		{"net", "", "", "", "", "", "", "", "interrupted"},
	}, rows(out.String()))
	assert.Contains(t, out.String(), "share the process")
}

// Only Unix reports the CPU time of a process.
func TestComparisonWithoutProcessorTime(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	res := &result{cfg: smallComparison(), beats: 1000, heap: 120_000}
	printComparison(&out, []*result{res, res})
	for _, row := range rows(out.String()) {
		assert.Equal(t, []string{"", "", ""}, row[3:6])
	}
}
