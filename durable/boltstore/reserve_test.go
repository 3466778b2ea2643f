package boltstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// TestFullOfSmall fills a file with small messages, so that nearly no page is free. What is there can be claimed and acknowledged all the
// same, in this process and in the next one, and then there is room again.
func TestFullOfSmall(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{4, 50} {
		path, o := filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, maxSize: 1 << 20, reserve: 256 << 10}
		s, err := Open(path, o)
		require.NoError(t, err)
		q := openQueue(t, s, 8)
		stored := fillUp(t, q)
		if batch == 50 {
			require.NoError(t, s.Close())
			s = openStore(t, path, o)
			q = openQueue(t, s, 0)
		}
		require.Equal(t, stored, drainBy(t, q, batch))
		put(t, q, "again", 0)
		require.NoError(t, s.Close())
	}
}

// fillUp puts small messages until the file has been full several times.
func fillUp(t *testing.T, q driver.Backend) (stored int) {
	t.Helper()
	for i, refused := 0, 0; refused < 20; i++ {
		items := []driver.PutItem{{ID: fmt.Sprintf("m%06d", i), Body: make([]byte, 20)}}
		if _, err := q.Put(t.Context(), driver.Put{Partition: i % q.Partitions(), Items: items}); err != nil {
			require.ErrorIs(t, err, driver.ErrFull)
			refused++
			continue
		}
		stored++
	}
	return stored
}

// drainBy claims and acknowledges everything, so many at a time.
func drainBy(t *testing.T, q driver.Backend, batch int) (n int) {
	t.Helper()
	for p := 0; p < q.Partitions(); {
		c, err := q.Claim(t.Context(), driver.Claim{Partition: p, Max: batch, MaxBytes: 1 << 20, Visibility: time.Hour})
		require.NoError(t, err)
		if len(c.Records) == 0 {
			p++
			continue
		}
		for _, op := range []driver.Op{driver.OpBegin, driver.OpAck} {
			_, err := q.Apply(t.Context(), driver.Batch{Partition: p, Op: op, Visibility: time.Hour, Changes: changesOf(c.Records)})
			require.NoError(t, err, "after %d", n)
		}
		n += len(c.Records)
	}
	return n
}
