package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
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
	return fileReopen(ctx, s, r, filepath.Join(dir, "large.db"))
}

// withFile runs f with a file store and one of its queues.
func withFile(ctx context.Context, path string, f func(store durable.Store, q *durable.Queue) error) (err error) {
	store, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	q, err := openQueue(ctx, store, "bench")
	if err != nil {
		return err
	}
	defer q.Close()
	return f(store, q)
}

func fileRates(ctx context.Context, s settings, r *results, path string) error {
	return withFile(ctx, path, func(store durable.Store, q *durable.Queue) error {
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
	})
}

// fileReopen measures how long a file with many messages takes to open.
func fileReopen(ctx context.Context, s settings, r *results, path string) error {
	err := withFile(ctx, path, func(_ durable.Store, q *durable.Queue) error { return enqueueBatches(ctx, q, s.reopen, far) })
	if err != nil {
		return err
	}
	start := time.Now()
	return withFile(ctx, path, func(durable.Store, *durable.Queue) error {
		r.add(fmt.Sprintf("file: reopen with %d messages", s.reopen), float64(time.Since(start).Milliseconds()), 1000, true, millis)
		return nil
	})
}
