package boltstore

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

// Each operation of these benchmarks is one message with a body of 128 bytes, and every commit is synced to the disk of the
// temporary directory.

func BenchmarkSuite(b *testing.B) {
	storetest.Bench(b, func(t testing.TB) storetest.Fixture {
		t.Helper()
		s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
		return storetest.Fixture{Store: s}
	})
}

// BenchmarkPut is 256 goroutines, each of which puts one message at a time.
func BenchmarkPut(b *testing.B) {
	for _, partitions := range []int{1, 8} {
		b.Run(fmt.Sprintf("producers=256/partitions=%d", partitions), func(b *testing.B) {
			s := openStore(b, filepath.Join(b.TempDir(), "queue.db"), Options{})
			q := openQueue(b, s, partitions)
			before := pageWrites(s)
			b.ResetTimer()
			putConcurrently(b, q, 256, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(pageWrites(s)-before)/float64(b.N), "pages/msg")
		})
	}
}

// putConcurrently puts n messages one by one, from several goroutines.
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
				statuses, err := q.Put(tb.Context(), driver.Put{Partition: durable.PartitionOf(id, q.Partitions()), Items: items})
				if !assert.NoError(tb, err) || !assert.Equal(tb, []driver.Status{driver.StatusDone}, statuses) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkDrain claims, begins and acknowledges what is due, in batches: two goroutines for each partition.
func BenchmarkDrain(b *testing.B) {
	for _, partitions := range []int{1, 8} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			s := openStore(b, filepath.Join(b.TempDir(), "queue.db"), Options{})
			q := openQueue(b, s, partitions)
			fill(b, q, b.N)
			b.ResetTimer()
			drain(b, q)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// fill puts n messages in batches, due at once.
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

// BenchmarkReopen opens a file with a million messages and claims the first ones.
func BenchmarkReopen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "queue.db")
	s, err := Open(path, Options{NoSync: true})
	require.NoError(b, err)
	fill(b, openQueue(b, s, 8), 1_000_000)
	require.NoError(b, s.Close())
	b.ResetTimer()
	for range b.N {
		s, err := Open(path, Options{})
		require.NoError(b, err)
		q := openQueue(b, s, 0)
		c, err := q.Claim(b.Context(), driver.Claim{Max: driver.MaxBatch, MaxBytes: 1 << 20, Visibility: time.Minute})
		require.NoError(b, err)
		require.Len(b, c.Records, driver.MaxBatch)
		require.NoError(b, s.Close())
	}
}

// pageWrites is the number of writes that commits have made so far.
func pageWrites(s *Store) int64 {
	stats := s.file.db.Stats()
	return stats.TxStats.GetWrite()
}

// BenchmarkEnqueue is callers of one queue, each of which enqueues one message at a time.
func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openStore(b, filepath.Join(b.TempDir(), "queue.db"), Options{})
			q, err := durable.Open(b.Context(), s, durable.Options{Queue: "orders", Partitions: 4})
			require.NoError(b, err)
			defer q.Close()
			before := transactions(b, s)
			var next atomic.Int64
			var wg sync.WaitGroup
			body := make([]byte, 128)
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						if _, err := q.Enqueue(b.Context(), durable.Message{Body: body, Delay: time.Hour}); !assert.NoError(b, err) {
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(b.N)/float64(transactions(b, s)-before), "msg/commit")
		})
	}
}
