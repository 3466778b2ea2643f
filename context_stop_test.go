package timingwheel

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests of contexts of a stopped wheel, whose deadlines the runtime's timers keep.

// stoppedFamily is a context of a wheel with contexts of all kinds below it.
type stoppedFamily struct {
	all     []context.Context
	cancels []context.CancelFunc
}

func (f *stoppedFamily) add(ctx context.Context, cancel context.CancelFunc) context.Context {
	f.all, f.cancels = append(f.all, ctx), append(f.cancels, cancel)
	return ctx
}

func (f *stoppedFamily) cancel() {
	for _, cancel := range f.cancels {
		cancel()
	}
}

// newStoppedFamily makes contexts of both packages that all end d from now, with errCause.
func newStoppedFamily(tw *TimingWheel, parent context.Context, d time.Duration) *stoppedFamily {
	f := new(stoppedFamily)
	ctx := f.add(tw.WithTimeoutCause(parent, d, errCause))
	f.add(context.WithCancel(ctx))
	f.add(context.WithTimeout(ctx, d+time.Hour))
	f.add(context.WithTimeout(context.WithValue(ctx, testKey(1), 1), d+time.Hour))
	f.add(tw.WithTimeout(ctx, d+time.Hour))
	f.add(tw.WithTimeout(context.WithValue(ctx, testKey(1), 1), d+time.Hour))
	f.add(tw.WithTimeoutCause(parent, d, errCause)) // no call to Done before the end
	return f
}

// Contexts end at their deadlines although the wheel is stopped, a Manual one included, whether
// they were made before or after Stop. Package context relies on that: below an earlier deadline it
// makes no timer.
func TestDeadlinesOutliveTheWheel(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"pooled":     {Shards: 3},
		"inline":     {Executor: Inline},
		"goroutines": {Executor: Goroutines},
		"manual":     {Manual: true, Start: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		for parentName, newParent := range parents {
			t.Run(name+"/"+parentName, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					tw, other := startWheel(t, opts), startWheel(t, Options{})
					parent, end := newParent(other)
					defer end()
					before := newStoppedFamily(tw, parent, 10*time.Minute)
					left := newStoppedFamily(tw, parent, 10*time.Minute)
					tw.Stop()
					after := newStoppedFamily(tw, parent, 20*time.Minute)
					assertGoesOn(t, before.all...)
					assertGoesOn(t, after.all...)
					left.cancel()
					synctest.Wait()
					assertAllEnded(t, left.all, context.Canceled, context.Canceled)

					time.Sleep(10*time.Minute - 1)
					assertGoesOn(t, before.all...)
					passDeadline(1)
					assertAllEnded(t, before.all, context.DeadlineExceeded, errCause)
					assertGoesOn(t, after.all...)
					passDeadline(10 * time.Minute)
					assertAllEnded(t, after.all, context.DeadlineExceeded, errCause)
					assertAllEnded(t, left.all, context.Canceled, context.Canceled)
					assert.Nil(t, tw.engine.lasting.timers, "the map must be released, because it does not shrink")
					before.cancel()
					after.cancel()
					assertAllEnded(t, before.all, context.DeadlineExceeded, errCause)
				})
			})
		}
	}
}

// The clock of a Manual wheel, which may show any date, ends contexts. After Stop, the time that
// was left on it passes in real time.
func TestDeadlineOfAManualWheelPassesInRealTimeAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, start := range []time.Time{
			time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC), time.Now(), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
		} {
			tw := startWheel(t, Options{Manual: true, Start: start})
			half, cancelHalf := tw.WithDeadlineCause(context.Background(), start.Add(30*time.Minute), errCause)
			defer cancelHalf()
			hour, cancelHour := tw.WithTimeout(context.Background(), time.Hour)
			defer cancelHour()
			tw.Advance(start.Add(30*time.Minute - 1))
			assertGoesOn(t, half)
			tw.Advance(start.Add(30 * time.Minute))
			assertEnded(t, half, context.DeadlineExceeded, errCause)
			past, cancelPast := tw.WithDeadlineCause(context.Background(), tw.Now(), errCause)
			defer cancelPast()
			assertEnded(t, past, context.DeadlineExceeded, errCause)
			tw.Advance(start.Add(50 * time.Minute))
			tw.Stop()
			minute, cancelMinute := tw.WithTimeout(hour, time.Minute)
			defer cancelMinute()
			long, cancelLong := tw.WithTimeout(hour, time.Hour)
			defer cancelLong()
			at, _ := minute.Deadline()
			assert.True(t, at.Equal(start.Add(51*time.Minute)), "the wheel's clock must stand still after Stop")
			at, _ = long.Deadline()
			assert.True(t, at.Equal(start.Add(time.Hour)), "the deadline must be the parent's")
			time.Sleep(time.Minute - 1)
			assertGoesOn(t, minute)
			passDeadline(1)
			assertEnded(t, minute, context.DeadlineExceeded, context.DeadlineExceeded)
			assertGoesOn(t, hour, long)
			passDeadline(9 * time.Minute)
			assertEnded(t, hour, context.DeadlineExceeded, context.DeadlineExceeded)
			assertEnded(t, long, context.DeadlineExceeded, context.DeadlineExceeded)
		}
	})
}

