package durabledebug

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

// A snapshot is valid for minSnapshotAge, less than the polling interval of a page, one second, so
// a single viewer always gets a new snapshot. A slow snapshot is valid for costFactor times its
// reading time, up to maxSnapshotAge, so that reading takes a small part of the store's time. A
// list of messages is valid for searchFactor times its reading time.
const (
	minSnapshotAge = 500 * time.Millisecond
	costFactor     = 10
	maxSnapshotAge = 3 * time.Second
	searchFactor   = 100
)

// watchedQueue is a queue that was added.
type watchedQueue struct {
	name string
	q    *durable.Queue

	mu      sync.Mutex
	current *snapshot // the last snapshot, or the one in progress; nil: none
	until   time.Time // when current is too old; zero while it is in progress
	lists   *lists    // of the snapshots since forget
}

// snapshot is one reading of a queue.
type snapshot struct {
	over  chan struct{}  // closed when the other fields are set
	queue map[string]any // not used if err is set
	err   error
}

// lists are the messages of a queue that the last searches have found.
type lists struct{ dead, recurring list }

// snapshot returns the last snapshot or, if it is too old, waits for a new one until ctx ends.
// Concurrent callers share one snapshot, even if the store ignores its context.
func (w *watchedQueue) snapshot(ctx context.Context, timeout time.Duration, headers bool) (map[string]any, error) {
	w.mu.Lock()
	if w.current == nil || !w.until.IsZero() && !time.Now().Before(w.until) {
		w.current, w.until = &snapshot{over: make(chan struct{})}, time.Time{}
		go w.refresh(w.current, w.lists, timeout, headers)
	}
	l := w.current
	w.mu.Unlock()
	select {
	case <-l.over:
		return l.queue, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the store did not answer: %w", context.Cause(ctx))
	}
}

// refresh reads the queue and sets how long the snapshot is valid.
func (w *watchedQueue) refresh(l *snapshot, found *lists, timeout time.Duration, headers bool) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	began := time.Now()
	l.queue, l.err = readQueue(ctx, w.name, w.q, found, headers, timeout/5)
	close(l.over)
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == l {
		w.until = now.Add(min(maxSnapshotAge, max(minSnapshotAge, costFactor*now.Sub(began))))
	}
}

// forget makes the next caller read a new snapshot, even if another one is in progress.
func (w *watchedQueue) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current, w.lists = nil, new(lists)
}

// document returns the JSON document of the named queue, or of the first queue if name is empty.
func (h *Handler) document(ctx context.Context, name string) (int, *jsonDocument) {
	d := &jsonDocument{Schema: schemaVersion, Actions: h.Actions, Queues: []entry{}}
	for _, e := range h.queues.All() {
		d.Queues = append(d.Queues, entry{e.Name})
	}
	chosen, ok := h.queues.Choose(name)
	if !ok {
		if name == "" {
			return http.StatusOK, d
		}
		d.Error = fmt.Sprintf("no queue %q", name)
		return http.StatusNotFound, d
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout())
	defer cancel()
	queue, err := chosen.Value.snapshot(ctx, h.timeout(), h.Headers)
	if err != nil {
		d.Error = err.Error()
		return http.StatusServiceUnavailable, d
	}
	d.Queue = queue
	return http.StatusOK, d
}
