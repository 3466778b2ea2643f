package boltstore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// A file is full of small messages, so nearly no page is free. The messages can be claimed and
// acknowledged, in this process and in the next one. A new message can be stored afterwards.
func TestFileFullOfSmallMessagesCanBeDrained(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{4, 50} {
		path, o := filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, maxSize: 512 << 10, reserve: 128 << 10}
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

// drainBy claims and acknowledges all messages, the given number at a time.
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

// Many pages of a full file are freed, and few of them are adjacent. The reserve fits in them, so a
// message can be stored again.
func TestReserveNeedsNoAdjacentPages(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	const pages = 64 // of the reserve
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, maxSize: 256 * page, reserve: 1})
	q := openQueue(t, s, 1)
	put(t, q, "first", 0)
	filler, value := []byte("filler"), make([]byte, page*3/8) // two values to a page
	name := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	n := 0
	for err := error(nil); err == nil; n++ {
		err = s.update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(filler)
			if err != nil {
				return err
			}
			return b.Put(name(n), value)
		})
		if err != nil {
			require.ErrorIs(t, err, driver.ErrFull)
		}
	}
	for from := 0; from+24 < n; from += 24 { // keeps 8 of 24
		require.NoError(t, s.update(func(tx *bolt.Tx) (err error) {
			for i := from; i < from+16 && err == nil; i++ {
				err = tx.Bucket(filler).Delete(name(i))
			}
			return err
		}))
	}
	require.NoError(t, s.spendReserve())
	free, adjacent := freePages(t, s)
	require.Greater(t, free, 2*pages, "the free pages hold the reserve")
	require.Less(t, adjacent, pages, "the reserve does not fit in adjacent pages")
	s.options.reserve = pages * page
	put(t, q, "again", 0)
	left, _ := freePages(t, s)
	require.LessOrEqual(t, left, free-pages, "the reserve is restored")
}

// The whole reserve is spent. If one step freed many pages, the list of free pages would need
// adjacent pages before any page is free, so a full file could not use its reserve.
func TestReserveIsSpentInSteps(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, reserve: reserveBytes})
	values := func() (n int) {
		require.NoError(t, s.file.view(func(tx *bolt.Tx) error {
			if b := tx.Bucket(bucketReserve); b != nil {
				n = b.Stats().KeyN
			}
			return nil
		}))
		return n
	}
	const whole = (reserveBytes + reserveValue - 1) / reserveValue
	q := openQueue(t, s, 1)
	put(t, q, "first", 0)
	require.Equal(t, whole, values())
	before, _ := freePages(t, s)
	require.NoError(t, s.spendReserve())
	free, _ := freePages(t, s)
	require.Greater(t, free, before)
	require.Less(t, free, 256, "the list is far from a second page")
	require.Equal(t, whole-reserveStep, values())
	put(t, q, "second", 0)
	require.Equal(t, whole, values(), "the spent values are restored")
	for values() > 0 {
		require.NoError(t, s.spendReserve())
	}
	free, _ = freePages(t, s)
	require.GreaterOrEqual(t, free, reserveBytes/os.Getpagesize())
	require.Error(t, s.spendReserve(), "nothing is left")
	put(t, q, "third", 0)
	require.Equal(t, whole, values())
}

// freePages returns the number of free pages of a file, and the largest number of adjacent ones.
func freePages(t *testing.T, s *Store) (free, adjacent int) {
	t.Helper()
	require.NoError(t, s.file.view(func(tx *bolt.Tx) error {
		run := 0
		for i := 0; ; i++ {
			page, err := tx.Page(i)
			if err != nil || page == nil {
				return err
			}
			if page.Type != "free" {
				run = 0
				i += page.OverflowCount
				continue
			}
			free++
			run++
			adjacent = max(adjacent, run)
		}
	}))
	return free, adjacent
}
