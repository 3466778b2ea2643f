package main

import (
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

func TestUploadsFindNoFault(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	var faults fault.List
	cfg := small()
	u, err := runUploads(t.Context(), cfg, idleOn(tw, cfg.timeout), &faults)
	require.NoError(t, err)
	u.checkCounts(&faults, cfg.clients)
	assert.NoError(t, faults.Err())
	assert.Zero(t, tw.Len())
}

func TestBrokenIdleTimeoutsAreFound(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	cfg := small()
	cfg.clients, cfg.timeout, cfg.maxWait = 50, 200*time.Millisecond, time.Second
	var running sync.WaitGroup
	defer running.Wait()
	for name, broken := range map[string]func(http.Handler) http.Handler{
		"none":     func(h http.Handler) http.Handler { return h },
		"early":    idleOn(tw, 10*time.Millisecond),
		"cuts all": func(http.Handler) http.Handler { return cutting(cfg.timeout) },
		"does not read": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "20") })
		},
	} {
		running.Go(func() {
			var faults fault.List
			u, err := runUploads(t.Context(), cfg, broken, &faults)
			if assert.NoError(t, err, name) {
				u.checkCounts(&faults, cfg.clients)
				assert.Error(t, faults.Err(), name)
			}
		})
	}
}

// cutting is a deadline instead of an idle timeout.
func cutting(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(d + d/2))
		receive(w, r)
		panic(http.ErrAbortHandler)
	})
}

func TestCheckOfUploadsFindsEachFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stalls      bool
		took, quiet time.Duration
		answer      string
		err         error
		fault       string
	}{
		{false, time.Minute, 0, "20", nil, ""},
		{false, time.Minute, 0, "19", nil, "instead of 20"},
		{false, time.Second, 0, "", io.EOF, ""},
		{false, time.Second - 1, 0, "", io.EOF, "before the idle timeout"},
		{true, time.Minute, time.Second, "", io.EOF, ""},
		{true, time.Second, time.Second - 1, "", io.EOF, ""},
		{true, time.Second - 1, time.Second - 1, "", io.EOF, "before the idle timeout"},
		{true, time.Minute, time.Minute, "20", nil, "although it stalled"},
		{true, time.Minute, time.Minute, "", os.ErrDeadlineExceeded, "neither answered nor cut"},
	} {
		u, faults := uploads{late: latency.New()}, fault.List{}
		u.check(time.Second, tt.stalls, tt.took, tt.quiet, tt.answer, tt.err, &faults)
		if tt.fault == "" {
			assert.NoError(t, faults.Err(), "%+v", tt)
			assert.EqualValues(t, 1, u.answered.Load()+u.cut.Load()+u.delayed.Load(), "%+v", tt)
		} else {
			assert.ErrorContains(t, faults.Err(), tt.fault, "%+v", tt)
		}
	}
}
