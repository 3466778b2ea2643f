package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durabletest"
)

func enqueue(t *testing.T, q *durable.Queue, id string, delay time.Duration) {
	t.Helper()
	_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Delay: delay})
	require.NoError(t, err)
}

func ids(records []durable.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// Only what is due is delivered, in order of due time, with every outcome.
func TestRunDueDeliversWhatIsDue(t *testing.T) {
	t.Parallel()
	q, test := durabletest.New(t, durable.Options{Logger: slog.New(slog.DiscardHandler)})
	outcomes := map[string]error{
		"again": durable.Again(time.Hour), "postponed": durable.Postpone(time.Minute), "failed": durable.Fail(assert.AnError, time.Second),
		"rejected": durable.Reject(assert.AnError),
	}
	enqueue(t, q, "late", 30*time.Minute+time.Millisecond)
	for i, id := range []string{"done", "again", "postponed", "failed", "rejected"} {
		enqueue(t, q, id, 30*time.Minute-time.Duration(i)*time.Millisecond)
	}
	handler := func(_ context.Context, d *durable.Delivery) error { return outcomes[d.ID] }
	require.Empty(t, test.RunDue(t.Context(), handler, durable.ConsumerOptions{}))
	require.Equal(t, []string{"rejected", "failed", "postponed", "again", "done", "late"}, ids(test.Pending()))

	test.Advance(30 * time.Minute)
	var got []string
	for _, e := range test.RunDue(t.Context(), handler, durable.ConsumerOptions{}) {
		got = append(got, fmt.Sprint(e.ID, " ", e.Kind, " ", e.Delay, " ", errors.Is(e.Err, assert.AnError)))
	}
	require.Equal(t, []string{
		"rejected Buried 0s true", "failed Retried 1s true", "postponed Postponed 1m0s false", "again Again 1h0m0s false", "done Acked 0s false",
	}, got)
	require.Equal(t, []string{"late", "failed", "postponed", "again"}, ids(test.Pending()))
	test.Advance(time.Second)
	require.Len(t, test.RunDue(t.Context(), handler, durable.ConsumerOptions{}), 2)
}

// Messages that become due during RunDue are delivered, and those that have expired or whose queue
// is paused are not. A handler may settle its message and move the clock.
func TestRunDueFollowsTheQueue(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 8} {
		q, test := durabletest.New(t, durable.Options{Partitions: partitions})
		enqueue(t, q, "first", 0)
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "expired", Delay: time.Minute, ExpireAt: time.Now().Add(time.Second)})
		require.NoError(t, err)
		var got []string
		handler := func(ctx context.Context, d *durable.Delivery) error {
			got = append(got, d.ID)
			if d.ID == "first" {
				enqueue(t, q, "second", 0)
				enqueue(t, q, "third", time.Hour)
				test.Advance(time.Hour)
				return d.Ack(ctx)
			}
			return nil
		}
		require.NoError(t, q.Pause(t.Context()))
		require.Empty(t, test.RunDue(t.Context(), handler, durable.ConsumerOptions{}))
		require.NoError(t, q.Resume(t.Context()))
		events := test.RunDue(t.Context(), handler, durable.ConsumerOptions{})
		require.ElementsMatch(t, []string{"first", "second", "third"}, got)
		kinds := make(map[durable.EventKind]int)
		for _, e := range events {
			kinds[e.Kind]++
		}
		require.Equal(t, map[durable.EventKind]int{durable.EventAcked: 3, durable.EventExpired: 1}, kinds)
	}
}

// RunDue ends if due messages are not delivered, or their last handler fails.
func TestRunDueEnds(t *testing.T) {
	t.Parallel()
	q, test := durabletest.New(t, durable.Options{Logger: slog.New(slog.DiscardHandler)})
	for name, c := range map[string]struct {
		handler durable.Handler
		calls   int
		dead    int
	}{
		"cancels the other message": {func(ctx context.Context, d *durable.Delivery) error {
			r, err := q.Cancel(ctx, map[string]string{"a": "b", "b": "a"}[d.ID])
			assert.Equal(t, durable.ResultCancelled, r)
			return err
		}, 1, 0},
		"cancels itself": {func(ctx context.Context, d *durable.Delivery) error {
			r, err := q.Cancel(ctx, d.ID, durable.Interrupt)
			assert.Equal(t, durable.ResultInterrupted, r)
			<-ctx.Done()
			return err
		}, 2, 0},
		"pauses the queue":           {func(ctx context.Context, _ *durable.Delivery) error { return q.Pause(ctx) }, 1, 0},
		"fails because of a context": {func(context.Context, *durable.Delivery) error { return context.Canceled }, 2, 2},
	} {
		calls := 0
		for _, id := range []string{"a", "b"} {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: id, MaxAttempts: 1})
			require.NoError(t, err, name)
		}
		test.RunDue(t.Context(), func(ctx context.Context, d *durable.Delivery) error {
			calls++
			return c.handler(ctx, d)
		}, durable.ConsumerOptions{})
		require.Equal(t, c.calls, calls, name)
		require.NoError(t, q.Resume(t.Context()))
		_, err := q.CancelAll(t.Context())
		require.NoError(t, err)
		n, err := q.DeleteAllDead(t.Context(), durable.DeadFilter{All: true})
		require.NoError(t, err)
		require.Equal(t, c.dead, n, name)
	}
}

// RunDue neither waits for a message that Take has returned nor delivers it.
func TestRunDueLeavesTakenMessages(t *testing.T) {
	t.Parallel()
	q, test := durabletest.New(t, durable.Options{})
	enqueue(t, q, "taken", 0)
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	enqueue(t, q, "m", 0)
	events := test.RunDue(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
	require.Len(t, events, 1)
	require.Equal(t, "m", events[0].ID)
	require.NoError(t, d.Ack(t.Context()))
}

// RunDue neither waits for messages that are due later nor delivers them, although it claims them
// ahead while the handler runs.
func TestRunDueLeavesLaterMessages(t *testing.T) {
	t.Parallel()
	for _, later := range []time.Duration{1, 3, 50, 450} {
		synctest.Test(t, func(t *testing.T) {
			q, test := durabletest.New(t, durable.Options{})
			enqueue(t, q, "now", 0)
			enqueue(t, q, "later", later*time.Millisecond)
			events := test.RunDue(t.Context(), func(context.Context, *durable.Delivery) error {
				time.Sleep(time.Minute)
				return nil
			}, durable.ConsumerOptions{})
			require.Len(t, events, 1)
			require.Equal(t, []string{"later"}, ids(test.Pending()))
		})
	}
}

// A handler that moves the clock beyond any lease and takes its time keeps its message.
func TestRunDueLosesNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, test := durabletest.New(t, durable.Options{})
		handler := func(_ context.Context, d *durable.Delivery) error {
			test.Advance(24 * time.Hour)
			time.Sleep(time.Minute)
			assert.Zero(t, d.Crashes)
			return nil
		}
		key := func(*durable.Delivery) string { return "key" }
		for _, handler := range []durable.Handler{handler, durable.OneAtATime(key)(handler)} {
			enqueue(t, q, "a", 0)
			enqueue(t, q, "b", 0)
			events := test.RunDue(t.Context(), handler, durable.ConsumerOptions{})
			require.Len(t, events, 2)
			require.Equal(t, durable.EventAcked, events[1].Kind)
		}
	})
}

func TestQueueWorksInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, test := durabletest.New(t, durable.Options{})
		enqueue(t, q, "m", time.Hour)
		test.Advance(time.Hour)
		require.Len(t, test.RunDue(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{}), 1)
	})
}
