package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/boltstore"
)

// filePart measures the file store with its fsyncs.
func filePart(ctx context.Context, s settings, r *results) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "queue.db")
	if err := fileRates(ctx, s, r, path); err != nil {
		return err
	}
	return fileReopen(ctx, r, filepath.Join(dir, "large.db"))
}

func fileRates(ctx context.Context, s settings, r *results, path string) error {
	store, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	q, err := openQueue(ctx, store, "bench")
	if err != nil {
		return err
	}
	defer q.Close()
	n := s.messages / 2
	enqueued, err := rate(n, func() error { return enqueueOne(ctx, q, n, 256) })
	if err != nil {
		return err
	}
	r.add("file: enqueue, 256 callers, fsynced", enqueued, 15_000, false, perSecond)
	drained, err := deliverRate(ctx, s, store)
	if err != nil {
		return err
	}
	r.add("file: deliver and acknowledge, fsynced", drained, 30_000, false, perSecond)
	return nil
}

// fileReopen measures how long a file with a million messages takes to open.
func fileReopen(ctx context.Context, r *results, path string) error {
	const million = 1_000_000
	store, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	q, err := openQueue(ctx, store, "bench")
	if err != nil {
		return err
	}
	if err := enqueueBatches(ctx, q, million, far); err != nil {
		return err
	}
	q.Close()
	if err := store.Close(); err != nil {
		return err
	}
	start := time.Now()
	if store, err = boltstore.Open(path, boltstore.Options{}); err != nil {
		return err
	}
	defer store.Close()
	if q, err = openQueue(ctx, store, "bench"); err != nil {
		return err
	}
	defer q.Close()
	r.add("file: reopen with a million messages", float64(time.Since(start).Milliseconds()), 1000, true, millis)
	return nil
}
