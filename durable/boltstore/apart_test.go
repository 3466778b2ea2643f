package boltstore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// TestDamageIsNotShared damages a page of one partition. Who uses another one in the same group of the committer does not notice.
func TestDamageIsNotShared(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 2)
	fill(t, q, 2000)
	damageRecords(t, s, q.(*backend).queue, 1)
	s.writing.Lock() // a first group waits here, and all others for it
	const calls = 16
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			_, errs[i] = q.Put(t.Context(), driver.Put{Partition: i % 2, Items: []driver.PutItem{{ID: fmt.Sprint("new", i)}}})
		})
		if i == 0 {
			underWay(t, q, 0)
		}
	}
	inLine(t, s, calls-1)
	s.writing.Unlock()
	wg.Wait()
	for i, err := range errs {
		if i%2 == 0 {
			require.NoError(t, err)
			get(t, q, fmt.Sprint("new", i))
		} else {
			require.ErrorIs(t, err, ErrCorrupt)
		}
	}
	assert.Equal(t, uint64(1000+calls/2), count(t, q).Enqueued)
}

// damageRecords overwrites the root page of the records of a partition.
func damageRecords(t *testing.T, s *Store, q *queue, partition int) {
	t.Helper()
	var page int64
	require.NoError(t, s.file.db.View(func(tx *bolt.Tx) error {
		b, err := q.buckets(tx, partition)
		page = int64(b.records.RootPage())
		return err
	}))
	require.Positive(t, page)
	f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
	require.NoError(t, err)
	size := int64(s.file.db.Info().PageSize)
	_, err = f.WriteAt(make([]byte, size), page*size)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
