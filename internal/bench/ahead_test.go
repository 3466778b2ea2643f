package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInTimeRetriesWithMoreTime(t *testing.T) {
	t.Parallel()
	var tried []time.Duration
	require.NoError(t, InTime(100, time.Second, func(ahead time.Duration) (int, error) {
		tried = append(tried, ahead)
		switch len(tried) {
		case 1:
			return 90, ErrTooSlow
		case 2:
			return 50, ErrTooSlow
		case 3:
			return 0, ErrTooSlow
		default:
			return 100, nil
		}
	}))
	assert.Equal(t, []time.Duration{1 * time.Second, 2 * time.Second, 6 * time.Second, 24 * time.Second}, tried)
}

func TestInTimeGivesUpAfterMaxAhead(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	require.ErrorIs(t, InTime(1e9, time.Second, func(ahead time.Duration) (int, error) { last = ahead; return 0, ErrTooSlow }), ErrTooSlow)
	assert.Equal(t, maxAhead, last)
	broken := errors.New("broken")
	calls := 0
	require.ErrorIs(t, InTime(1, time.Second, func(time.Duration) (int, error) { calls++; return 0, broken }), broken)
	assert.Equal(t, 1, calls, "other errors must not be retried")
}