// Stop races with deadlines and with cancels. Each context ends once, with the right error.
func TestRaceStopWithDeadlinesAndCancels(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{
		{}, {Executor: Inline}, {Executor: Goroutines}, {Shards: 1}, {Executor: limitOf(1)}, {Executor: lateExecutor{}},
	} {
		opts.Tick = 50 * time.Microsecond
		for round := range scaled(100) {
			tw := startWheel(t, opts)
			var all, early []context.Context
			var cancels []context.CancelFunc
			for i := range 300 {
				ctx, cancel := tw.WithTimeoutCause(context.Background(), time.Duration(i%30)*20*time.Microsecond, errCause)
				below, cancelBelow := context.WithTimeout(ctx, time.Hour)
				defer cancelBelow()
				all = append(all, ctx, below)
				late, cancelLate := tw.WithTimeout(context.Background(), time.Hour<<(i%18)) // up to years
				early, cancels = append(early, late), append(cancels, cancelLate)
				defer cancel()
			}
			var group sync.WaitGroup
			group.Go(func() {
				time.Sleep(time.Duration(round%10) * 60 * time.Microsecond)
				tw.Stop()
			})
			group.Go(func() {
				for _, cancel := range cancels {
					cancel()
				}
			})
			for _, ctx := range all {
				receive(t, ctx.Done(), "the deadline")
				at, _ := ctx.Deadline()
				require.False(t, time.Now().Before(at), "early")
				require.Equal(t, context.DeadlineExceeded, ctx.Err())
				require.Equal(t, errCause, context.Cause(ctx))
			}
			group.Wait()
			for _, ctx := range early {
				require.Equal(t, context.Canceled, ctx.Err())
			}
			tw.engine.lasting.mu.Lock()
			require.Empty(t, tw.engine.lasting.timers)
			tw.engine.lasting.mu.Unlock()
		}
	}
}

// Stop discards all callbacks except the deadlines of contexts.
func TestOnlyContextsOutliveTheWheel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{})
		ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		never := func() { assert.Fail(t, "a callback ran on a stopped wheel") }
		tw.AfterFunc(time.Minute, never)
		tw.AfterFunc(time.Hour, func() { cancel() })
		tw.ScheduleFunc(Every(time.Minute), never)
		tw.NewFuncTimer(time.Minute, never)
		other := startWheel(t, Options{})
		foreign, cancelForeign := other.WithTimeout(context.Background(), 2*time.Hour)
		defer cancelForeign()
		tw.AfterFunc(time.Second, cancel) // cancel functions as callbacks
		tw.AfterFunc(time.Second, cancelForeign)
		tw.Stop()
		s := tw.Stats()
		assert.EqualValues(t, 7, s.Discarded)
		passDeadline(time.Minute)
		assertEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
		time.Sleep(time.Hour)
		assertGoesOn(t, foreign)
	})
}

// A context of the wheel limits the wheel's own Shutdown, even if a callback blocks the only
// goroutine of a Limit.
func TestContextLimitsShutdownWithABlockedCallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range []Options{{}, {Executor: limitOf(1)}, {Executor: limitOf(1), Shards: 3}, {Executor: Goroutines}} {
			tw := startWheel(t, opts)
			blocked := make(chan struct{})
			tw.AfterFunc(0, func() { <-blocked })
			passDeadline(time.Second)
			ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
			due, cancelDue := tw.WithTimeout(context.Background(), time.Second)
			_ = due.Done()
			passDeadline(time.Second)
			assert.Equal(t, context.DeadlineExceeded, tw.Shutdown(ctx))
			synctest.Wait()
			assert.Equal(t, context.DeadlineExceeded, due.Err())
			assert.Empty(t, tw.engine.lasting.timers)
			cancel()
			cancelDue()
			close(blocked)
		}
	})
}
