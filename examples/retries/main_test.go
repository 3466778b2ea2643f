package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func TestRunFindsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.jobs = 2000
		var out bytes.Buffer
		assert.NoError(t, run(t.Context(), cfg, &out))
		assert.Contains(t, out.String(), "PASS")
	})
}

// The budget limits the load on a server that is down. Jobs succeed with and without it.
func TestBudgetLimitsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.jobs = 2000
		var faults fault.List
		free, err := runJobs(t.Context(), cfg, nil, &faults)
		assert.NoError(t, err)
		limited, err := runJobs(t.Context(), cfg, NewBudget(cfg.size, cfg.refill), &faults)
		assert.NoError(t, err)
		assert.NoError(t, faults.Err())
		assert.Greater(t, free.whileDown, 3*limited.whileDown)
		assert.Zero(t, free.budget)
		assert.Positive(t, limited.budget)
		for _, o := range []*outcome{free, limited} {
			assert.Equal(t, cfg.jobs, o.succeeded+o.refused+o.attempts+o.budget+o.cancelled)
			assert.Positive(t, o.succeeded)
			assert.Positive(t, o.refused)
		}
		assert.Positive(t, free.cancelled)
	})
}

func TestInterruptEndsTheRun(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.arrive, cfg.down = time.Hour, 0
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
}

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	ended := func(attempts, served int, malformed bool, err error) *task {
		t := &task{id: 7, malformed: malformed, result: Result{attempts, err}}
		t.attempts.Store(int32(attempts))
		t.served.Store(int32(served))
		t.ends.Store(1)
		return t
	}
	exhausted := fmt.Errorf("%w: %w", ErrAttempts, errFailed)
	lost := ended(1, 0, false, nil)
	lost.ends.Store(0)
	uncounted := ended(2, 1, false, nil)
	uncounted.result.Attempts = 1
	for _, tt := range []struct {
		task  *task
		fault string
	}{
		{ended(1, 1, false, nil), ""},
		{ended(8, 1, false, nil), ""},
		{ended(8, 0, false, exhausted), ""},
		{ended(1, 0, true, Permanent(errMalformed)), ""},
		{ended(0, 0, false, context.Canceled), ""},
		{lost, "has not ended"},
		{uncounted, "counted 2"},
		{ended(9, 1, false, nil), "9 attempts"},
		{ended(2, 2, false, nil), "served 2 times"},
		{ended(2, 0, false, nil), "served 0 times"},
		{ended(2, 1, false, context.Canceled), "served 1 times"},
		{ended(2, 0, true, Permanent(errMalformed)), "refused after 2"},
		{ended(7, 0, false, exhausted), "gave up after 7"},
		{ended(1, 0, false, errFailed), "ended with the server has failed"},
	} {
		var faults fault.List
		(&outcome{}).check(tt.task, cfg, &faults)
		if tt.fault == "" {
			assert.NoError(t, faults.Err())
		} else {
			assert.ErrorContains(t, faults.Err(), tt.fault)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, retries, []string{"jobs", "arrive", "down", "flaky", "attempts", "base", "cap", "seed"})
	programtest.Refuses(t, retries, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-jobs", "0"}, Want: []string{`"0"`, "-jobs", "from 1 to 10000000"}},
		{Args: []string{"-down", "2s"}, Want: []string{"-down is 2s", "-arrive", "1.5s"}},
		{Args: []string{"-base", "1s"}, Want: []string{"-cap is 400ms", "at least -base", "1s"}},
	})
}
