package pgstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// smallDisk mounts a file system of 24 MB until the end of the test.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "small")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.Remove(dir)) })
	if out, err := osexec.Command("mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted: %v: %s", err, out)
	}
	t.Cleanup(func() {
		out, err := osexec.Command("umount", dir).CombinedOutput()
		assert.NoError(t, err, string(out))
	})
	return dir
}

// databaseOn returns a pool for a database on a disk.
func databaseOn(t *testing.T, disk string) *pgxpool.Pool {
	t.Helper()
	const name = "full"
	data := filepath.Join(disk, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	_, err := pgtest.HandOver(data)
	require.NoError(t, err)
	admin := newPool(t, pgtest.Start(t, pgtest.Options{}).URL(), "")
	exec(t, admin, name, `CREATE TABLESPACE {schema} LOCATION '`+data+`'`)
	t.Cleanup(func() { exec(t, admin, name, `DROP TABLESPACE {schema}`) })
	exec(t, admin, name, `CREATE DATABASE {schema} TABLESPACE {schema}`)
	t.Cleanup(func() { exec(t, admin, name, `DROP DATABASE {schema} WITH (FORCE)`) })
	config := admin.Config()
	config.ConnConfig.Database = name
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestFullDisk enqueues until the disk of the tables is full, and acknowledges before and after
// there is space again. The log of the server is on another disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	pgtest.Require(t)
	disk := smallDisk(t)
	ballast := filepath.Join(disk, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 4<<20), 0o600))
	pool := databaseOn(t, disk)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	q, err := durable.Open(t.Context(), newStore(t, pool, pgstore.Options{}), durable.Options{
		Queue: "q", Partitions: 1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer q.Close()
	var taken []*durable.Delivery
	for i := range 20 {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint("taken ", i)})
		require.NoError(t, err)
		d, err := q.Take(t.Context())
		require.NoError(t, err)
		taken = append(taken, d)
	}
	bodies := map[string]string{}
	enqueue := func(size int) error {
		id, body := fmt.Sprint(len(bodies)), make([]byte, size)
		_, _ = rand.Read(body) // never fails
		_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Body: body})
		if err == nil {
			bodies[id] = string(body)
		}
		return err
	}
	for size := 200_000; size > 0; size /= 10 { // until there is no space for small ones either
		for err = nil; err == nil; {
			err = enqueue(size)
		}
		require.ErrorIs(t, err, durable.ErrFull)
		require.ErrorContains(t, err, "the disk of the server is full")
	}
	require.NoError(t, q.Healthy(t.Context()))
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, len(bodies)+len(taken), s.Scheduled+s.InFlight, "what was not accepted is not stored")
	var settling sync.WaitGroup
	for _, d := range taken {
		settling.Go(func() { assert.NoError(t, d.Ack(t.Context())) })
	}
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, os.Remove(ballast))
	settling.Wait()
	require.NoError(t, enqueue(200_000))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	require.NoError(t, q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		body, ok := bodies[d.ID]
		assert.True(t, ok && body == string(d.Body), d.ID)
		if delete(bodies, d.ID); len(bodies) == 0 {
			cancel()
		}
		return nil
	}, durable.ConsumerOptions{}))
	s, err = q.Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, s.Scheduled+s.InFlight+s.Dead)
	assert.Equal(t, s.Enqueued, s.Acked)
}
