package main

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// A short run ends by itself and finds its page correct.
func TestShortRun(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := dashboard(context.Background(), []string{"dashboard", "-addr", "localhost:0", "-for", "300ms", "-conns", "500", "-entries", "2000"}, &stdout, &stderr)
	require.Equal(t, option.ExitOK, code, "%s%s", &stdout, &stderr)
	for _, want := range []string{"serving http://", path, "connections", "cache", "jobs"} {
		assert.Contains(t, stdout.String(), want)
	}
}

// The URL of a page that listens on all addresses is one that a browser can open.
func TestURLOfAllAddresses(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := dashboard(context.Background(), []string{"dashboard", "-addr", ":0", "-for", "200ms", "-conns", "500", "-entries", "2000"}, &stdout, &stderr)
	require.Equal(t, option.ExitOK, code, "%s%s", &stdout, &stderr)
	assert.Contains(t, stdout.String(), "serving http://localhost:")
}

func TestInterruptedRunChecksThePage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := dashboard(ctx, []string{"dashboard", "-addr", "localhost:0", "-conns", "500", "-entries", "2000"}, &stdout, &stderr)
	require.Equal(t, option.ExitOK, code, "%s%s", &stdout, &stderr)
	assert.Contains(t, stdout.String(), "jobs")
}

func TestAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer taken.Close()
	var stdout, stderr bytes.Buffer
	code := dashboard(context.Background(), []string{"dashboard", "-addr", taken.Addr().String(), "-for", "1h"}, &stdout, &stderr)
	assert.Equal(t, option.ExitFailed, code)
	assert.Contains(t, stderr.String(), taken.Addr().String())
}

func TestCheckSumFindsMissingTimers(t *testing.T) {
	t.Parallel()
	right := wheeldebug.Wheel{Name: "x", Pending: 6, Due: 1, Moving: 2, Levels: []wheeldebug.Level{{Cells: []int{0, 2}}, {Cells: []int{1}}}}
	assert.NoError(t, checkSum(&right))
	wrong := right
	wrong.Pending = 7
	assert.ErrorContains(t, checkSum(&wrong), "wheel x: 7 pending, but the parts have 6")
	assert.Error(t, checkSum(&wheeldebug.Wheel{Name: "idle"}), "a wheel without timers")
}

func TestQuotaCarriesFractionsOver(t *testing.T) {
	t.Parallel()
	var q quota
	n := 0
	for range 1000 {
		n += q.take(333, 0.01)
	}
	assert.InDelta(t, 3330, n, 1)
}
