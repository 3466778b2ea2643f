package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errCause = errors.New("the cause")

// contextBubble runs a test with a wheel on fake time. Nothing may be left of the contexts when it
// ends.
func contextBubble(t *testing.T, body func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{})
		body(t, tw)
		synctest.Wait()
		assert.Zero(t, tw.Len(), "timers are left")
		for i := range tw.families.stripes {
			assert.Nil(t, tw.families.stripes[i].by, "families are left, or the map of those that were there")
		}
	})
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// assertEnded asserts that a context has ended in a way, and that all of it says so.
func assertEnded(t *testing.T, ctx context.Context, err, cause error) {
	t.Helper()
	assert.Equal(t, err, ctx.Err())
	assert.Equal(t, cause, context.Cause(ctx))
	assert.True(t, ended(ctx), "Done is closed")
}

func assertAllEnded(t *testing.T, all []context.Context, err, cause error) {
	t.Helper()
	for _, ctx := range all {
		assertEnded(t, ctx, err, cause)
	}
}

func assertGoesOn(t *testing.T, all ...context.Context) {
	t.Helper()
	for _, ctx := range all {
		assert.NoError(t, ctx.Err())
		assert.NoError(t, context.Cause(ctx))
		assert.False(t, ended(ctx))
	}
}

func TestContextEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		make  func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc)
		cause error
	}{
		"WithTimeout": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithTimeout(context.Background(), d)
		}, context.DeadlineExceeded},
		"WithTimeoutCause": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithTimeoutCause(context.Background(), d, errCause)
		}, errCause},
		"WithTimeoutCause of nil": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithTimeoutCause(context.Background(), d, nil)
		}, context.DeadlineExceeded},
		"WithDeadline": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithDeadline(context.TODO(), time.Now().Add(d))
		}, context.DeadlineExceeded},
		"WithDeadline of a date": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithDeadline(context.TODO(), time.Now().Add(d).Round(0))
		}, context.DeadlineExceeded},
		"WithDeadlineCause": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithDeadlineCause(context.Background(), time.Now().Add(d), errCause)
		}, errCause},
	} {
		for _, d := range []time.Duration{1, time.Millisecond, 1500 * time.Microsecond, time.Minute, oneYear} {
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				ctx, cancel := with.make(tw, d)
				defer cancel()
				assertGoesOn(t, ctx)
				deadline, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.True(t, deadline.Equal(start.Add(d)), name)
				time.Sleep(d - 1)
				assertGoesOn(t, ctx)
				<-ctx.Done()
				assert.GreaterOrEqual(t, time.Since(start), d, name)
				assert.LessOrEqual(t, time.Since(start), d+defaultTick, name)
				assertEnded(t, ctx, context.DeadlineExceeded, with.cause)
				cancel()
				assertEnded(t, ctx, context.DeadlineExceeded, with.cause)
			})
		}
	}
}

func TestContextIsCancelled(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeoutCause(t.Context(), time.Hour, errCause)
		done := ctx.Done()
		assert.Equal(t, done, ctx.Done(), "always the same channel")
		assert.Equal(t, 1, tw.Len())
		cancel()
		assert.Zero(t, tw.Len(), "the timer is gone at once")
		assertEnded(t, ctx, context.Canceled, context.Canceled)
		cancel()
		time.Sleep(2 * time.Hour)
		assertEnded(t, ctx, context.Canceled, context.Canceled)
		deadline, ok := ctx.Deadline()
		assert.True(t, ok, "also afterwards")
		assert.False(t, deadline.IsZero())
	})
}

func TestContextThatHasPassed(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			ctx, cancel := tw.WithTimeoutCause(t.Context(), d, errCause)
			assertEnded(t, ctx, context.DeadlineExceeded, errCause)
			cancel()
			assertEnded(t, ctx, context.DeadlineExceeded, errCause)
		}
		ctx, cancel := tw.WithDeadline(t.Context(), time.Time{})
		defer cancel()
		assertEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)

		parent, end := context.WithCancelCause(t.Context())
		end(errCause)
		for _, d := range []time.Duration{-1, time.Hour} {
			ctx, cancel := tw.WithTimeout(parent, d)
			assertEnded(t, ctx, context.Canceled, errCause)
			cancel()
		}
	})
}

func TestContextOfAFarDeadline(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeout(t.Context(), math.MaxInt64)
		time.Sleep(oneYear)
		assertGoesOn(t, ctx)
		cancel()
		ctx, cancel = tw.WithDeadline(t.Context(), time.Unix(1<<40, 0))
		time.Sleep(oneYear)
		assertGoesOn(t, ctx)
		cancel()
	})
}

