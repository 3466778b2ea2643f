package boltstore

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// smallReserve is Options.reserve of most tests, as each new file of the default size writes 4 MiB.
const smallReserve = 16 << 10

// openStore opens a file until the test ends. The file has a small reserve unless o says otherwise.
func openStore(tb testing.TB, path string, o Options) *Store {
	tb.Helper()
	if o.reserve == 0 {
		o.reserve = smallReserve
	}
	s, err := Open(path, o)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, s.Close()) })
	return s
}

// openQueue opens the queue of the tests.
func openQueue(tb testing.TB, s *Store, partitions int) driver.Backend {
	tb.Helper()
	q, err := s.Open(tb.Context(), driver.Config{Queue: "orders", Partitions: partitions, DeadLimit: 1000, DeadBytes: 1 << 30, DeadAge: time.Hour})
	require.NoError(tb, err)
	return q
}

// put stores one message in partition 0.
func put(tb testing.TB, q driver.Backend, id string, delay time.Duration) {
	tb.Helper()
	statuses, err := q.Put(tb.Context(), driver.Put{Items: []driver.PutItem{{ID: id, Delay: delay, Body: []byte(id), MaxAttempts: 1}}})
	require.NoError(tb, err)
	require.Equal(tb, []driver.Status{driver.StatusDone}, statuses)
}

// claim leases up to n messages of partition 0 for an hour, and buries messages that have crashed
// twice.
func claim(tb testing.TB, q driver.Backend, n int) []driver.Record {
	tb.Helper()
	c, err := q.Claim(tb.Context(), driver.Claim{Max: n, MaxBytes: 1 << 20, Visibility: time.Hour, MaxCrashes: 2})
	require.NoError(tb, err)
	return c.Records
}

func apply(tb testing.TB, q driver.Backend, op driver.Op, changes ...driver.Change) []driver.Outcome {
	tb.Helper()
	outcomes, err := q.Apply(tb.Context(), driver.Batch{Op: op, Visibility: time.Hour, Changes: changes})
	require.NoError(tb, err)
	return outcomes
}

// done makes a transition of messages, and fails the test unless each succeeds.
func done(tb testing.TB, q driver.Backend, op driver.Op, changes ...driver.Change) {
	tb.Helper()
	for i, o := range apply(tb, q, op, changes...) {
		require.Equal(tb, driver.StatusDone, o.Status, changes[i].ID)
	}
}

func count(tb testing.TB, q driver.Backend) driver.Counts {
	tb.Helper()
	c, err := q.Count(tb.Context(), 0)
	require.NoError(tb, err)
	return c
}

func get(tb testing.TB, q driver.Backend, id string) driver.Record {
	tb.Helper()
	r, err := q.Get(tb.Context(), 0, id)
	require.NoError(tb, err)
	return r
}

func idsOf(records []driver.Record) []string {
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// transactions returns the number of commits that a store has made.
func transactions(tb testing.TB, s *Store) int {
	tb.Helper()
	n := 0
	require.NoError(tb, s.file.db.View(func(tx *bolt.Tx) error {
		n = tx.ID()
		return nil
	}))
	return n
}

// usedBytes returns the size of a file without the unused pages at its end, which have 16 MiB.
func usedBytes(tb testing.TB, s *Store) (n int64) {
	tb.Helper()
	require.NoError(tb, s.file.view(func(tx *bolt.Tx) error {
		n = tx.Size()
		return nil
	}))
	return n
}

// waitForGroup waits until the committer's group has requests of a partition.
func waitForGroup(tb testing.TB, q driver.Backend, partition int) {
	tb.Helper()
	p := q.(*backend).queue.partitions[partition]
	require.Eventually(tb, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.busy) > 0
	}, time.Minute, time.Millisecond)
}

// waitForWaiting waits until n requests wait for the committer.
func waitForWaiting(tb testing.TB, s *Store, n int) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		s.commits.mu.Lock()
		defer s.commits.mu.Unlock()
		return len(s.commits.waiting) == n
	}, time.Minute, time.Millisecond)
}

// crash returns a copy of the file as of the last commit, with all begun messages written. A crash
// of the process would leave the same pages in use.
func crash(tb testing.TB, s *Store) string {
	tb.Helper()
	s.mu.Lock()
	for _, q := range s.queues { // a group without changes commits the begun messages before it
		require.NoError(tb, s.commits.do(tb.Context(), &request{p: q.partitions[0], run: func(*partitionWriter) error { return nil }}))
	}
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	content := make([]byte, usedBytes(tb, s))
	f, err := os.Open(s.path)
	require.NoError(tb, err)
	defer f.Close()
	_, err = io.ReadFull(f, content)
	require.NoError(tb, err)
	path := filepath.Join(tb.TempDir(), "crashed.db")
	require.NoError(tb, os.WriteFile(path, content, 0o600))
	return path
}

// putConcurrently puts n messages one by one from several goroutines.
func putConcurrently(tb testing.TB, q driver.Backend, producers, n int) {
	tb.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	body := make([]byte, 128)
	for range producers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				id := "message-" + strconv.Itoa(i)
				items := []driver.PutItem{{ID: id, Body: body, Delay: time.Duration(i%1000) * time.Millisecond, MaxAttempts: 1}}
				statuses, err := q.Put(tb.Context(), driver.Put{Partition: driver.PartitionOf(id, q.Partitions()), Items: items})
				if !assert.NoError(tb, err) || !assert.Equal(tb, []driver.Status{driver.StatusDone}, statuses) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// fill puts n messages in batches, already due.
func fill(tb testing.TB, q driver.Backend, n int) {
	tb.Helper()
	body := make([]byte, 128)
	var wg sync.WaitGroup
	for p := range q.Partitions() {
		wg.Go(func() {
			for i := p; i < n; {
				put := driver.Put{Partition: p}
				for ; i < n && len(put.Items) < driver.MaxBatch; i += q.Partitions() {
					put.Items = append(put.Items, driver.PutItem{ID: fmt.Sprintf("message-%09d", i), Body: body, MaxAttempts: 1})
				}
				_, err := q.Put(tb.Context(), put)
				assert.NoError(tb, err)
			}
		})
	}
	wg.Wait()
}

// drain delivers until nothing is scheduled.
func drain(tb testing.TB, q driver.Backend) {
	tb.Helper()
	var wg sync.WaitGroup
	for i := range 2 * q.Partitions() {
		wg.Go(func() {
			p := i / 2
			for {
				c, err := q.Claim(tb.Context(), driver.Claim{
					Partition: p, Horizon: time.Second, Max: driver.MaxBatch, MaxBytes: 1 << 20, Visibility: time.Minute,
				})
				if !assert.NoError(tb, err) || len(c.Records) == 0 {
					return
				}
				for _, op := range []driver.Op{driver.OpBegin, driver.OpAck} {
					_, err := q.Apply(tb.Context(), driver.Batch{
						Partition: p, Op: op, Visibility: time.Minute, Lead: time.Second, Changes: changesOf(c.Records),
					})
					assert.NoError(tb, err)
				}
			}
		})
	}
	wg.Wait()
}

func changesOf(records []driver.Record) []driver.Change {
	changes := make([]driver.Change, len(records))
	for i, r := range records {
		changes[i] = driver.Change{ID: r.ID, Token: r.Token}
	}
	return changes
}
