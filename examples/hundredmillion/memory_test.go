package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const meminfo = `MemTotal:       24641932 kB
MemFree:        21998228 kB
MemAvailable:   24268876 kB
Buffers:          171204 kB
HugePages_Total:       0
`

func TestKilobytesParsesMeminfo(t *testing.T) {
	t.Parallel()
	bytes, err := kilobytes(strings.NewReader(meminfo), "MemAvailable")
	require.NoError(t, err)
	assert.Equal(t, uint64(24268876)<<10, bytes)
	bytes, err = kilobytes(strings.NewReader("Name:\thm\nVmHWM:\t  355188 kB\n"), "VmHWM")
	require.NoError(t, err)
	assert.Equal(t, uint64(355188)<<10, bytes)

	for text, want := range map[string]string{
		"":                        "no MemAvailable",
		"MemFree: 1 kB\n":         "no MemAvailable",
		"MemAvailable:\n":         `MemAvailable is "", not a number of kB`,
		"MemAvailable: 12 MB\n":   `MemAvailable is "12 MB"`,
		"MemAvailable: -12 kB\n":  `MemAvailable is "-12 kB"`,
		"MemAvailable: much kB\n": `MemAvailable is "much kB"`,
		// Would not fit in bytes.
		"MemAvailable: 9007199254740992 kB": `MemAvailable is "9007199254740992 kB"`,
	} {
		_, err := kilobytes(strings.NewReader(text), "MemAvailable")
		assert.ErrorContains(t, err, want, text)
	}
}

func TestTimersForInvertsMemoryFor(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	assert.Less(t, memoryFor(cfg), uint64(8<<30), "memory for a hundred million timers")
	for _, n := range []int{1, 1000, 1_000_000, 100_000_000, maxTimers} {
		cfg.n = n
		assert.InDelta(t, n, timersFor(cfg, memoryFor(cfg)), 1)
	}
	assert.Zero(t, timersFor(cfg, 0))
	assert.Zero(t, timersFor(cfg, memoryFixed-1))
	assert.Equal(t, maxTimers, timersFor(cfg, 1<<60))
}

func TestCheckMemory(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	source := func(name string, bytes uint64) memorySource {
		return memorySource{name, func() (uint64, error) { return bytes, nil }}
	}
	unknown := memorySource{"unknown", func() (uint64, error) { return 0, errors.New("unknown") }}
	cfg := defaults()
	for name, tt := range map[string]struct {
		sources  []memorySource
		out, err string
	}{
		"enough":             {[]memorySource{source("meminfo", 22*gib)}, "22 GiB are available (meminfo)", ""},
		"smallest limit":     {[]memorySource{source("meminfo", 22*gib), unknown, source("group", 5*gib)}, "5.0 GiB are available (group)", ""},
		"unknown":            {[]memorySource{unknown}, "the available memory is unknown", ""},
		"too little":         {[]memorySource{source("meminfo", 2*gib)}, "", "-n 100000000 needs about 3.9 GiB of memory, but 2.0 GiB are available (meminfo): use -n "},
		"a group too little": {[]memorySource{source("meminfo", 22*gib), source("group", gib)}, "", "1.0 GiB are available (group): use -n "},
		"nothing":            {[]memorySource{source("meminfo", gib/16)}, "", "64 MiB are available (meminfo): no timers fit"},
	} {
		var out bytes.Buffer
		err := checkMemory(cfg, tt.sources, &out)
		if tt.err != "" {
			assert.ErrorContains(t, err, tt.err, name)
			assert.Empty(t, out.String(), name)
			continue
		}
		require.NoError(t, err, name)
		assert.Contains(t, out.String(), "100,000,000 timers need about 3.9 GiB of memory; ", name)
		assert.Contains(t, out.String(), tt.out, name)
	}
	cfg.n = timersFor(cfg, 2*gib) // as the error advises
	assert.NoError(t, checkMemory(cfg, []memorySource{source("meminfo", 2*gib)}, &bytes.Buffer{}))
}

func TestMemoryOfThisMachine(t *testing.T) {
	t.Parallel()
	for _, s := range memorySources() {
		if bytes, err := s.bytes(); err == nil {
			assert.Positive(t, bytes, s.name)
		}
	}
	if peak, err := peakMemory(); err == nil {
		assert.Greater(t, peak, uint64(1<<20))
	}
	assert.Positive(t, memoryHeld())
}
