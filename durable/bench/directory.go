package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/riverqueue/river/riverdriver/riversqlite"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/bench/internal/load"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// directoryPart measures a directory with its fsyncs, and River on the same disk.
func directoryPart(ctx context.Context, b *load.Bench) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var each, batches, delivered float64
	err = withStore(filepath.Join(dir, "queue"), func(store durable.Store) (err error) {
		if each, err = b.EachRate(ctx, "directory: enqueue, 256 callers, fsynced", store, 40_000, 256); err != nil {
			return err
		}
		if batches, err = b.BatchRate(ctx, "directory: enqueue, in batches, fsynced", store, 80_000); err != nil {
			return err
		}
		if delivered, err = b.DeliverRate(ctx, "directory: deliver and acknowledge, fsynced", store, 30_000); err != nil {
			return err
		}
		return b.Lateness(ctx, "directory", store, 10_000, [3]float64{1, 10, 30})
	})
	if err == nil && !b.Skip["river"] {
		err = compareRiver(ctx, b, filepath.Join(dir, "river.sqlite3"), each, batches, delivered)
	}
	if err != nil {
		return err
	}
	return directoryReopen(ctx, b, filepath.Join(dir, "large"))
}

// withStore runs f with a store in a directory.
func withStore(dir string, f func(store durable.Store) error) error {
	store, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f(store), store.Close())
}

// compareRiver measures River on SQLite, and the ratios of the rates of a directory to its rates.
// SQLite has one connection, as River's documentation recommends, and a write-ahead log that it
// syncs in each transaction, as pebblestore does.
func compareRiver(ctx context.Context, b *load.Bench, path string, each, batches, delivered float64) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	q, err := load.NewRiver(ctx, riversqlite.New(db), "")
	if err != nil {
		return err
	}
	n := b.Messages / 50
	theirEach, theirDelivered, err := b.Peer(ctx, "River on SQLite, fsynced", q, n, 256, 100)
	if err != nil {
		return err
	}
	theirBatches, err := load.Rate(n, func() error { return q.EnqueueBatches(ctx, n, 1, load.Far) })
	b.Note("River on SQLite, fsynced: enqueue, in batches", load.PerSecond(theirBatches))
	b.Add("directory: enqueue, 256 callers, ratio to River", each/theirEach, 30, false, load.Plain)
	b.Add("directory: enqueue, in batches, ratio to River", batches/theirBatches, 4, false, load.Plain)
	b.Add("directory: deliver and acknowledge, ratio to River", delivered/theirDelivered, 8, false, load.Plain)
	return err
}

// directoryReopen measures how long a directory with many messages takes to open, and how many
// bytes of the disk a message takes.
func directoryReopen(ctx context.Context, b *load.Bench, dir string) error {
	var start time.Time
	use := func(f func(q *durable.Queue) error) error {
		start = time.Now()
		return withStore(dir, func(store durable.Store) error { return load.WithQueue(ctx, store, "large", f) })
	}
	err := use(func(q *durable.Queue) error { return load.EnqueueBatches(ctx, q, b.Pending, load.Far) })
	if err == nil {
		err = use(func(*durable.Queue) error {
			b.Add(fmt.Sprintf("directory: reopen with %d messages", b.Pending), float64(time.Since(start).Milliseconds()), 1000, true, load.Millis)
			return nil
		})
	}
	files, _ := os.ReadDir(dir)
	size := 0.0
	for _, file := range files {
		if info, err := file.Info(); err == nil {
			size += float64(info.Size())
		}
	}
	b.Add("directory: disk of a message with a body of 128 bytes", size/float64(b.Pending), 400, true, bytesOf)
	return err
}
