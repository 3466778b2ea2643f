package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/benchmarks/simulation"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

func TestParse(t *testing.T) {
	t.Parallel()
	cfg, ok, err := parse([]string{"simulate"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, trace.Defaults(), cfg.trace)
	assert.Len(t, cfg.choices, 15)
	cfg, ok, err = parse(strings.Fields("simulate -conns 10000 --over 1m -for=2m -median 30s -sigma 0.5 -beat 5s -jitter 20 "+
		"-silent 50 -timeout 15s -seed 7 -markdown -choices 1ms/256/4,20ms/16/2/8"), nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, config{
		trace: trace.Config{Conns: 10_000, Over: time.Minute, For: 2 * time.Minute, Median: 30 * time.Second, Sigma: 0.5,
			Beat: 5 * time.Second, Jitter: 0.2, Silent: 0.5, Seed: 7},
		timeout: 15 * time.Second,
		choices: []simulation.Choice{
			{Tick: time.Millisecond, WheelSize: 256, Levels: 4, Shards: 1}, {Tick: 20 * time.Millisecond, WheelSize: 16, Levels: 2, Shards: 8},
		},
		markdown: true,
	}, cfg)
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		want []string // substrings of the message: the value, the option, what is accepted
	}{
		{"-conns 0", []string{`"0"`, "-conns", "a whole number from 1 to 100000000"}},
		{"-conns many", []string{`"many"`, "-conns", "from 1 to 100000000"}},
		{"-over 1ms", []string{`"1ms"`, "-over", "a duration from 1s to 24h0m0s"}},
		{"-for 25h", []string{`"25h"`, "-for", "a duration from 1s to 24h0m0s"}},
		{"-median 0s", []string{`"0s"`, "-median", "from 1ms to 24h0m0s"}},
		{"-sigma NaN", []string{`"NaN"`, "-sigma", "a number from 0 to 4"}},
		{"-beat 1ms", []string{`"1ms"`, "-beat", "from 10ms to 10m0s"}},
		{"-jitter 91", []string{`"91"`, "-jitter", "a number from 0 to 90"}},
		{"-silent 101", []string{`"101"`, "-silent", "a number from 0 to 100"}},
		{"-timeout 2h", []string{`"2h"`, "-timeout", "from 1ms to 1h0m0s"}},
		{"-timeout 30s", []string{"-beat 30s", "-jitter 10", "33s", "less than -timeout (30s)"}},
		{"-seed -1", []string{`"-1"`, "-seed", "a whole number from 0"}},
		{"-choices 1ms/256", []string{`"1ms/256"`, "-choices", "tick/slots/levels"}},
		{"-choices 1500us/256/4", []string{`"1500us/256/4"`, "whole milliseconds from 1ms to 1h0m0s"}},
		{"-choices 1ms/100/4", []string{`"1ms/100/4"`, "a power of two from 2 to 65536"}},
		{"-choices 1ms/256/17", []string{`"1ms/256/17"`, "from 1 to 16"}},
		{"-choices 1ms/256/4/0", []string{`"1ms/256/4/0"`, "from 1 to 1024"}},
		{"-choices 1ms/256/4,", []string{`"1ms/256/4,"`, "-choices"}},
		{"-fast", []string{"-fast", "not defined"}},
		{"fast", []string{`"fast"`, "the program takes only options"}},
	} {
		var stdout, stderr bytes.Buffer
		code := simulate(context.Background(), append([]string{"simulate"}, strings.Fields(tt.args)...), &stdout, &stderr)
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
	assert.Equal(t, exitOK, simulate(context.Background(), []string{"simulate", "-help"}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	for _, f := range options(&config{}) {
		assert.Contains(t, stdout.String(), "-"+f.Names()[0])
	}
}

var quick = strings.Fields("simulate -conns 10000 -over 1m -for 3m -median 1m")

func TestSimulatePrintsARowForEachChoice(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	args := append(quick, "-choices", "1ms/256/4,100ms/1024/1/2", "-markdown")
	require.Equal(t, exitOK, simulate(context.Background(), args, &stdout, &stderr), "%s", &stdout)
	lines := strings.Split(stdout.String(), "\n")
	rows := 0
	for _, l := range lines {
		if strings.HasPrefix(l, "| 1ms | 256 | 4 | 1 | 49.7 d |") || strings.HasPrefix(l, "| 100ms | 1024 | 1 | 2 | 1.71 min |") {
			rows++
			assert.Equal(t, strings.Count(lines[3], "|"), strings.Count(l, "|"))
		}
	}
	assert.Equal(t, 2, rows, "%s", &stdout)
	assert.Contains(t, stdout.String(), "10,000 connections arrived")
	assert.Contains(t, stdout.String(), "PASS (choices: 2): exactly the")
	assert.Contains(t, stderr.String(), "3 of 3: 100ms/1024/1/2")
}

func TestInterruptBeforeTheFirstResult(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitOK, simulate(ctx, quick, &stdout, &stderr))
	assert.Equal(t, "interrupted: the trace without a wheel was not finished\n", stdout.String())
}

func TestInterruptPrintsTheResultsSoFar(t *testing.T) {
	t.Parallel()
	cfg, ok, err := parse(append(quick, "-choices", "1ms/256/4,10ms/256/4"), nil)
	require.NoError(t, err)
	require.True(t, ok)
	ctx, cancel := context.WithCancel(context.Background())
	out, err := run(ctx, cfg, &canceller{cancel: cancel, at: "10ms/256/4/1"})
	require.NoError(t, err)
	require.Len(t, out.results, 1)
	var w bytes.Buffer
	out.print(&w, cfg)
	assert.Contains(t, w.String(), "interrupted: 10ms/256/4/1 was not finished")
	assert.Contains(t, w.String(), "PASS (choices: 1)")
}

// canceller cancels when a part begins.
type canceller struct {
	lines
	cancel context.CancelFunc
	at     string
}

func (c *canceller) begin(int) {}
func (c *canceller) next(part string) {
	if part == c.at {
		c.cancel()
	}
}

func TestFaultsArePrinted(t *testing.T) {
	t.Parallel()
	var o outcome
	o.add(simulation.Result{For: time.Second, Counts: trace.Counts{Sum: 1}})
	o.add(simulation.Result{For: time.Second, Counts: trace.Counts{Sum: 2}})
	o.add(simulation.Result{For: time.Second, Counts: trace.Counts{Sum: 1}, Verdict: simulation.Verdict{Faults: []string{"1 expired early"}}})
	var w bytes.Buffer
	o.print(&w, config{})
	assert.Equal(t, 2, o.faults)
	assert.Contains(t, w.String(), "different trace: checksum 2, not 1")
	assert.Contains(t, w.String(), "1 expired early")
	assert.Contains(t, w.String(), "FAIL: 2 of 3 choices have a fault")
}
