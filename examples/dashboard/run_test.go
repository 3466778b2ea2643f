package main

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/debug"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
)

// A short run ends by itself, has checked its own page, and leaves nothing behind.
func TestRun(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := dashboard(context.Background(), []string{"dashboard", "-addr", "localhost:0", "-for", "1s", "-conns", "500", "-entries", "2000"}, &stdout, &stderr)
	require.Equal(t, option.ExitOK, code, "%s%s", &stdout, &stderr)
	for _, want := range []string{"look at http://", path, "connections", "cache", "jobs"} {
		assert.Contains(t, stdout.String(), want)
	}
}

// A server that listens on all addresses prints an address that a browser can open.
func TestAllAddresses(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := dashboard(context.Background(), []string{"dashboard", "-addr", ":0", "-for", "200ms", "-conns", "500", "-entries", "2000"}, &stdout, &stderr)
	require.Equal(t, option.ExitOK, code, "%s%s", &stdout, &stderr)
	assert.Contains(t, stdout.String(), "look at http://localhost:")
}

// Ctrl-C ends it, and it checks itself all the same.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := dashboard(ctx, []string{"dashboard", "-addr", "localhost:0", "-conns", "500", "-entries", "2000"}, &stdout, &stderr)
	require.Equal(t, option.ExitOK, code, "%s%s", &stdout, &stderr)
	assert.Contains(t, stdout.String(), "jobs")
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer taken.Close()
	var stdout, stderr bytes.Buffer
	code := dashboard(context.Background(), []string{"dashboard", "-addr", taken.Addr().String(), "-for", "1h"}, &stdout, &stderr)
	assert.Equal(t, option.ExitFailed, code)
	assert.Contains(t, stderr.String(), taken.Addr().String())
}

// The check is no mere form: what does not add up is found.
func TestJudge(t *testing.T) {
	t.Parallel()
	right := debug.Wheel{Name: "x", Pending: 6, Due: 1, Moving: 2, Levels: []debug.Level{{Cells: []int{0, 2}}, {Cells: []int{1}}}}
	assert.NoError(t, judge(&right))
	wrong := right
	wrong.Pending = 7
	assert.ErrorContains(t, judge(&wrong), "wheel x: 7 pending, 6 in its slots and beside them")
	assert.Error(t, judge(&debug.Wheel{Name: "idle"}), "a wheel without timers")
}

func TestQuotaLosesNothing(t *testing.T) {
	t.Parallel()
	var q quota
	n := 0
	for range 1000 {
		n += q.take(333, 0.01)
	}
	assert.InDelta(t, 3330, n, 1)
}
