package live_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/timingwheel-go/timingwheel/examples/internal/live"
)

func TestOnlyTerminalsHaveAWidth(t *testing.T) {
	t.Parallel()
	_, ok := live.Width(&bytes.Buffer{})
	assert.False(t, ok)
}

func TestLineThatEndsImmediatelyShowsTheLastMessage(t *testing.T) {
	t.Parallel()
	for _, value := range []int64{-1, 0, 50, 100, 1000} {
		var out bytes.Buffer
		l := live.Start(&out, live.Options{Columns: 100, Bar: 10, Total: 100, Message: "first", Every: time.Millisecond})
		l.Update(value, "second")
		l.End()
		assert.Contains(t, out.String(), "second", value)
	}
}
