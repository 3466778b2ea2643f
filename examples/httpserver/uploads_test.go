package main

import (
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

func TestUploads(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	var faults fault.List
	cfg := small()
	u, err := tryUploads(t.Context(), cfg, idleBy(tw, cfg.timeout), &faults)
	require.NoError(t, err)
	u.compare(&faults, cfg.clients)
	assert.NoError(t, faults.Err())
	assert.Zero(t, tw.Len())
}

// A run that cannot fail shows nothing.
func TestBrokenIdleTimeoutsAreFound(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	cfg := small()
	cfg.clients, cfg.timeout, cfg.enough = 50, 400*time.Millisecond, 2*time.Second
	for name, broken := range map[string]func(http.Handler) http.Handler{
		"none":     func(h http.Handler) http.Handler { return h },
		"early":    idleBy(tw, 10*time.Millisecond),
		"cuts all": func(http.Handler) http.Handler { return cutting(cfg.timeout) },
		"does not read": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "20") })
		},
	} {
		var faults fault.List
		u, err := tryUploads(t.Context(), cfg, broken, &faults)
		assert.NoError(t, err, name)
		u.compare(&faults, cfg.clients)
		assert.Error(t, faults.Err(), name)
	}
}

// cutting is a deadline in the place of an idle timeout.
func cutting(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(d + d/2))
		receive(w, r)
		panic(http.ErrAbortHandler)
	})
}

func TestJudgeUploads(t *testing.T) {
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
		u.judge(time.Second, tt.stalls, tt.took, tt.quiet, tt.answer, tt.err, &faults)
		if tt.fault == "" {
			assert.NoError(t, faults.Err(), "%+v", tt)
			assert.EqualValues(t, 1, u.answered.Load()+u.cut.Load()+u.heldUp.Load(), "%+v", tt)
		} else {
			assert.ErrorContains(t, faults.Err(), tt.fault, "%+v", tt)
		}
	}
}
