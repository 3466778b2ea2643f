package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// directoryPart measures a directory with its fsyncs, and River on the same disk.
func directoryPart(ctx context.Context, s settings, r *results) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var each, batches, delivered float64
	err = withStore(filepath.Join(dir, "queue"), func(store durable.Store) (err error) {
		if each, err = eachRate(ctx, s, r, "directory: enqueue, 256 callers, fsynced", store, 40_000, 256); err != nil {
			return err
		}
		if batches, err = batchRate(ctx, s, r, "directory: enqueue, in batches, fsynced", store, 80_000); err != nil {
			return err
		}
		if delivered, err = deliverRate(ctx, s, r, "directory: deliver and acknowledge, fsynced", store, 30_000); err != nil {
			return err
		}
		return latenessOf(ctx, s, r, "directory", store, 10, 30)
	})
	if err == nil && !s.skip["river"] {
		err = compareRiver(ctx, s, r, filepath.Join(dir, "river.sqlite3"), each, batches, delivered)
	}
	if err != nil {
		return err
	}
	return directoryReopen(ctx, s, r, filepath.Join(dir, "large"))
}

// withStore runs f with a store in a directory.
func withStore(dir string, f func(store durable.Store) error) error {
	store, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f(store), store.Close())
}

// compareRiver measures River with its fsyncs, and the ratios of the rates of a directory to its
// rates.
func compareRiver(ctx context.Context, s settings, r *results, path string, each, batches, delivered float64) error {
	q, err := newRiver(ctx, path)
	if err != nil {
		return err
	}
	defer q.db.Close()
	n := s.messages / 50
	theirEach, theirDelivered, err := measurePeer(ctx, s, r, "River on SQLite, fsynced", q, n, 256, 100)
	if err != nil {
		return err
	}
	theirBatches, err := rate(n, func() error { return q.enqueueBatches(ctx, n) })
	r.note("River on SQLite, fsynced: enqueue, in batches", perSecond(theirBatches))
	r.add("directory: enqueue, 256 callers, ratio to River", each/theirEach, 30, false, plain)
	r.add("directory: enqueue, in batches, ratio to River", batches/theirBatches, 4, false, plain)
	r.add("directory: deliver and acknowledge, ratio to River", delivered/theirDelivered, 8, false, plain)
	return err
}

// directoryReopen measures how long a directory with many messages takes to open, and how many
// bytes of the disk a message takes.
func directoryReopen(ctx context.Context, s settings, r *results, dir string) error {
	var start time.Time
	use := func(f func(q *durable.Queue) error) error {
		start = time.Now()
		return withStore(dir, func(store durable.Store) error { return withQueue(ctx, store, "large", f) })
	}
	err := use(func(q *durable.Queue) error { return enqueueBatches(ctx, q, s.reopen, far) })
	if err == nil {
		err = use(func(*durable.Queue) error {
			r.add(fmt.Sprintf("directory: reopen with %d messages", s.reopen), float64(time.Since(start).Milliseconds()), 1000, true, millis)
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
	r.add("directory: disk of a message with a body of 128 bytes", size/float64(s.reopen), 400, true, bytesOf)
	return err
}
