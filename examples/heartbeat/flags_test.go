package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
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

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want []string // what the message must name: the value, the option, what is accepted
	}{
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
		{[]string{"-impl", "heap"}, []string{`"heap"`, "-impl", "one of [wheel std]"}},
		{[]string{"-silent", "101"}, []string{`"101"`, "-silent", "a number from 0 to 100"}},
		{[]string{"-silent", "NaN"}, []string{`"NaN"`, "-silent", "a number from 0 to 100"}},
		{[]string{"-crash", "-0.5"}, []string{`"-0.5"`, "-crash", "a number from 0 to 100"}},
		{[]string{"-silent", "60", "-close", "30", "-crash", "20"}, []string{"-silent 60", "-close 30", "-crash 20", "110 percent", "at most 100"}},
		{[]string{"-seed", "-1"}, []string{`"-1"`, "-seed", "a whole number from 0 to 18446744073709551615"}},
		{[]string{"-fast"}, []string{"-fast", "not defined"}},
		{[]string{"fast"}, []string{`"fast"`, "only options are accepted"}},
	} {
		var stdout, stderr bytes.Buffer
		code := heartbeat(context.Background(), append([]string{"heartbeat"}, tt.args...), &stdout, &stderr)
		assert.Equal(t, exitUsage, code, "%v", tt.args)
		assert.Empty(t, stdout.String(), "%v", tt.args)
		for _, w := range tt.want {
			assert.Contains(t, stderr.String(), w, "%v", tt.args)
		}
	}
}

func TestHelpNamesEveryOption(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitRight, heartbeat(context.Background(), []string{"heartbeat", "-help"}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	cfg := defaults()
	for _, f := range options(&cfg) {
		assert.Contains(t, stdout.String(), "-"+f.Names()[0]+" ")
	}
}
