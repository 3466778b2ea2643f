package main

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func TestOptionsAreParsed(t *testing.T) {
	t.Parallel()
	want := defaults()
	cfg, ok, err := parse([]string{"heartbeat"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, want, cfg)

	want.conns, want.timeout, want.duration = 200, 500*time.Millisecond, 4*time.Second
	want.bound, want.impl, want.seed = 100*time.Millisecond, "std", 7
	want.silent, want.closing, want.crash = 50, 12.5, 0
	for _, dash := range []string{"-", "--"} {
		cfg, ok, err = parse([]string{"heartbeat", dash + "conns", "200", dash + "timeout=500ms", dash + "duration", "4s",
			dash + "bound", "100ms", dash + "impl=std", dash + "seed", "7",
			dash + "silent", "50", dash + "close", "12.5", dash + "crash", "0"}, nil)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, want, cfg)
	}
}

func TestImplementationsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, impl := range implementations {
		cfg, ok, err := parse([]string{"heartbeat", "-impl", impl}, nil)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, impl, cfg.impl)
		assert.False(t, cfg.compare)
	}
	cfg, ok, err := parse([]string{"heartbeat", "-compare"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.True(t, cfg.compare)
}

func TestBadOptionIsRefused(t *testing.T) {
	t.Parallel()
	programtest.Refuses(t, heartbeat, exitUsage, []programtest.Refusal{
		{[]string{"-conns", "0"}, []string{`"0"`, "-conns", "a whole number from 1 to 25000"}},
		{[]string{"-conns", "25001"}, []string{`"25001"`, "-conns", "from 1 to 25000"}},
		{[]string{"-conns", "-5"}, []string{`"-5"`, "-conns", "from 1 to 25000"}},
		{[]string{"-conns", "many"}, []string{`"many"`, "-conns", "from 1 to 25000"}},
		{[]string{"-conns", "99999999999999999999"}, []string{`"99999999999999999999"`, "-conns", "from 1 to 25000"}},
		{[]string{"-conns="}, []string{`""`, "-conns", "from 1 to 25000"}},
		{[]string{"-conns"}, []string{"-conns", "needs an argument"}},
		{[]string{"-timeout", "5"}, []string{`"5"`, "-timeout", "a time from 100ms to 1h0m0s"}},
		{[]string{"-timeout", "-1s"}, []string{`"-1s"`, "-timeout", "from 100ms to 1h0m0s"}},
		{[]string{"-timeout", "1ms"}, []string{`"1ms"`, "-timeout", "from 100ms to 1h0m0s"}},
		{[]string{"-bound", "2h"}, []string{`"2h"`, "-bound", "from 10ms to 1m0s"}},
		{[]string{"-duration", "25h"}, []string{`"25h"`, "-duration", "from 200ms to 24h0m0s"}},
		{[]string{"-duration", "6s"}, []string{`"6s"`, "-duration", "at least 6.25s"}},
		{[]string{"-impl", "heap"}, []string{`"heap"`, "-impl", "one of [wheel wheelnet std net]"}},
		{[]string{"-impl", "none"}, []string{`"none"`, "-impl", "one of [wheel wheelnet std net]"}},
		{[]string{"-compare", "-impl", "std"}, []string{"-compare", `-impl "std"`, "exclude each other", "all of [wheel wheelnet std net]"}},
		{[]string{"-impl=wheel", "-compare"}, []string{"-compare", `-impl "wheel"`, "exclude each other"}},
		{[]string{"-compare=perhaps"}, []string{`"perhaps"`, "-compare"}},
		{[]string{"-silent", "101"}, []string{`"101"`, "-silent", "a number from 0 to 100"}},
		{[]string{"-silent", "NaN"}, []string{`"NaN"`, "-silent", "a number from 0 to 100"}},
		{[]string{"-crash", "-0.5"}, []string{`"-0.5"`, "-crash", "a number from 0 to 100"}},
		{[]string{"-silent", "60", "-close", "30", "-crash", "20"}, []string{"-silent 60", "-close 30", "-crash 20", "110 percent", "at most 100"}},
		{[]string{"-seed", "-1"}, []string{`"-1"`, "-seed", "a whole number from 0 to 18446744073709551615"}},
		{[]string{"-fast"}, []string{"-fast", "not defined"}},
		{[]string{"fast"}, []string{`"fast"`, "the program takes only options"}},
	})
}

func TestHelpNamesEveryOption(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	var names []string
	for _, f := range options(&cfg) {
		names = append(names, f.Names()[0])
	}
	programtest.Helps(t, heartbeat, names)
}

func TestConnectionsForFilesIsTheInverse(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 2, 5000, maxConns} {
		assert.Equal(t, conns, connsFor(filesFor(conns)))
		assert.Equal(t, conns-1, connsFor(filesFor(conns)-1), "two files for each connection")
	}
	assert.Zero(t, connsFor(0))
	assert.Zero(t, connsFor(otherFiles))
	assert.Equal(t, maxConns, connsFor(math.MaxUint64))
}

func TestFewConnectionsKeepFileLimit(t *testing.T) {
	t.Parallel()
	cfg := config{conns: 1}
	var out bytes.Buffer
	assert.NoError(t, fitFileLimit(&cfg, &out))
	assert.Equal(t, 1, cfg.conns)
	assert.Empty(t, out.String())
}
