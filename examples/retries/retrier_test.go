package main

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

func TestBoundDoublesUpToTheCap(t *testing.T) {
	t.Parallel()
	p := Policy{Base: 10, Cap: 65, Attempts: 5}
	for attempts, want := range map[int]time.Duration{1: 10, 2: 20, 3: 40, 4: 65, 5: 65, 1000: 65} {
		assert.Equal(t, want, p.bound(attempts), "after %d attempts", attempts)
	}
	largest := Policy{Base: 1, Cap: math.MaxInt64, Attempts: 1}
	assert.Equal(t, time.Duration(1)<<62, largest.bound(63))
	assert.Equal(t, time.Duration(math.MaxInt64), largest.bound(64))
}

func TestWaitIsJittered(t *testing.T) {
	t.Parallel()
	p, rng := Policy{Base: 100, Cap: 1000, Attempts: 5}, newRand(1, 1)
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for range 10_000 {
		d := p.wait(3, rng)
		least, most = min(least, d), max(most, d)
	}
	assert.Zero(t, least)
	assert.Equal(t, 400*time.Nanosecond, most)
}

func TestBadPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Policy{
		"Base is 0s":     {Cap: 1, Attempts: 1},
		"Base is -1ns":   {Base: -1, Cap: 1, Attempts: 1},
		"Cap is 1ns":     {Base: 2, Cap: 1, Attempts: 1},
		"Attempts is 0":  {Base: 2, Cap: 2},
		"Attempts is -1": {Base: 2, Cap: 2, Attempts: -1},
	} {
		_, err := NewRetrier(nil, p, nil, nil)
		assert.ErrorContains(t, err, want)
	}
	assert.PanicsWithValue(t, "retries: NewBudget: size is 0; it must be positive", func() { NewBudget(0, 1) })
	assert.PanicsWithValue(t, "retries: NewBudget: refill is -1; it must be at least 0", func() { NewBudget(1, -1) })
	assert.PanicsWithValue(t, "retries: NewBudget: refill is NaN; it must be at least 0", func() { NewBudget(1, math.NaN()) })
}

func TestBudgetAllowsRetriesWhileMoreThanHalfFull(t *testing.T) {
	t.Parallel()
	b := NewBudget(10, 0.5)
	b.success() // already full
	for range 4 {
		assert.True(t, b.failure())
	}
	assert.False(t, b.failure(), "half full")
	for range 100 {
		assert.False(t, b.failure())
	}
	for range 12 {
		b.success()
	}
	assert.False(t, b.failure(), "six tokens, of which this failure removes one")
	for range 3 {
		b.success()
	}
	assert.True(t, b.failure())
}

var errTest = errors.New("not yet")

// doJob runs a job in a synctest bubble and returns its result and time.
func doJob(t *testing.T, ctx context.Context, p Policy, budget *Budget, attempt func(context.Context) error) (Result, time.Duration) {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	r, err := NewRetrier(tw, p, budget, newRand(1, 1))
	require.NoError(t, err)
	begin := time.Now()
	results := make(chan Result, 2)
	r.Do(ctx, attempt, func(result Result) { results <- result })
	result := <-results
	took := time.Since(begin)
	time.Sleep(time.Hour)
	synctest.Wait()
	assert.Empty(t, results, "a second call to done")
	assert.Zero(t, tw.Len())
	return result, took
}

var policy = Policy{Base: time.Second, Cap: 5 * time.Second, Attempts: 6}

func TestJobSucceedsAfterRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		result, took := doJob(t, t.Context(), policy, nil, func(context.Context) error {
			times = append(times, time.Now())
			if len(times) < 5 {
				return errTest
			}
			return nil
		})
		assert.Equal(t, Result{Attempts: 5}, result)
		// The waits are as from a generator with the same seed, and at most a tick longer.
		rng, sum := newRand(1, 1), time.Duration(0)
		for i := range times[1:] {
			want, got := policy.wait(i+1, rng), times[i+1].Sub(times[i])
			assert.GreaterOrEqual(t, got, want)
			assert.LessOrEqual(t, got, want+time.Millisecond)
			sum += got
		}
		assert.Positive(t, sum)
		assert.LessOrEqual(t, took, sum+time.Millisecond)
	})
}

func TestJobGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result, took := doJob(t, t.Context(), policy, nil, func(context.Context) error { return errTest })
		assert.Equal(t, 6, result.Attempts)
		assert.ErrorIs(t, result.Err, ErrAttempts)
		assert.ErrorIs(t, result.Err, errTest)
		assert.LessOrEqual(t, took, (1+2+4+5+5)*time.Second+6*time.Millisecond)

		result, _ = doJob(t, t.Context(), policy, NewBudget(6, 0), func(context.Context) error { return errTest })
		assert.Equal(t, 3, result.Attempts)
		assert.ErrorIs(t, result.Err, ErrBudget)

		result, took = doJob(t, t.Context(), policy, NewBudget(1, 0), func(context.Context) error { return Permanent(errTest) })
		assert.Equal(t, 1, result.Attempts)
		assert.ErrorIs(t, result.Err, errTest)
		assert.NotErrorIs(t, result.Err, ErrBudget)
		assert.LessOrEqual(t, took, time.Millisecond)
	})
}

func TestJobIsCancelled(t *testing.T) {
	errGone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		result, took := doJob(t, ctx, policy, nil, func(context.Context) error {
			t.Error("an attempt after the context was done")
			return nil
		})
		assert.Equal(t, Result{Err: errGone}, result)
		assert.LessOrEqual(t, took, time.Millisecond)

		// While the job waits, it ends immediately.
		slow := Policy{Base: time.Hour, Cap: time.Hour, Attempts: 2}
		ctx, cancelWait := context.WithTimeout(t.Context(), time.Second)
		defer cancelWait()
		result, took = doJob(t, ctx, slow, nil, func(context.Context) error { return errTest })
		assert.Equal(t, Result{Attempts: 1, Err: context.DeadlineExceeded}, result)
		assert.Equal(t, time.Second, took)

		// During an attempt it ends with the attempt, and a success counts.
		for _, want := range []error{errTest, nil} {
			ctx, cancel := context.WithCancelCause(t.Context())
			result, _ = doJob(t, ctx, policy, NewBudget(1, 1), func(context.Context) error {
				cancel(errGone)
				synctest.Wait()
				return want
			})
			if want != nil {
				want = errGone
			}
			assert.Equal(t, Result{Attempts: 1, Err: want}, result)
		}
	})
}

// watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	done    chan struct{}
	waiting int
}

func (w *watchedContext) Done() <-chan struct{} { return w.done }
func (w *watchedContext) Value(any) any         { return nil }
func (w *watchedContext) AfterFunc(func()) func() bool {
	w.waiting++
	return func() bool { w.waiting--; return true }
}

// A context that lives as long as the program must not keep ended jobs.
func TestContextDoesNotKeepEndedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &watchedContext{Context: t.Context(), done: make(chan struct{})}
		doJob(t, ctx, policy, nil, func(context.Context) error {
			assert.Equal(t, 1, ctx.waiting)
			return nil
		})
		assert.Zero(t, ctx.waiting)
	})
}

// Cancellation races with the timer of the next attempt.
func TestCancelRacesWithTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		r, err := NewRetrier(tw, Policy{Base: 1, Cap: 1, Attempts: 1000}, nil, newRand(1, 1))
		require.NoError(t, err)
		var jobs sync.WaitGroup
		ends := make([]int, 1000)
		for i := range ends {
			ctx, cancel := context.WithCancel(t.Context())
			jobs.Add(1)
			r.Do(ctx, func(context.Context) error { return errTest }, func(Result) {
				ends[i]++
				jobs.Done()
			})
			time.AfterFunc(time.Duration(i%50)*time.Millisecond, cancel)
		}
		jobs.Wait()
		time.Sleep(time.Second)
		for i, n := range ends {
			assert.Equal(t, 1, n, i)
		}
		assert.Zero(t, tw.Len())
	})
}

func TestWaitingJobsHaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		r, err := NewRetrier(tw, Policy{Base: time.Hour, Cap: time.Hour, Attempts: 2}, nil, newRand(1, 1))
		require.NoError(t, err)
		var jobs sync.WaitGroup
		jobs.Add(1000)
		before := runtime.NumGoroutine()
		for range 1000 {
			r.Do(t.Context(), func(context.Context) error { return errTest }, func(Result) { jobs.Done() })
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Greater(t, tw.Len(), 990) // some waits are short
		assert.Less(t, runtime.NumGoroutine(), before+100)
		jobs.Wait()
	})
}
