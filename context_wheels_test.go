package timingwheel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// In Manual mode the causes are those of the running wheel.
func TestCausesOfAManualWheel(t *testing.T) {
	t.Parallel()
	start := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	tw := startWheel(t, Options{Manual: true, Start: start})
	for round := range 2 {
		now := start.Add(time.Duration(round) * 24 * time.Hour)
		tw.Advance(now)
		timeout, cancelTimeout := tw.WithTimeoutCause(context.Background(), time.Hour, errParent)
		defer cancelTimeout()
		deadline, cancelDeadline := tw.WithDeadlineCause(context.Background(), now.Add(2*time.Hour), errChild)
		defer cancelDeadline()
		child, cancelChild := context.WithCancel(deadline)
		defer cancelChild()
		left, leave := tw.WithTimeoutCause(context.Background(), time.Hour, errCause)
		leave()
		past, cancelPast := tw.WithDeadlineCause(context.Background(), now, errCause)
		defer cancelPast()
		assertEnded(t, past, context.DeadlineExceeded, errCause)
		at, _ := timeout.Deadline()
		assert.True(t, at.Equal(now.Add(time.Hour)))
		tw.Advance(now.Add(time.Hour - 1))
		assertGoesOn(t, timeout)
		tw.Advance(now.Add(time.Hour))
		assertEnded(t, timeout, context.DeadlineExceeded, errParent)
		assertGoesOn(t, child)
		tw.Advance(now.Add(2 * time.Hour))
		assertEnded(t, deadline, context.DeadlineExceeded, errChild)
		assertEnded(t, child, context.DeadlineExceeded, errChild)
		assertEnded(t, left, context.Canceled, context.Canceled)
		assert.Zero(t, tw.Len())
	}
}

// Contexts outlive the wheel: all but their deadlines works after Stop, for those that were made
// before and for those that come later.
func TestContextsAfterStop(t *testing.T) {
	t.Parallel()
	for name, newParent := range parents {
		for _, manual := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					tw := startWheel(t, Options{Manual: manual})
					parent, end, cause := newParent(tw)
					defer end()
					var all []context.Context
					var cancels []func()
					add := func() {
						for range 3 {
							ctx, cancel := tw.WithTimeout(parent, 30*time.Minute)
							child, cancelChild := context.WithCancel(ctx)
							left, leave := tw.WithTimeout(parent, 30*time.Minute)
							leave()
							assertEnded(t, left, context.Canceled, context.Canceled)
							cancels = append(cancels, cancel, cancelChild)
							all = append(all, ctx, child)
						}
					}
					add()
					tw.Stop()
					add()
					for _, ctx := range all {
						assertGoesOn(t, ctx)
					}
					end()
					synctest.Wait()
					for _, ctx := range all {
						assertEnded(t, ctx, context.Canceled, cause)
					}
					for _, cancel := range cancels {
						cancel()
					}
					for i := range tw.families.stripes {
						assert.Empty(t, tw.families.stripes[i].by)
					}
				})
			})
		}
	}
}

// Parent and child may be of different wheels: each keeps its own deadline.
func TestContextsOfTwoWheels(t *testing.T) {
	t.Parallel()
	start := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, first := range []string{"parent", "child", "cancel", "stopped"} {
		one, other := startWheel(t, Options{Manual: true, Start: start}), startWheel(t, Options{Manual: true, Start: start})
		parent, end := one.WithTimeoutCause(context.Background(), 2*time.Hour, errParent)
		var all []context.Context
		for range 3 {
			ctx, cancel := other.WithTimeoutCause(parent, time.Hour, errChild)
			defer cancel()
			below, cancelBelow := one.WithTimeout(context.WithValue(ctx, testKey(1), 1), time.Minute)
			defer cancelBelow()
			std, cancelStd := context.WithCancel(ctx)
			defer cancelStd()
			all = append(all, ctx, std)
			cancelBelow()
			assertEnded(t, below, context.Canceled, context.Canceled)
			assertGoesOn(t, ctx)
		}
		assert.Equal(t, 1, one.Len())
		assert.Equal(t, 3, other.Len())
		want, wantParent := outcome{}, outcome{}
		switch first {
		case "parent":
			one.Advance(start.Add(2 * time.Hour))
			want = outcome{context.DeadlineExceeded, errParent}
			wantParent = want
		case "child":
			other.Advance(start.Add(2 * time.Hour))
			want = outcome{context.DeadlineExceeded, errChild}
		case "cancel":
			end()
			want = outcome{context.Canceled, context.Canceled}
			wantParent = want
		case "stopped":
			other.Stop()
			one.Advance(start.Add(2 * time.Hour))
			want = outcome{context.DeadlineExceeded, errParent}
			wantParent = want
		}
		assertOutcome(t, parent, wantParent)
		for _, ctx := range all {
			assertOutcome(t, ctx, want)
		}
		assert.Zero(t, other.Len(), "timers are given back where they are")
		end()
		assert.Zero(t, one.Len())
	}
}

// A parent of package context has families with each wheel, which know nothing of each other.
func TestFamiliesOfTwoWheels(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, one *TimingWheel) {
		other := startWheel(t, Options{})
		parent, end := context.WithCancelCause(context.Background())
		var all []context.Context
		var cancels []func()
		for range 3 {
			for _, tw := range []*TimingWheel{one, other} {
				ctx, cancel := tw.WithTimeout(parent, time.Hour)
				all, cancels = append(all, ctx), append(cancels, cancel)
			}
		}
		for _, cancel := range cancels[:4] { // all but one of each
			cancel()
		}
		for _, tw := range []*TimingWheel{one, other} {
			known, _ := familiesOf(tw)
			assert.Equal(t, 1, known)
			assert.Equal(t, 1, tw.Len())
		}
		end(errCause)
		assertEnded(t, all[4], context.Canceled, errCause)
		assertEnded(t, all[5], context.Canceled, errCause)
		synctest.Wait()
		known, _ := familiesOf(other)
		assert.Zero(t, known)
		assert.Zero(t, other.Len())
	})
}

// Flush ends all contexts as if their time were up, with their causes, and those below with them.
func TestFlushEndsContexts(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		std, end := context.WithCancel(context.Background())
		defer end()
		var all []context.Context
		for _, parent := range []context.Context{context.Background(), std, std, std} {
			ctx, cancel := tw.WithTimeoutCause(parent, time.Hour, errCause)
			defer cancel()
			child, cancelChild := context.WithCancel(ctx)
			defer cancelChild()
			below, cancelBelow := tw.WithTimeoutCause(child, 2*time.Hour, errChild)
			defer cancelBelow()
			all = append(all, ctx, child, below)
		}
		tw.Flush()
		synctest.Wait()
		for _, ctx := range all {
			assertEnded(t, ctx, context.DeadlineExceeded, errCause)
		}
		assertGoesOn(t, std)
		known, notes := familiesOf(tw)
		assert.Zero(t, known)
		assert.Zero(t, notes)
		later, cancel := tw.WithTimeout(std, time.Hour)
		assertGoesOn(t, later)
		cancel()
	})
}
