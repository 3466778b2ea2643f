package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/faultproxy"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// workload enqueues, cancels and handles messages while faults happen, and checks that none is lost
// and that the counters count each once.
type workload struct {
	t       *testing.T
	pool    *pgxpool.Pool
	q       *durable.Queue
	mu      sync.Mutex
	handled map[string]int
}

func newWorkload(t *testing.T, pool *pgxpool.Pool, options pgstore.Options) *workload {
	t.Helper()
	q, err := durable.Open(t.Context(), newStore(t, pool, options),
		durable.Options{Queue: "orders", Partitions: 4, RetryFor: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return &workload{t: t, pool: pool, q: q, handled: make(map[string]int)}
}

// calls returns how often the handler was called, for one message or, without an id, for all.
func (w *workload) calls(id string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != "" {
		return w.handled[id]
	}
	for _, k := range w.handled {
		n += k
	}
	return n
}

// run enqueues n messages in each of four goroutines, and cancels some, while disturb injects
// faults, each after some progress.
func (w *workload) run(n int, disturb func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	var consuming, disturbing, producing sync.WaitGroup
	consuming.Go(func() {
		assert.NoError(w.t, w.q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.handled[d.ID]++
			if len(d.ID)%3 == 0 && w.handled[d.ID] == 1 {
				return durable.Postpone(time.Millisecond)
			}
			return nil
		}, durable.ConsumerOptions{Visibility: 5 * time.Second, Membership: 2 * time.Second}))
	})
	var over atomic.Bool
	disturbing.Go(func() {
		for !over.Load() {
			disturb()
			before := w.calls("")
			for i := 0; i < 200 && w.calls("") < before+8 && !over.Load(); i++ {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	var cancelled sync.Map
	for worker := range 4 {
		producing.Go(func() {
			for i := range n {
				id := fmt.Sprintf("%d-%d", worker, i)
				_, err := w.q.Enqueue(ctx, durable.Message{ID: id, Delay: time.Duration(i%4) * 10 * time.Millisecond})
				if !assert.NoError(w.t, err) {
					return
				}
				if i%4 == 3 {
					r, err := w.q.Cancel(ctx, id)
					if assert.NoError(w.t, err) && r == durable.ResultCancelled {
						cancelled.Store(id, w.calls(id))
					}
				}
			}
		})
	}
	producing.Wait()
	over.Store(true)
	disturbing.Wait()
	var s durable.Stats
	require.Eventually(w.t, func() (done bool) {
		var err error
		s, err = w.q.Stats(ctx)
		return err == nil && s.Scheduled+s.InFlight == 0
	}, 2*time.Minute, 10*time.Millisecond)
	cancel()
	consuming.Wait()
	total, never := 0, 0
	cancelled.Range(func(id, calls any) bool {
		total++
		if calls == 0 {
			never++
		}
		assert.Equal(w.t, calls, w.calls(id.(string)), "%v was cancelled", id) //nolint:errcheck // as stored
		return true
	})
	assert.Len(w.t, w.handled, 4*n-never)
	assert.Equal(w.t, []uint64{uint64(4 * n), uint64(total), uint64(4*n - total), 0}, //nolint:gosec // small
		[]uint64{s.Enqueued, s.Cancelled, s.Acked, uint64(s.Dead)}) //nolint:gosec // small
}

// TestKilledBackends ends all connections again and again, in the middle of transitions too.
func TestKilledBackends(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	killer, pool := newPool(t, url, ""), newPool(t, url, "")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	newWorkload(t, pool, pgstore.Options{}).run(20, func() {
		_, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		assert.NoError(t, err)
	})
}

// TestLostReplies loses answers of transitions that have taken effect.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	direct := pgtest.Shared(t).Database(t)
	require.NoError(t, pgstore.Migrate(t.Context(), newPool(t, direct, "")))
	parsed, err := url.Parse(direct)
	require.NoError(t, err)
	proxy := faultproxy.Start(t, parsed.Host)
	parsed.Host = proxy.Addr()
	parsed.RawQuery += "&default_query_exec_mode=exec" // so that each request has the texts of its statements
	newWorkload(t, newPool(t, parsed.String(), ""), pgstore.Options{}).run(20, func() {
		proxy.Drop("COMMIT", 1, 1)
	})
	assert.Positive(t, proxy.Dropped())
}

// TestIsolationAndTimeouts works with a pool whose defaults make transactions fail: serializable,
// read-only, and with short timeouts.
func TestIsolationAndTimeouts(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	require.NoError(t, pgstore.Migrate(t.Context(), newPool(t, url, "")))
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	config.ConnConfig.RuntimeParams["statement_timeout"] = "1s"
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "1s"
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // as with a pooler in transaction mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	locker := newPool(t, url, "")
	_ = newWorkload(t, locker, pgstore.Options{}) // which creates the queue
	newWorkload(t, pool, pgstore.Options{}).run(20, func() {
		_ = pgx.BeginFunc(t.Context(), locker, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT FROM timingwheel.messages WHERE part > 0 LIMIT 3 FOR UPDATE`)
			time.Sleep(10 * time.Millisecond)
			return err
		})
	})
}

// TestCrashAndFailover kills a primary with a synchronous standby, and promotes the standby.
func TestCrashAndFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{Durable: true})
	require.NoError(t, pgstore.Migrate(t.Context(), newPool(t, primary.URL(), "")))
	standby := primary.SynchronousStandby(t)
	hosts := func(s *pgtest.Server) string {
		u, err := url.Parse(s.URL())
		require.NoError(t, err)
		return u.Host
	}
	both := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=5", hosts(primary), hosts(standby))
	var once sync.Once
	w := newWorkload(t, newPool(t, both, ""), pgstore.Options{})
	w.run(20, func() {
		if w.calls("") > 0 {
			once.Do(func() {
				primary.Kill()
				standby.Promote()
			})
		}
	})
}

// TestRestartedServer crashes a server and starts it again.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	pool := newPool(t, server.URL(), "")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	newWorkload(t, pool, pgstore.Options{}).run(20, func() {
		server.Kill()
		server.Restart()
	})
}

// TestHints watches while the connection that listens is lost, and joins and leaves.
func TestHints(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	pool := newPool(t, url, "")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	w := newWorkload(t, pool, pgstore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var consuming sync.WaitGroup
	consuming.Go(func() {
		assert.NoError(t, w.q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.handled[d.ID]++
			return nil
		}, durable.ConsumerOptions{Fallback: time.Hour}))
	})
	await := func(id string) {
		t.Helper()
		for i := 0; ; i++ { // a hint may be lost while the connection is down
			_, err := w.q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(id, i)})
			require.NoError(t, err)
			if assert.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.handled[fmt.Sprint(id, i)] == 1 }, 2*time.Second, time.Millisecond) {
				return
			}
			require.Less(t, i, 10)
		}
	}
	await("first")
	_, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	require.NoError(t, err)
	await("after the connection was lost")
	cancel()
	consuming.Wait()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&n))
		return n == 0
	}, time.Minute, 10*time.Millisecond, "nothing listens when nothing is consumed")
	require.False(t, errors.Is(w.q.Healthy(t.Context()), durable.ErrUnsafe))
}
