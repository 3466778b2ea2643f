package timingwheel

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Contexts below one of package context that is itself below one of the wheel: see farBelow.

// All that share such a parent learn of the end above it when they are asked, the only child and
// the family, and those of the wheel below these.
func TestFamiliesFarBelowHaveEnded(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for first := range 9 { // whom somebody asks first
		top, end := context.WithCancelCause(context.Background())
		one, cancelOne := tw.WithTimeout(top, 5*time.Hour)
		std, cancelStd := context.WithCancel(one)
		cancels := []func(){cancelOne, cancelStd}
		var all []context.Context
		for range 3 { // an only child, and a family of two
			ctx := std
			for i := range 3 {
				var cancel func()
				ctx, cancel = tw.WithTimeout(ctx, time.Duration(4-i)*time.Hour)
				all, cancels = append(all, ctx), append(cancels, cancel)
			}
		}
		// The parent's end, and none of the goroutines that tell it.
		for _, c := range append([]context.Context{one}, all...) {
			if tie := c.(*deadlineContext).tie; tie != nil {
				tie.forget()
			}
		}
		require.True(t, all[3].(*deadlineContext).bond.Load().forget())
		end(errParent)
		assertEnded(t, all[first], context.Canceled, errParent)
		for _, c := range all {
			assertEnded(t, c, context.Canceled, errParent)
		}
		for _, cancel := range cancels {
			cancel()
		}
		await(t, "families are gone", func() bool { return noFamilies(tw) })
	}
}

// Whoever is asked while somebody ends what hangs on the context above waits for that.
func TestQuestionFarBelowWhileTheContextAboveEnds(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		top, end := tw.WithTimeout(context.Background(), 2*time.Hour)
		std, cancelStd := context.WithCancel(top)
		defer cancelStd()
		ctx, cancel := tw.WithTimeout(std, time.Hour)
		defer cancel()
		proceed := slowToEnd(top)
		go end()
		synctest.Wait()
		answer := make(chan error, 1)
		go func() { answer <- ctx.Err() }()
		synctest.Wait()
		require.Empty(t, answer)
		close(proceed)
		assert.Equal(t, context.Canceled, <-answer)
	})
}

// valuesOf has the values of another context, before its own.
type valuesOf struct {
	context.Context
	values context.Context
}

func (v valuesOf) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// What one child has around a parent is no matter of the others, and the family does not hold on to
// it.
func TestFamilyDoesNotKeepWhatIsAroundItsParent(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	server, end := context.WithCancel(context.Background())
	_, only := tw.WithTimeout(server, time.Hour)
	defer only()
	request, other := func() (weak.Pointer[deadlineContext], context.CancelFunc) {
		request, cancelRequest := tw.WithTimeout(context.Background(), time.Hour)
		defer cancelRequest()
		_, first := tw.WithTimeout(valuesOf{server, context.WithoutCancel(request)}, time.Hour)
		defer first()
		other, cancel := tw.WithTimeout(server, time.Hour)
		f := other.(*deadlineContext).bond.Load()
		require.Nil(t, f.far)
		require.Same(t, f, tw.families.stripe(server.Done()).by[server])
		return weak.Make(request.(*deadlineContext)), cancel
	}()
	defer other()
	await(t, "the request is collected", func() bool {
		runtime.GC()
		return request.Value() == nil
	})
	end()
}

// One that goes on without the cancel of a context of the wheel does not ask that one for ever, nor
// does it cost it a stand-in.
func TestContextsBelowOneWithoutCancel(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		for _, asked := range []bool{false, true} {
			for _, siblings := range []int{0, 2} {
				request, cancelRequest := tw.WithTimeoutCause(context.Background(), time.Minute, errParent)
				if asked {
					require.NotNil(t, request.Done())
				}
				std, end := context.WithCancelCause(context.WithoutCancel(request))
				for range siblings {
					_, cancel := tw.WithTimeout(std, time.Hour)
					defer cancel()
				}
				ctx, cancel := tw.WithTimeout(std, time.Hour)
				assert.Equal(t, asked, request.(*deadlineContext).standIn.Load() != nil)
				far := above(ctx).far
				require.NotNil(t, far)
				assertGoesOn(t, ctx)
				assert.Same(t, request, far.up.Load())
				passDeadline(time.Minute)
				assertGoesOn(t, ctx)
				assert.Nil(t, far.up.Load())
				assertGoesOn(t, ctx)
				end(errCause)
				assertEnded(t, ctx, context.Canceled, errCause)
				cancel()
				cancelRequest()
			}
		}
	})
}
