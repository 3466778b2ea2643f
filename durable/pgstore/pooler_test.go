package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// startPooler starts a pgbouncer in transaction mode, which ends with the test, and returns the
// connection string through it for another one.
func startPooler(t *testing.T, direct string) string {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil { // Debian has it in a folder that only root looks in
		program, err = osexec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil && os.Getenv(pgtest.EnvRequire) != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	u, err := url.Parse(direct)
	require.NoError(t, err)
	port, err := proctest.ReservePort()
	require.NoError(t, err)
	t.Cleanup(port.Release)
	dir, err := os.MkdirTemp("", "pooler") // the folders of t belong to root
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := fmt.Sprintf(`
[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
`, u.Hostname(), u.Port(), u.User.Username(), port.Number)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ini"), []byte(config), 0o644)) //nolint:gosec // another user reads it
	cmd := osexec.Command(program, filepath.Join(dir, "ini"))
	cmd.SysProcAttr, err = pgtest.HandOver(dir)
	require.NoError(t, err)
	log := filepath.Join(dir, "log")
	p, err := proctest.Start(cmd, log, os.Kill)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.End(os.Kill)) })
	if err := proctest.Eventually(proctest.Timeout, func() error {
		conn, err := net.Dial("tcp", proctest.Loopback(port.Number))
		switch {
		case err == nil:
			return conn.Close()
		case p.Ended():
			return proctest.Fatal(err)
		}
		return err
	}); err != nil {
		text, _ := os.ReadFile(log)
		require.NoError(t, err, string(text))
	}
	u.Host = proctest.Loopback(port.Number)
	return u.String()
}

// TestPooler works through a pooler in transaction mode, which passes no notifications on.
func TestPooler(t *testing.T) {
	t.Parallel()
	pool := newPool(t, startPooler(t, pgtest.Shared(t).Database(t))+"&default_query_exec_mode=exec", "")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	exec(t, pool, "timingwheel", `CREATE TABLE {schema}.orders (id text)`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reports := make(chan error, 10)
	q, err := durable.Open(ctx, newStore(t, pool, pgstore.Options{}), durable.Options{
		Queue: "q", Partitions: 3, Logger: slog.New(slog.DiscardHandler), OnError: func(err error) { reports <- err },
	})
	require.NoError(t, err)
	defer q.Close()
	for i := range 5 {
		_, err := q.Enqueue(ctx, durable.Message{ID: fmt.Sprint(i), Delay: time.Duration(i) * 10 * time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := pgstore.EnqueueTx(ctx, tx, q, durable.Message{ID: fmt.Sprint("tx", i)})
			return err
		}))
	}
	var consuming sync.WaitGroup
	consuming.Go(func() {
		assert.NoError(t, q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
			if d.ID == "last" {
				cancel()
				return nil
			}
			if d.Attempts == 0 {
				return durable.Fail(errors.New("the first attempt"), time.Millisecond)
			}
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `INSERT INTO timingwheel.orders VALUES ($1)`, d.ID); err != nil {
					return err
				}
				return pgstore.AckTx(ctx, tx, d)
			})
		}, durable.ConsumerOptions{}))
	})
	select {
	case err := <-reports:
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "messages may be late by 1s (ConsumerOptions.Fallback)")
		require.ErrorContains(t, err, "a pooler in transaction mode cannot pass notifications on")
	case <-ctx.Done():
		require.NoError(t, ctx.Err(), "it is reported that hints are off")
	}
	require.NoError(t, q.Healthy(ctx))
	_, err = q.Enqueue(ctx, durable.Message{ID: "last"}) // and no hint
	require.NoError(t, err)
	consuming.Wait()
	require.ErrorIs(t, ctx.Err(), context.Canceled, "all messages are delivered")
	assert.Empty(t, reports)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 0, 0, 11, 10}, []int64{s.Scheduled, s.InFlight, s.Dead, int64(s.Acked), int64(s.Retried)}) //nolint:gosec // small
	var orders, different int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT id) FROM timingwheel.orders`).Scan(&orders, &different))
	assert.Equal(t, []int{10, 10}, []int{orders, different})
}

// TestPreparedStatementsWithPooler uses two pools with the default mode of pgx, whose prepared
// statements have the same names, through a pooler that has one connection for both.
func TestPreparedStatementsWithPooler(t *testing.T) {
	t.Parallel()
	url := startPooler(t, pgtest.Shared(t).Database(t))
	first := newPool(t, url, "")
	require.NoError(t, pgstore.Migrate(t.Context(), first))
	_, err := newStore(t, first, pgstore.Options{}).Open(t.Context(), driver.Config{Queue: "q"})
	require.NoError(t, err)
	_, err = newStore(t, newPool(t, url, ""), pgstore.Options{}).Open(t.Context(), driver.Config{Queue: "q"})
	if err == nil {
		t.Skip("this pgbouncer supports prepared statements, as version 1.24 does by default")
	}
	require.ErrorIs(t, err, durable.ErrUnavailable)
	require.ErrorContains(t, err, "set default_query_exec_mode=exec in the connection string")
	_, err = newStore(t, newPool(t, url+"&default_query_exec_mode=exec", ""), pgstore.Options{}).Open(t.Context(), driver.Config{Queue: "q"})
	require.NoError(t, err)
}
