package boltstore

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

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
