package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

func enqueueKind(t *testing.T, q *durable.Queue, id string, headers map[string]string) {
	t.Helper()
	_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Headers: headers})
	require.NoError(t, err)
}

// Each message goes to the handler of its kind, with the timeout and the backoff of the kind.
func TestMuxHandlesEachKind(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"", "type"} {
		bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
			name := "kind"
			if header != "" {
				name = header
			}
			var plain deliveries
			start := time.Now()
			hours := func(d *durable.Delivery, err error) time.Duration {
				assert.Equal(t, context.DeadlineExceeded, err)
				return time.Duration(d.Attempts+1) * time.Hour
			}
			mux := durable.Mux{Header: header, Kinds: map[string]durable.Kind{
				"": {Handler: func(_ context.Context, d *durable.Delivery) error {
					plain.add(start, d)
					return nil
				}},
				"slow": {Timeout: time.Minute, Backoff: hours, Handler: func(ctx context.Context, _ *durable.Delivery) error {
					<-ctx.Done()
					return ctx.Err()
				}},
				"postponed": {Backoff: hours, Handler: func(context.Context, *durable.Delivery) error { return durable.Postpone(5 * time.Hour) }},
				"failed":    {Handler: func(context.Context, *durable.Delivery) error { return assert.AnError }},
				"panics":    {Backoff: hours, Handler: func(context.Context, *durable.Delivery) error { panic("broken") }},
				"nil":       {},
			}}
			for _, kind := range []string{"slow", "postponed", "failed", "panics", "nil", "unknown"} {
				enqueueKind(t, q, kind, map[string]string{name: kind})
			}
			enqueueKind(t, q, "plain", map[string]string{"other": "slow"})
			stop := consume(t, q, mux.Handle, durable.ConsumerOptions{Backoff: func(*durable.Delivery, error) time.Duration { return 3 * time.Hour }})
			time.Sleep(30 * time.Minute)
			stop()
			assert.Equal(t, []string{"plain"}, plain.ids())
			for id, c := range map[string]struct {
				attempts int
				due      time.Duration
				reason   string
			}{
				"slow": {1, time.Minute + time.Hour, "context deadline exceeded"}, "postponed": {0, 5 * time.Hour, ""},
				"failed": {1, 3 * time.Hour, assert.AnError.Error()}, "panics": {1, 3 * time.Hour, "broken"},
			} {
				r, err := q.Get(t.Context(), id)
				require.NoError(t, err, id)
				assert.Equal(t, c.attempts, r.Attempts, id)
				assert.InDelta(t, c.due.Seconds(), r.Due.Sub(start).Seconds(), 1, id)
				assert.Contains(t, r.Reason, c.reason)
			}
			for _, id := range []string{"nil", "unknown"} {
				r, err := q.Get(t.Context(), id)
				require.NoError(t, err)
				assert.Zero(t, r.Attempts)
				assert.Contains(t, r.Reason, `no handler for the header "`+name+`" with the value "`+id+`"`)
			}
		})
	}
}

// The end of Consume interrupts a handler of a kind with a backoff like any other.
func TestMuxKeepsInterruptionsUncounted(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{MaxAttempts: 1}, func(t *testing.T, q *durable.Queue) {
		ctx, cancel := context.WithCancel(t.Context())
		mux := durable.Mux{Kinds: map[string]durable.Kind{"": {
			Backoff: durable.Exponential(time.Hour, time.Hour),
			Handler: func(context.Context, *durable.Delivery) error {
				cancel()
				return ctx.Err()
			},
		}}}
		enqueue(t, q, "m", 0)
		require.NoError(t, q.Consume(ctx, mux.Handle, durable.ConsumerOptions{}))
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateScheduled, r.State)
		assert.Zero(t, r.Attempts)
	})
}

// A rolling deploy: the old version has no handler for a new kind, and the new version handles it
// as soon as it is there.
func TestUnknownKindWaitsForTheNextVersion(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		var got deliveries
		old := durable.Mux{Kinds: map[string]durable.Kind{"old": {Handler: func(context.Context, *durable.Delivery) error { return nil }}}}
		next := durable.Mux{Kinds: map[string]durable.Kind{"new": {Handler: func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			return nil
		}}}}
		enqueueKind(t, q, "m", map[string]string{"kind": "new"})
		stop := consume(t, q, old.Handle, durable.ConsumerOptions{})
		time.Sleep(time.Minute)
		stop()
		stop = consume(t, q, next.Handle, durable.ConsumerOptions{})
		time.Sleep(5 * time.Minute)
		stop()
		require.Len(t, got.list(), 1)
		assert.Zero(t, got.list()[0].attempts)
	})
}
