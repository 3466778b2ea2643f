package durable_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// bubble runs a test with a queue in memory in a synctest bubble.
func bubble(t *testing.T, options durable.Options, body func(t *testing.T, q *durable.Queue)) {
	t.Helper()
	bubbleOf(t, func(b driver.Backend) driver.Backend { return b }, options, body)
}

// bubbleOf is bubble with wrapped backends.
func bubbleOf(t *testing.T, wrap func(driver.Backend) driver.Backend, options durable.Options, body func(t *testing.T, q *durable.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		q := open(t, wrapped{store, wrap}, options)
		body(t, q)
		q.Close()
		require.NoError(t, store.Close())
		synctest.Wait()
	})
}

func open(t *testing.T, store durable.Store, options durable.Options) *durable.Queue {
	t.Helper()
	if options.OnError == nil {
		options.OnError = func(err error) {
			// Handlers of tests panic on purpose.
			if panicked := (*durable.PanicError)(nil); !errors.As(err, &panicked) {
				t.Errorf("background error: %v", err)
			}
		}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	q, err := durable.Open(t.Context(), store, options)
	require.NoError(t, err)
	return q
}

// deliveries records the deliveries to a handler.
type deliveries struct {
	mu  sync.Mutex
	all []delivery
}

type delivery struct {
	id       string
	body     string
	at, due  time.Duration // since the start of the bubble
	attempts int
	crashes  int
	token    uint64
}

func (ds *deliveries) add(start time.Time, d *durable.Delivery) int {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.all = append(ds.all, delivery{
		d.ID, string(d.Body), time.Since(start), d.Due.Sub(start), d.Attempts, d.Crashes, d.Token,
	})
	return len(ds.all)
}

func (ds *deliveries) list() []delivery {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return slices.Clone(ds.all)
}

func (ds *deliveries) ids() (ids []string) {
	for _, d := range ds.list() {
		ids = append(ids, d.id)
	}
	return ids
}

// consume runs a consumer until the returned function is called.
func consume(t *testing.T, q *durable.Queue, handler durable.Handler, options durable.ConsumerOptions) (stop func()) {
	t.Helper()
	return background(t, func(ctx context.Context) error { return q.Consume(ctx, handler, options) })
}

// background runs consume until the returned function is called.
func background(t *testing.T, consume func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- consume(ctx) }()
	return func() {
		t.Helper()
		cancel()
		assert.NoError(t, <-done)
	}
}

func enqueue(t *testing.T, q *durable.Queue, id string, delay time.Duration) {
	t.Helper()
	_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Delay: delay})
	require.NoError(t, err)
}

// wrapped is a store with wrapped backends.
type wrapped struct {
	durable.Store
	wrap func(driver.Backend) driver.Backend
}

func (s wrapped) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, c)
	return s.wrap(b), err
}
