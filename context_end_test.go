package timingwheel

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever finds that a context goes on, and looks further above when it has ended and left, learns
// how it has ended.
func TestContextThatEndsBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	for name, newParent := range parents {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, end, _ := newParent(tw)
			defer end()
			for range 3 {
				ctx, cancel := tw.WithTimeout(parent, time.Minute)
				c := ctx.(*deadlineContext)
				require.Nil(t, c.look(), name)
				cancel()
				assert.Same(t, &cancelled, c.above(), name)
				assert.Equal(t, context.Canceled, c.Err(), name)
			}
		})
	}
}

// Where somebody has begun to end a context in the middle, cancel of one above ends what is below
// it all the same, as in package context.
func TestCancelAboveOneThatIsBeingEnded(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		var cancels []func()
		ctx := context.Background()
		var chain [4]*deadlineContext
		var theirs [4]context.Context
		for i := range chain {
			var cancel, cancelTheirs func()
			ctx, cancel = tw.WithTimeout(ctx, time.Hour)
			chain[i] = ctx.(*deadlineContext)
			theirs[i], cancelTheirs = context.WithCancel(ctx)
			cancels = append(cancels, cancel, cancelTheirs)
		}
		require.True(t, chain[1].end.CompareAndSwap(nil, &timedOut))
		chain[0].cancel()
		for i, c := range chain[1:] { // nobody is asked
			require.Same(t, &timedOut, c.end.Load(), i)
			assert.Equal(t, context.DeadlineExceeded, theirs[i+1].Err(), i)
		}
		assert.Equal(t, context.Canceled, theirs[0].Err())
		chain[1].timer.Stop()
		for _, cancel := range cancels {
			cancel()
		}
	})
}

// Whoever cancels a context that another is ending, or one above it, returns when all that is below
// has ended.
func TestSecondCancelWaitsForAllBelow(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"the same": 0, "below": 1} {
		tw := startWheel(t, Options{})
		var chain [3]context.Context
		var cancels [3]context.CancelFunc
		parent := context.Background()
		for i := range chain {
			chain[i], cancels[i] = tw.WithTimeout(parent, time.Hour)
			parent = chain[i]
		}
		theirs, cancelTheirs := context.WithCancel(parent)
		s := parent.(*deadlineContext).standIn.Load()
		cancel, begun, proceed := s.cancel, make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		s.cancel = func() { // as slow as if there were a million children
			if calls.Add(1) == 1 {
				close(begun)
				<-proceed
			}
			cancel()
		}
		returned := make(chan struct{})
		go func() {
			cancels[first]()
			close(returned)
		}()
		receive(t, begun, "the first cancel")
		// It waits for this. If it came back before, nothing would have ended.
		time.AfterFunc(20*time.Millisecond, func() { close(proceed) })
		cancels[0]()
		assert.Equal(t, context.Canceled, theirs.Err(), name)
		receive(t, returned, "the return of the first cancel")
		assert.EqualValues(t, 1, calls.Load(), name)
		cancelTheirs()
		for _, cancel := range cancels {
			cancel()
		}
	}
}
