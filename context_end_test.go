package timingwheel

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever finds that a context goes on, and looks further above when it has ended and left, learns how it has ended.
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
