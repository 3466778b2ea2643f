//go:build unix

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// runningHandlers counts the handlers that run, by queue and key.
type runningHandlers struct {
	mu      sync.Mutex
	running map[string]int
	most    map[string]int
	handled int
}

func (r *runningHandlers) add(n int, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		r.running[name] += n
		r.most[name] = max(r.most[name], r.running[name])
	}
	if n < 0 {
		r.handled++
	}
}

func (r *runningHandlers) handle(_ context.Context, d *durable.Delivery) error {
	names := []string{d.Queue, "key " + d.Headers["key"]}
	r.add(1, names...)
	defer r.add(-1, names...)
	time.Sleep(5 * time.Millisecond)
	return nil
}

// Limits, keys and a pool of handlers hold on a real store with as many consumers as it may have.
func TestLimitsAndKeysHold(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for name, stores := range map[string]func(t *testing.T) []durable.Store{
		"redis": func(t *testing.T) (stores []durable.Store) {
			server := redistest.Start(t, redistest.Options{})
			for range 3 { // as in three processes
				store, err := redisstore.New(server.Client(t), redisstore.Options{AllowLossOnCrash: true})
				require.NoError(t, err)
				stores = append(stores, store)
			}
			return stores
		},
		"directory": func(t *testing.T) []durable.Store {
			store, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			return []durable.Store{store}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages, keys, maxRunning = 300, 5, 4
			const due = 6 * time.Second // all consumers know of each other
			r := &runningHandlers{running: make(map[string]int), most: make(map[string]int)}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			for i, store := range stores(t) {
				var queues []*durable.Queue
				for _, name := range []string{"limited", "keys"} {
					q, err := durable.Open(ctx, store, durable.Options{Queue: name, Logger: slog.New(slog.DiscardHandler)})
					require.NoError(t, err)
					t.Cleanup(q.Close)
					queues = append(queues, q)
				}
				if i == 0 {
					for n := range messages {
						_, err := queues[0].Enqueue(ctx, durable.Message{Delay: due})
						require.NoError(t, err)
						_, err = queues[1].Enqueue(ctx, durable.Message{Delay: due, Headers: map[string]string{"key": fmt.Sprint(n % keys)}})
						require.NoError(t, err)
					}
				}
				oneAtATime := durable.OneAtATime(func(d *durable.Delivery) string { return d.Headers["key"] })
				sources := []durable.Source{
					{Queue: queues[0], Handler: r.handle, MaxRunning: maxRunning, Rate: 1000},
					{Queue: queues[1], Handler: durable.Chain(r.handle, oneAtATime)},
				}
				all.Go(func() {
					assert.NoError(t, durable.Consume(ctx, sources, durable.ConsumerOptions{Concurrency: 8}))
				})
			}
			assert.Eventually(t, func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.handled >= 2*messages
			}, waitLimit, 10*time.Millisecond)
			stop()
			all.Wait()
			assert.LessOrEqual(t, r.most["limited"], maxRunning)
			for i := range keys {
				assert.Equal(t, 1, r.most[fmt.Sprint("key ", i)])
			}
		})
	}
}
