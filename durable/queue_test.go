package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func TestMessagesAreDeliveredAtTheirDueTimes(t *testing.T) {
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
		}, durable.ConsumerOptions{Fallback: time.Minute, Membership: 30 * time.Second})
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
		assert.EqualValues(t, 9, stats.Lateness.Histogram.Count())
		assert.Zero(t, stats.Prefetched+stats.Firing)
	})
}

// A consumer that waits for a message in the far future notices an earlier one.
func TestEarlierMessageIsDeliveredInTime(t *testing.T) {
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

// Open rejects a nil store, even if the nil is typed.
func TestOpenRefusesNilStore(t *testing.T) {
	t.Parallel()
	for _, store := range []durable.Store{nil, (*memstore.Store)(nil)} {
		_, err := durable.Open(t.Context(), store, durable.Options{})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, "store: nil")
	}
}

// Calls with a nil context are rejected before the store is called.
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
			"Consumers":    func(ctx context.Context) error { _, err := q.Consumers(ctx); return err },
			"Pause":        q.Pause,
			"Resume":       q.Resume,
			"Healthy":      q.Healthy,
			"Replay":       func(ctx context.Context) error { return q.Replay(ctx, "a", 0) },
			"ReplayAll": func(ctx context.Context) error {
				_, err := q.ReplayAll(ctx, durable.DeadFilter{All: true}, durable.ReplayOptions{})
				return err
			},
			"DeleteDead": func(ctx context.Context) error { return q.DeleteDead(ctx, "a") },
			"DeleteAllDead": func(ctx context.Context) error {
				_, err := q.DeleteAllDead(ctx, durable.DeadFilter{All: true})
				return err
			},
			"List": func(ctx context.Context) error {
				for _, err := range q.List(ctx, durable.StateDead) {
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

func TestStringReturnsTheDeclaredName(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]fmt.Stringer{
		"Cancelled":   durable.ResultCancelled,
		"Rescheduled": durable.ResultRescheduled,
		"Firing":      durable.ResultFiring,
		"NotFound":    durable.ResultNotFound,
		"Result(0)":   durable.Result(0),
		"Interrupted": durable.ResultInterrupted,
		"Result(6)":   durable.ResultInterrupted + 1,
		"Scheduled":   durable.StateScheduled,
		"Leased":      durable.StateLeased,
		"Dead":        durable.StateDead,
		"State(5)":    durable.StateDead + 1,
		"Begin":       driver.OpBegin,
		"Cancel":      driver.OpCancel,
		"Purge":       driver.OpPurge,
		"Expire":      driver.OpExpire,
		"Repeat":      driver.OpRepeat,
		"Op(13)":      driver.OpRepeat + 1,
		"Done":        driver.StatusDone,
		"Early":       driver.StatusEarly,
		"LeaseLost":   driver.StatusLeaseLost,
		"Status(255)": driver.Status(255),
	} {
		assert.Equal(t, want, value.String())
	}
	assert.Equal(t, "NotFound", fmt.Sprint(durable.ResultNotFound))
}
