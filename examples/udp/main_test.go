package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func small() config {
	cfg := defaults()
	cfg.flows, cfg.messages = 5, 100
	cfg.most = 50 * time.Millisecond
	cfg.tries = 100      // a server whose goroutine stalls for seconds is not silent
	cfg.silentTries = 20 // a second
	cfg.simulated.messages = 60
	return cfg
}

func TestRunFindsNoFault(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	assert.NoError(t, run(t.Context(), small(), &out))
	assert.Contains(t, out.String(), "PASS")
	assert.Contains(t, out.String(), "no answer to message 0, sent 21 times")
}

func TestInterruptEndsTheRun(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.tries, cfg.silentTries = 1_000_000, 1_000_000
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
}

// An interrupt also ends the simulation.
func TestInterruptBeforeTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := defaults()
	var found fault.List
	simulated, err := cfg.simulated.run(ctx, 1, &found)
	assert.NoError(t, err)
	assert.NoError(t, found.Err())
	assert.Zero(t, simulated.delivered)
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
	assert.NotContains(t, out.String(), "PASS")
}

func TestTimersThatAreAlwaysDueDoNotStarvePackets(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	cfg := small()
	server, err := listen(cfg.protocol, faults{}, newSeeded(1, 1), func(_ flow, m []byte) { got <- string(m) })
	require.NoError(t, err)
	client, err := listen(cfg.protocol, faults{}, newSeeded(1, 2), func(flow, []byte) {})
	require.NoError(t, err)
	var again func()
	again = func() { server.tw.AfterFunc(0, again) }
	again()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- server.run(ctx, func() bool { return false }) }()
	s, err := client.node.open(flow{server.address(), 0}, func(err error) { assert.NoError(t, err) })
	require.NoError(t, err)
	require.NoError(t, s.send([]byte("hello")))
	s.finish()
	require.NoError(t, client.run(ctx, func() bool { return s.done }))
	assert.Equal(t, "hello", <-got)
	cancel()
	assert.NoError(t, <-served)
}

func TestErrorOfTheSocketEndsTheLoop(t *testing.T) {
	t.Parallel()
	l, err := listen(small().protocol, faults{}, newSeeded(1, 1), func(flow, []byte) {})
	require.NoError(t, err)
	require.NoError(t, l.conn.Close())
	assert.Error(t, l.run(t.Context(), func() bool { return false }))
}

func TestFlowCannotBeOpenedTwice(t *testing.T) {
	t.Parallel()
	l, err := listen(small().protocol, faults{}, newSeeded(1, 1), func(flow, []byte) {})
	require.NoError(t, err)
	defer l.conn.Close()
	var found fault.List
	var silence error
	_, err = l.talk(t.Context(), small(), l.address(), l.address(), &silence, &found)
	assert.ErrorContains(t, err, "flow 0 to "+l.address().String()+" is open already")
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, udp, []string{"flows", "messages", "loss", "duplicate", "jitter", "seed"})
	programtest.Refuses(t, udp, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-loss", "26"}, Want: []string{`"26"`, "-loss", "a number from 0 to 25"}},
		{Args: []string{"-flows", "0"}, Want: []string{`"0"`, "-flows", "from 1 to 200"}},
		{Args: []string{"-flows", "200", "-messages", "25001"}, Want: []string{"-messages is 25001", "-flows 200", "at most 5000000 in all"}},
		{Args: []string{"-jitter", "-1s"}, Want: []string{`"-1s"`, "-jitter", "from 0s to 1s"}},
	})
}
