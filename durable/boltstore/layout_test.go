package boltstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A state that was written before the last counter was known is read, and anything else is damage.
func TestStateWithoutLaterCounters(t *testing.T) {
	t.Parallel()
	whole := state{tokens: 1, records: 2, dead: 3, enqueued: 4, acked: 5, retried: 6, buried: 7, cancelled: 8, crashed: 9, deadBytes: 10, trimmed: 11, expired: 12}
	b := whole.encode()
	require.Len(t, b, stateSize)
	got, err := decodeState(b)
	require.NoError(t, err)
	require.Equal(t, whole, got)
	got, err = decodeState(b[:oldStateSize])
	require.NoError(t, err)
	whole.deadBytes, whole.trimmed, whole.expired = 0, 0, 0
	require.Equal(t, whole, got)
	for _, bad := range [][]byte{nil, b[:oldStateSize-8], b[:oldStateSize+1], append(b, make([]byte, 8)...)} {
		_, err = decodeState(bad)
		require.ErrorIs(t, err, ErrCorrupt, "%d bytes", len(bad))
	}
}
