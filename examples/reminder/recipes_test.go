package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/typed"
)

type (
	Order  struct{ Number int }
	Report struct{}
)

func TestTwoKindsAsOnThePage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t)
		defer q.Close()
		time.Sleep(6 * time.Hour) // from midnight on January 1, 2000
		ctx, stop := context.WithTimeout(t.Context(), 90*time.Minute)
		defer stop()
		var order, runs atomic.Int32
		cancelOrder := func(_ context.Context, d *typed.Delivery[Order]) error {
			order.Store(int32(d.Body.Number))
			return nil
		}
		sendReport := func(_ context.Context, d *typed.Delivery[Report]) error {
			runs.Add(1)
			assert.Equal(t, 7, d.Planned.UTC().Hour(), "8:00 in Berlin")
			return nil
		}

		orders, reports := typed.New[Order](q, nil), typed.New[Report](q, nil)
		_, err := orders.Enqueue(ctx, typed.Message[Order]{Body: Order{42}, Delay: 30 * time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		_, err = reports.Enqueue(ctx, typed.Message[Report]{ID: "daily-report", Repeat: "CRON_TZ=Europe/Berlin 0 8 * * *"})
		if err != nil && !errors.Is(err, durable.ErrDuplicate) { // enqueued by an earlier start
			log.Fatal(err)
		}
		mux := durable.Mux{Kinds: map[string]durable.Kind{
			"Order":  {Handler: orders.Handler(cancelOrder), Timeout: 5 * time.Second},
			"Report": {Handler: reports.Handler(sendReport), Timeout: time.Minute},
		}}
		err = q.Consume(ctx, mux.Handle, durable.ConsumerOptions{Concurrency: 16})

		require.NoError(t, err)
		assert.EqualValues(t, 42, order.Load())
		assert.EqualValues(t, 1, runs.Load())
		time.Sleep(23 * time.Hour) // an idle consumer would poll the store meanwhile
		ctx, stop = context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		require.NoError(t, q.Consume(ctx, mux.Handle, durable.ConsumerOptions{}))
		assert.EqualValues(t, 2, runs.Load())
	})
}

func TestLimitAsOnThePage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var queues []*durable.Queue
		for _, name := range []string{"orders", "calls"} {
			q, err := durable.Open(t.Context(), store, durable.Options{Queue: name})
			require.NoError(t, err)
			defer q.Close()
			for range 1000 {
				_, err := q.Enqueue(t.Context(), durable.Message{Delay: time.Second})
				require.NoError(t, err)
			}
			queues = append(queues, q)
		}
		orders, calls := queues[0], queues[1]
		ctx, stop := context.WithTimeout(t.Context(), 31*time.Second)
		defer stop()
		var cancelled, called atomic.Int32
		cancelOrder := func(context.Context, *durable.Delivery) error { cancelled.Add(1); return nil }
		callAPI := func(context.Context, *durable.Delivery) error { called.Add(1); return nil }

		err := durable.Consume(ctx, []durable.Source{
			{Queue: orders, Handler: cancelOrder, Weight: 3},
			{Queue: calls, Handler: callAPI, Rate: 10, MaxRunning: 4},
		}, durable.ConsumerOptions{Concurrency: 16})

		require.NoError(t, err)
		assert.EqualValues(t, 1000, cancelled.Load())
		assert.InDelta(t, 300, called.Load(), 2)
	})
}

func TestOneAtATimeAsOnThePage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t)
		defer q.Close()
		for i := range 20 {
			_, err := q.Enqueue(t.Context(), durable.Message{Headers: map[string]string{"customer": fmt.Sprint(i % 2)}})
			require.NoError(t, err)
		}
		var handled atomic.Int32
		var running [2]atomic.Int32
		handle := func(_ context.Context, d *durable.Delivery) error {
			n := &running[d.Headers["customer"][0]-'0']
			assert.EqualValues(t, 1, n.Add(1))
			time.Sleep(time.Second)
			n.Add(-1)
			handled.Add(1)
			return nil
		}

		handler := durable.Chain(handle, durable.OneAtATime(func(d *durable.Delivery) string {
			return d.Headers["customer"]
		}))

		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		require.NoError(t, q.Consume(ctx, handler, durable.ConsumerOptions{}))
		assert.EqualValues(t, 20, handled.Load())
	})
}

// consume runs a handler until the queue is empty.
func consume(t *testing.T, q *durable.Queue, handler durable.Handler) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Consume(ctx, handler, durable.ConsumerOptions{}) }()
	assert.Eventually(t, func() bool {
		stats, err := q.Stats(ctx)
		return err == nil && stats.Scheduled+stats.InFlight == 0
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

func TestPollingAsOnThePage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t)
		defer q.Close()
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "order-42"})
		require.NoError(t, err)
		start := time.Now()
		isPaid := func(context.Context, string) bool { return time.Since(start) > 2*time.Minute+time.Second }

		handler := func(ctx context.Context, d *durable.Delivery) error {
			if !isPaid(ctx, d.ID) {
				return durable.Postpone(time.Minute)
			}
			return nil
		}

		ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
		defer stop()
		require.NoError(t, q.Consume(ctx, handler, durable.ConsumerOptions{}))
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Acked)
		assert.Zero(t, stats.Retried)
	})
}

// database has the ids of the effects that were committed.
type database struct{ committed map[string]int }

type transaction struct {
	db  *database
	ids []string
}

func (db *database) Begin(context.Context) (*transaction, error) { return &transaction{db: db}, nil }

func (*transaction) Rollback(context.Context) {}

func (tx *transaction) Commit(context.Context) error {
	for _, id := range tx.ids {
		tx.db.committed[id]++
	}
	return nil
}

func TestTransactionAsOnThePage(t *testing.T) {
	t.Parallel()
	q := openQueue(t)
	db := &database{committed: map[string]int{}}
	insert := func(_ context.Context, tx *transaction, id string, run time.Time) (bool, error) {
		tx.ids = append(tx.ids, id+run.String())
		return tx.db.committed[id+run.String()] == 0, nil
	}
	deliveries := 0
	apply := func(context.Context, *transaction, *durable.Delivery) error { deliveries++; return nil }
	_, err := q.Enqueue(t.Context(), durable.Message{ID: "order-42"})
	require.NoError(t, err)

	handler := func(ctx context.Context, d *durable.Delivery) error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if isNew, err := insert(ctx, tx, d.ID, d.Planned); err != nil || !isNew { // ON CONFLICT DO NOTHING
			return err
		}
		if err := apply(ctx, tx, d); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}

	d, err := q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, handler(t.Context(), d)) // and the process crashes
	require.NoError(t, d.Release(t.Context()))
	consume(t, q, handler)
	assert.Equal(t, 1, deliveries)
	assert.Len(t, db.committed, 1)
}

func TestInterruptAsOnThePage(t *testing.T) {
	t.Parallel()
	q := openQueue(t)
	_, err := q.Enqueue(t.Context(), durable.Message{ID: "export-7"})
	require.NoError(t, err)
	consume(t, q, func(ctx context.Context, _ *durable.Delivery) error {
		result, err := q.Cancel(ctx, "export-7", durable.Interrupt) // ResultInterrupted or ResultCancelled
		assert.NoError(t, err)
		assert.Equal(t, durable.ResultInterrupted, result)
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