func TestEarlierDeadlineOfTheParentWins(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			early := time.Now().Add(time.Second)
			parent, end := context.WithDeadlineCause(t.Context(), early, errCause)
			if own {
				parent, end = tw.WithDeadlineCause(t.Context(), early, errCause)
			}
			defer end()
			child, cancel := tw.WithTimeoutCause(parent, time.Hour, errors.New("of the child"))
			defer cancel()
			deadline, ok := child.Deadline()
			assert.True(t, ok)
			assert.True(t, deadline.Equal(early))
			time.Sleep(time.Second - 1)
			assertGoesOn(t, child)
			time.Sleep(2 * defaultTick)
			assertEnded(t, child, context.DeadlineExceeded, errCause)
		})
	}
}

// An error of a context that is late is one of a network timeout, too.
func TestContextErrorIsATimeout(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	ctx, cancel := tw.WithTimeout(t.Context(), 0)
	defer cancel()
	var timeout interface{ Timeout() bool }
	require.ErrorAs(t, ctx.Err(), &timeout)
	assert.True(t, timeout.Timeout())
}

func TestContextOfANilParentPanics(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	var none context.Context
	assert.PanicsWithValue(t, "timingwheel: context of a nil parent", func() { _, _ = tw.WithTimeout(none, time.Hour) })
	assert.PanicsWithValue(t, "timingwheel: context of a nil parent", func() { _, _ = WithDeadline(none, time.Now()) })
}

func TestContextsOfThePackageUseDefault(t *testing.T) {
	t.Parallel()
	for _, with := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			return WithTimeout(context.Background(), time.Millisecond)
		},
		func() (context.Context, context.CancelFunc) {
			return WithTimeoutCause(context.Background(), time.Millisecond, context.DeadlineExceeded)
		},
		func() (context.Context, context.CancelFunc) {
			return WithDeadline(context.Background(), time.Now().Add(time.Millisecond))
		},
		func() (context.Context, context.CancelFunc) {
			return WithDeadlineCause(context.Background(), time.Now().Add(time.Millisecond), context.DeadlineExceeded)
		},
	} {
		ctx, cancel := with()
		require.IsType(t, &deadlineContext{}, ctx)
		receive(t, ctx.Done(), "the deadline")
		assertEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
		cancel()
	}
}

func TestContextOfAManualWheel(t *testing.T) {
	t.Parallel()
	start := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	tw := startWheel(t, Options{Manual: true, Start: start})
	ctx, cancel := tw.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	other, cancelOther := tw.WithDeadline(t.Context(), start.Add(2*time.Hour))
	defer cancelOther()
	deadline, _ := ctx.Deadline()
	assert.True(t, deadline.Equal(start.Add(time.Hour)))
	tw.Advance(start.Add(time.Hour - 1))
	assertGoesOn(t, ctx)
	tw.Advance(start.Add(time.Hour))
	assertEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
	assertGoesOn(t, other)
	past, cancelPast := tw.WithDeadline(t.Context(), start)
	defer cancelPast()
	assertEnded(t, past, context.DeadlineExceeded, context.DeadlineExceeded)
}

// A deadline is kept where the wheel was stopped before, and discarded where it is stopped later.
func TestContextOfAStoppedWheel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{})
		before, cancelBefore := tw.WithTimeout(t.Context(), time.Second)
		defer cancelBefore()
		tw.Stop()
		ctx, cancel := tw.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		assertGoesOn(t, ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		assertEnded(t, ctx, context.DeadlineExceeded, errCause)
		assertGoesOn(t, before)
		cancelBefore()
		assertEnded(t, before, context.Canceled, context.Canceled)
	})
	manual := startWheel(t, Options{Manual: true})
	manual.Stop()
	ctx, cancel := manual.WithTimeout(t.Context(), time.Nanosecond)
	assertGoesOn(t, ctx)
	cancel()
	assertEnded(t, ctx, context.Canceled, context.Canceled)
}

func TestContextOfValues(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		type key string
		parent := context.WithValue(t.Context(), key("a"), 1)
		ctx, cancel := tw.WithTimeout(parent, time.Hour)
		defer cancel()
		child := context.WithValue(ctx, key("b"), 2)
		assert.Equal(t, 1, child.Value(key("a")))
		assert.Equal(t, 2, child.Value(key("b")))
		assert.Nil(t, ctx.Value(key("b")))
		assert.Nil(t, ctx.Value(new(int)), "a key like those of package context")
		assert.Nil(t, ctx.Value("a"))
		assert.Contains(t, fmt.Sprint(ctx), "WithDeadline(")
	})
}
