package durable_test

import (
	"context"
	"errors"
	"fmt"
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

// bubble runs a test on a clock that moves by itself when nobody has anything to do, with a queue
// in memory.
func bubble(t *testing.T, options durable.Options, body func(t *testing.T, q *durable.Queue)) {
	t.Helper()
	bubbleOf(t, func(b driver.Backend) driver.Backend { return b }, options, body)
}

// bubbleOf is bubble on a store whose backends are wrapped.
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
			if panicked := (*durable.PanicError)(nil); !errors.As(err, &panicked) { // those are meant
				t.Errorf("in the background: %v", err)
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

// deliveries is what a handler was called with.
type deliveries struct {
	mu  sync.Mutex
	all []delivery
}

type delivery struct {
	id       string
	body     string
	at, due  time.Duration // since the bubble's beginning
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
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Consume(ctx, handler, options) }()
	return func() {
		t.Helper()
		cancel()
		assert.NoError(t, <-done)
	}
}

func TestMessagesComeAtTheirTimes(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		delays := []time.Duration{0, -time.Hour, time.Nanosecond, time.Millisecond, 1500 * time.Microsecond, 2 * time.Second, 30 * time.Minute, 10 * time.Hour}
		for i, d := range delays {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i), Body: []byte(d.String()), Delay: d})
			require.NoError(t, err)
		}
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "at", At: start.Add(time.Hour + time.Nanosecond)})
		require.NoError(t, err)
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(11 * time.Hour)
		stop()
		require.ElementsMatch(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "at"}, got.ids())
		for _, d := range got.list() {
			assert.GreaterOrEqual(t, d.at, d.due, "message %s is early", d.id)
			assert.Less(t, d.at, d.due+20*time.Millisecond, "message %s is late", d.id)
			assert.Zero(t, d.attempts)
			assert.Zero(t, d.crashes)
			assert.NotZero(t, d.token)
		}
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 9, stats.Enqueued)
		assert.EqualValues(t, 9, stats.Acked)
		assert.Zero(t, stats.Scheduled+stats.InFlight+stats.Dead)
		assert.EqualValues(t, 9, stats.Lateness.Count)
		assert.Zero(t, stats.Prefetched+stats.Firing)
	})
}

// A consumer that waits for a far message notices one that comes before it.
func TestEarlierMessageIsNoticed(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			return nil
		}, durable.ConsumerOptions{Fallback: time.Hour})
		enqueue(t, q, "far", time.Hour)
		time.Sleep(time.Minute)
		enqueue(t, q, "near", time.Second)
		time.Sleep(time.Second + 10*time.Millisecond)
		assert.Equal(t, []string{"near"}, got.ids())
		enqueue(t, q, "now", 0)
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, []string{"near", "now"}, got.ids())
		stop()
	})
}

func enqueue(t *testing.T, q *durable.Queue, id string, delay time.Duration) {
	t.Helper()
	_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Delay: delay})
	require.NoError(t, err)
}

// A queue without a store is refused, also where the nil has a type.
func TestOpenRefusesNilStore(t *testing.T) {
	t.Parallel()
	for _, store := range []durable.Store{nil, (*memstore.Store)(nil)} {
		_, err := durable.Open(t.Context(), store, durable.Options{})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, "store nil")
	}
}

// checkedBackend is a backend whose store may be set up anew.
type checkedBackend struct {
	driver.Backend
	mu    *sync.Mutex
	state *error
}

func (c checkedBackend) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.state
}

// A store that has become unsafe is told once, and once more after it was safe in between, or if it
// is unsafe in another way.
func TestUnsafeStoreIsToldOnce(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		state error
		told  []string
	)
	options := durable.Options{Partitions: 1, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		assert.ErrorIs(t, err, durable.ErrUnsafe)
		told = append(told, err.Error())
	}}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return checkedBackend{b, &mu, &state} }, options, func(t *testing.T, _ *durable.Queue) {
		for _, step := range []struct {
			err  error
			want int
		}{
			{nil, 0},
			{fmt.Errorf("%w: evicts", durable.ErrUnsafe), 1},
			{fmt.Errorf("%w: evicts", durable.ErrUnsafe), 1},
			{fmt.Errorf("%w: no longer there", durable.ErrUnavailable), 1},
			{fmt.Errorf("%w: evicts", durable.ErrUnsafe), 1},
			{fmt.Errorf("%w: keeps nothing", durable.ErrUnsafe), 2},
			{nil, 2},
			{fmt.Errorf("%w: keeps nothing", durable.ErrUnsafe), 3},
		} {
			mu.Lock()
			state = step.err
			mu.Unlock()
			time.Sleep(time.Minute + time.Second)
			mu.Lock()
			require.Len(t, told, step.want, "%v", step.err)
			mu.Unlock()
		}
	})
}

// A call with a nil context is refused before anything is asked of the store.
func TestNilContextsAreRefused(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		for name, call := range map[string]func(ctx context.Context) error{
			"Enqueue":      func(ctx context.Context) error { _, err := q.Enqueue(ctx, durable.Message{}); return err },
			"EnqueueBatch": func(ctx context.Context) error { _, err := q.EnqueueBatch(ctx, make([]durable.Message, 2)); return err },
			"Cancel":       func(ctx context.Context) error { _, err := q.Cancel(ctx, "a"); return err },
			"Reschedule":   func(ctx context.Context) error { _, err := q.Reschedule(ctx, "a", 0); return err },
			"Get":          func(ctx context.Context) error { _, err := q.Get(ctx, "a"); return err },
			"Stats":        func(ctx context.Context) error { _, err := q.Stats(ctx); return err },
			"Audit":        func(ctx context.Context) error { _, err := q.Audit(ctx, false); return err },
			"Replay":       func(ctx context.Context) error { return q.Replay(ctx, "a", 0) },
			"ReplayAll": func(ctx context.Context) error {
				_, err := q.ReplayAll(ctx, durable.DeadFilter{}, durable.ReplayOptions{})
				return err
			},
			"Purge":    func(ctx context.Context) error { return q.Purge(ctx, "a") },
			"PurgeAll": func(ctx context.Context) error { _, err := q.PurgeAll(ctx, durable.DeadFilter{}); return err },
			"Dead": func(ctx context.Context) error {
				for _, err := range q.Dead(ctx) {
					return err
				}
				return nil
			},
		} {
			require.ErrorIs(t, call(nil), durable.ErrInvalid, name)
		}
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Enqueued)
	})
}
