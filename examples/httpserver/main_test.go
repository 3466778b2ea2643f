package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
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

func TestRunFindsNoFault(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	assert.NoError(t, run(t.Context(), small(), &out))
	assert.Contains(t, out.String(), "PASS")
	for _, name := range []string{"the wheel", "context.WithTimeout", "http.TimeoutHandler"} {
		assert.Contains(t, out.String(), name)
	}
}

func TestBrokenDeadlinesAreFound(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests, cfg.slow, cfg.maxWait = 100, 30, 300*time.Millisecond
	var running sync.WaitGroup
	defer running.Wait()
	for name, broken := range map[string]func(http.Handler) http.Handler{
		"none": func(h http.Handler) http.Handler { return h },
		"all requests wait": func(h http.Handler) http.Handler {
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
		running.Go(func() {
			var faults fault.List
			_, err := runClients(t.Context(), cfg, limiter{name, false, broken}, &faults)
			assert.NoError(t, err, name)
			assert.Error(t, faults.Err(), name)
		})
	}
}

// Handlers give up so that nothing hangs without a deadline, but only some time after the deadline,
// also on a machine that stalls.
func TestHandlersGiveUpAfterTheDeadline(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests, cfg.slow, cfg.timeout, cfg.maxWait = 20, 100, 2*time.Second, 2*time.Second
	var faults fault.List
	_, err := runClients(t.Context(), cfg, limiter{"late", false, func(h http.Handler) http.Handler {
		return deadline(context.WithTimeout, cfg.timeout, refusal, h)
	}}, &faults)
	assert.NoError(t, err)
	assert.NoError(t, faults.Err())
}

// The deadlines are so early that a slow machine does not hide the fault.
func TestEarlyDeadlinesAreFound(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests, cfg.slow, cfg.timeout = 20, 100, time.Second
	early := func(h http.Handler) http.Handler { return deadline(context.WithTimeout, time.Millisecond, refusal, h) }
	var faults fault.List
	_, err := runClients(t.Context(), cfg, limiter{"early", false, early}, &faults)
	assert.NoError(t, err)
	assert.ErrorContains(t, faults.Err(), "before the deadline")
}

func TestCheckFindsEachFault(t *testing.T) {
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
		{ignoring, 503, "", time.Second, "with the body"},
		{ignoring, 503, refusal, time.Second, ""},
		{ignoring, 200, "done: /ignoring 1", time.Minute, "instead of 503"},
		{quick, 200, "done: /quick 2", 0, "quick 1"},
		{quick, 500, "done: /quick 1", 0, "quick 1"},
	} {
		l := load{timeout: time.Second, faults: &fault.List{}, quick: latency.New(), late: latency.New()}
		l.check(tt.kind, "1", tt.code, tt.body, tt.took)
		if tt.fault == "" {
			assert.NoError(t, l.faults.Err(), "%+v", tt)
			assert.EqualValues(t, 1, l.answered.Load()+l.refused.Load(), "%+v", tt)
		} else {
			assert.ErrorContains(t, l.faults.Err(), tt.fault, "%+v", tt)
		}
	}
}

// A lenient check accepts a late answer of every slow handler, but no answer before the deadline.
func TestLenientCheckAcceptsLateAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  kind
		code  int
		took  time.Duration
		fault bool
	}{
		{waiting, 200, time.Second, false},
		{ignoring, 200, time.Minute, false},
		{upstream, 502, time.Second, false},
		{waiting, 200, time.Second - 1, true},
		{waiting, 502, time.Second, true},
		{upstream, 200, time.Second, true},
		{upstream, 502, time.Second - 1, true},
	} {
		l := load{lenient: true, timeout: time.Second, faults: &fault.List{}}
		l.check(tt.kind, "1", tt.code, "", tt.took)
		assert.Equal(t, tt.fault, l.faults.Err() != nil, "%+v", tt)
		assert.Equal(t, tt.fault, l.tooLate.Load() == 0, "%+v", tt)
	}
}

// Ctrl-C ends the run, and a missing answer is not a fault then.
func TestInterruptEndsTheRun(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.requests = 10_000_000
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
	assert.NotContains(t, out.String(), "PASS", "some answers are missing")
}

// Handlers return, whether their deadline is a minute away or they ignore it.
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

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, httpserver, []string{"clients", "requests", "timeout", "slow", "seed"})
	programtest.Refuses(t, httpserver, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-clients", "0"}, Want: []string{`"0"`, "-clients", "from 1 to 5000"}},
		{Args: []string{"-timeout", "1ms"}, Want: []string{`"1ms"`, "-timeout", "from 10ms to 1m0s"}},
		{Args: []string{"-requests", "10"}, Want: []string{"-requests is 10", "at least -clients, which is 200"}},
	})
}
