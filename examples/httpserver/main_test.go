package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func small() config {
	cfg := defaults()
	cfg.clients, cfg.requests, cfg.timeout, cfg.slow = 20, 400, 100*time.Millisecond, 10
	return cfg
}

func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	assert.NoError(t, run(t.Context(), small(), &out))
	assert.Contains(t, out.String(), "RIGHT")
	for _, name := range []string{"the wheel", "context.WithTimeout", "http.TimeoutHandler"} {
		assert.Contains(t, out.String(), name)
	}
}

// A run that cannot fail shows nothing.
func TestBrokenDeadlinesAreFound(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests, cfg.slow, cfg.enough = 100, 30, 300*time.Millisecond
	for name, broken := range map[string]func(http.Handler) http.Handler{
		"none": func(h http.Handler) http.Handler { return h },
		"all wait for it": func(h http.Handler) http.Handler {
			return deadline(context.WithTimeout, 100*time.Millisecond, refusal, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				h.ServeHTTP(w, r)
			}))
		},
		"another message": func(h http.Handler) http.Handler {
			return deadline(context.WithTimeout, 100*time.Millisecond, "no", h)
		},
		"serves twice": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(httptest.NewRecorder(), r)
				deadline(context.WithTimeout, 100*time.Millisecond, refusal, h).ServeHTTP(w, r)
			})
		},
	} {
		var faults fault.List
		_, err := try(t.Context(), cfg, contender{name, false, broken}, &faults)
		assert.NoError(t, err, name)
		assert.Error(t, faults.Err(), name)
	}
}

// Handlers give up at some time, so that nothing hangs where no deadline comes, but not before it
// has come, and been seen on a machine that stands still for seconds.
func TestPatientHandlersOutlastTheDeadline(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests, cfg.slow, cfg.timeout, cfg.enough = 20, 100, 4*time.Second, 4*time.Second
	var faults fault.List
	_, err := try(t.Context(), cfg, contender{"late", false, func(h http.Handler) http.Handler {
		return deadline(context.WithTimeout, cfg.timeout, refusal, h)
	}}, &faults)
	assert.NoError(t, err)
	assert.NoError(t, faults.Err())
}

// With so much time between the two that no busy machine makes up for it.
func TestEarlyDeadlinesAreFound(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests, cfg.slow, cfg.timeout = 20, 100, 4*time.Second
	early := func(h http.Handler) http.Handler { return deadline(context.WithTimeout, time.Millisecond, refusal, h) }
	var faults fault.List
	_, err := try(t.Context(), cfg, contender{"early", false, early}, &faults)
	assert.NoError(t, err)
	assert.ErrorContains(t, faults.Err(), "before the deadline")
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  kind
		code  int
		body  string
		took  time.Duration
		fault string
	}{
		{quick, 200, "done: /quick 1", 0, ""},
		{quick, 503, refusal, time.Second, ""},
		{quick, 503, refusal, time.Second - 1, "before the deadline"},
		{deaf, 503, "", time.Second, "with the body"},
		{deaf, 503, refusal, time.Second, ""},
		{deaf, 200, "done: /deaf 1", time.Minute, "instead of 503"},
		{quick, 200, "done: /quick 2", 0, "quick 1"},
		{quick, 500, "done: /quick 1", 0, "quick 1"},
	} {
		l := load{timeout: time.Second, faults: &fault.List{}, quick: latency.New(), late: latency.New()}
		l.judge(tt.kind, "1", tt.code, tt.body, tt.took)
		if tt.fault == "" {
			assert.NoError(t, l.faults.Err(), "%+v", tt)
			assert.EqualValues(t, 1, l.answered.Load()+l.refused.Load(), "%+v", tt)
		} else {
			assert.ErrorContains(t, l.faults.Err(), tt.fault, "%+v", tt)
		}
	}
}

// What may let a late answer pass may do so for each handler that is too slow, but not before the
// deadline.
func TestJudgeLenient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  kind
		code  int
		took  time.Duration
		fault bool
	}{
		{patient, 200, time.Second, false},
		{deaf, 200, time.Minute, false},
		{upstream, 502, time.Second, false},
		{patient, 200, time.Second - 1, true},
		{patient, 502, time.Second, true},
		{upstream, 200, time.Second, true},
		{upstream, 502, time.Second - 1, true},
	} {
		l := load{lenient: true, timeout: time.Second, faults: &fault.List{}}
		l.judge(tt.kind, "1", tt.code, "", tt.took)
		assert.Equal(t, tt.fault, l.faults.Err() != nil, "%+v", tt)
		assert.Equal(t, tt.fault, l.tooLate.Load() == 0, "%+v", tt)
	}
}

// Ctrl-C ends everything at once, and what had no answer yet is no fault.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests = 10_000_000
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
	assert.NotContains(t, out.String(), "RIGHT", "not all answers were looked at")
}

// Handlers that have a minute, or ignore that they have not, end with it.
func TestInterruptEndsHandlers(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.slow, cfg.timeout = 100, time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	assert.NoError(t, run(ctx, cfg, io.Discard))
	assert.Less(t, time.Since(begin), 45*time.Second)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, httpserver, []string{"clients", "requests", "timeout", "slow", "seed"})
	programtest.Refuses(t, httpserver, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-clients", "0"}, Want: []string{`"0"`, "-clients", "from 1 to 5000"}},
		{Args: []string{"-timeout", "1ms"}, Want: []string{`"1ms"`, "-timeout", "from 10ms to 1m0s"}},
		{Args: []string{"-requests", "10"}, Want: []string{"-requests 10", "-clients 200", "at least one"}},
	})
}
