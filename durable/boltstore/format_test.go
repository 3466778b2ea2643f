package boltstore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// FuzzFormats decodes arbitrary bytes, as of a damaged file. If they decode without an error,
// encoding returns equal bytes.
func FuzzFormats(f *testing.F) {
	full := record{Record: driver.Record{
		ID: "a", State: driver.StateDead, Enqueued: 1, Due: driver.Never, Died: 300, MaxAttempts: 5, Attempts: 2, Crashes: 1, Token: 1 << 60,
		Reason: "for the test", Body: []byte("body"),
	}, last: driver.OpBury, suspect: true}
	f.Add(full.encode())
	f.Add((&record{Record: driver.Record{State: driver.StateScheduled}}).encode())
	f.Add(key{1 << 40, "id"}.bytes())
	f.Add((&state{tokens: 1 << 63, records: 3, crashed: 7, deadBytes: 5, trimmed: 2}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzRecord(t, b)
		if k, ok := parseKey(b); ok {
			require.Equal(t, b, k.bytes())
			require.True(t, k.before(k.next()))
		}
		if s, err := decodeState(b); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		} else {
			require.Equal(t, b, s.encode())
			require.Len(t, b, stateSize)
		}
	})
}

func fuzzRecord(t *testing.T, b []byte) {
	t.Helper()
	r, err := decode("id", b)
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
		assert.ErrorContains(t, err, `"id"`)
		return
	}
	for _, i := range []driver.Instant{r.Enqueued, r.Due, r.Died} {
		assert.True(t, i >= 0 && i <= driver.Never, "%d", i)
	}
	assert.GreaterOrEqual(t, min(r.MaxAttempts, r.Attempts, r.Crashes), 0)
	again, err := decode("id", r.encode())
	require.NoError(t, err)
	assert.Equal(t, r, again)
	assert.Equal(t, r.Record, r.export())
}

// Counters are encoded and decoded. Counters of any other length are damaged.
func TestStateOfWrongSizeIsCorrupt(t *testing.T) {
	t.Parallel()
	whole := state{tokens: 1, records: 2, dead: 3, enqueued: 4, acked: 5, retried: 6, buried: 7, cancelled: 8, crashed: 9, deadBytes: 10, trimmed: 11, expired: 12}
	b := whole.encode()
	require.Len(t, b, stateSize)
	got, err := decodeState(b)
	require.NoError(t, err)
	require.Equal(t, whole, got)
	for _, bad := range [][]byte{nil, b[:stateSize-8], b[:stateSize-1], append(b, make([]byte, 8)...)} {
		_, err = decodeState(bad)
		require.ErrorIs(t, err, ErrCorrupt, "%d bytes", len(bad))
	}
}
