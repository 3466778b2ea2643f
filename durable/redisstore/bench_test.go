package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// bodySize is that of the benchmarks' messages.
const bodySize = 128

// benchQueue is a queue with several partitions on a fresh server.
func benchQueue(b *testing.B, o redistest.Options) driver.Backend {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(b, o).Addr()})
	b.Cleanup(func() { _ = client.Close() })
	c := config()
	c.Partitions = 8
	q, err := newStore(b, client, redisstore.Options{}).Open(b.Context(), c)
	require.NoError(b, err)
	return q
}

// eachPartition works on all partitions at the same time, until n messages are done with.
func eachPartition(b *testing.B, q driver.Backend, work func(partition, batch, n int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for p := range q.Partitions() {
		wg.Go(func() {
			for batch := 0; left.Add(-driver.MaxBatch) > -driver.MaxBatch; batch++ {
				if err := work(p, batch, driver.MaxBatch); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func benchPut(b *testing.B, q driver.Backend, delay time.Duration) func(partition, batch, n int) error {
	return func(partition, batch, n int) error {
		_, err := q.Put(b.Context(), driver.Put{
			Partition: partition,
			Call:      calling("bench", uint64(batch+1)), //nolint:gosec // not negative
			Items:     items(fmt.Sprintf("%05d", batch), n, bodySize, delay),
		})
		return err
	}
}

// BenchmarkPut stores messages in batches of 256, on 8 partitions at the same time. An operation is a message.
func BenchmarkPut(b *testing.B) {
	for name, o := range map[string]redistest.Options{"Memory": {}, "EverySec": {AppendOnly: true, AppendFsync: "everysec"}} {
		b.Run(name, func(b *testing.B) {
			q := benchQueue(b, o)
			b.ResetTimer()
			eachPartition(b, q, benchPut(b, q, time.Hour))
		})
	}
}

// BenchmarkDeliver claims, begins and acknowledges messages in batches of 256, on 8 partitions at the same time.
func BenchmarkDeliver(b *testing.B) {
	for name, o := range map[string]redistest.Options{"Memory": {}, "EverySec": {AppendOnly: true, AppendFsync: "everysec"}} {
		b.Run(name, func(b *testing.B) {
			q := benchQueue(b, o)
			eachPartition(b, q, benchPut(b, q, 0))
			b.ResetTimer()
			eachPartition(b, q, func(partition, _, n int) error {
				c, err := q.Claim(b.Context(), driver.Claim{
					Partition: partition, Max: n, MaxBytes: 1 << 28, Visibility: time.Hour, Horizon: time.Second,
				})
				for _, op := range []driver.Op{driver.OpBegin, driver.OpAck} {
					if err == nil && len(c.Records) > 0 {
						_, err = q.Apply(b.Context(), driver.Batch{Partition: partition, Op: op, Visibility: time.Hour, Changes: changes(c.Records)})
					}
				}
				return err
			})
		})
	}
}
