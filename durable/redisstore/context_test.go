package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// The server does not answer, and the client waits a minute for it and ignores contexts while it
// reads. Each call returns when its context ends, by a deadline and by a cancellation.
func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := newClient(t, server.Addr())
	require.False(t, client.Options().ContextTimeoutEnabled, "with this option the client itself would return")
	require.GreaterOrEqual(t, client.Options().ReadTimeout, time.Minute)
	store := newStore(t, client, redisstore.Options{})
	waiting := openQueue(t, client, redisstore.Options{Wait: 1})
	q, err := store.Open(t.Context(), config())
	require.NoError(t, err)
	put(t, q, items("a", 1, 1, 0))
	id := items("a", 1, 1, 0)[0].ID

	server.Pause()
	defer server.Continue()
	for name, call := range map[string]func(ctx context.Context) error{
		"open": func(ctx context.Context) error { _, err := store.Open(ctx, config()); return err },
		"put": func(ctx context.Context) error {
			_, err := q.Put(ctx, driver.Put{Items: items("b", 1, 1, 0)})
			return err
		},
		"put and wait": func(ctx context.Context) error {
			_, err := waiting.Put(ctx, driver.Put{Items: items("c", 1, 1, 0)})
			return err
		},
		"claim": func(ctx context.Context) error { _, err := q.Claim(ctx, driver.Claim{}); return err },
		"cancel": func(ctx context.Context) error {
			_, err := q.Apply(ctx, driver.Batch{Op: driver.OpCancel, Changes: []driver.Change{{ID: id}}})
			return err
		},
		"get":   func(ctx context.Context) error { _, err := q.Get(ctx, 0, id); return err },
		"count": func(ctx context.Context) error { _, err := q.Count(ctx, 0); return err },
		"audit": func(ctx context.Context) error { _, err := q.(driver.Auditor).Audit(ctx, 0, false); return err },
		"heartbeat": func(ctx context.Context) error {
			_, err := q.Heartbeat(ctx, driver.Member{Name: "m"}, time.Minute)
			return err
		},
		"list": func(ctx context.Context) error {
			_, _, err := q.List(ctx, 0, driver.StateScheduled, "", 1)
			return err
		},
		"watch": func(ctx context.Context) error {
			hints, err := q.Watch(ctx)
			require.NoError(t, err, "Watch keeps trying")
			<-ctx.Done()
			for range hints {
			}
			return context.Cause(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
			ctx, end := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { end(assert.AnError) })
			require.ErrorIs(t, call(ctx), assert.AnError)
			assert.Less(t, time.Since(begun), 30*time.Second)
		})
	}
}

// Each key of a queue has a value of another program.
func TestErrorNamesTheKeyOfAWrongType(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	item := items("a", 1, 1, 0)
	for key, call := range map[string]func() error{
		"tw:{orders:0}:m": func() error { _, err := q.Put(t.Context(), driver.Put{Items: item}); return err },
		"tw:{orders:0}:d": func() error { _, err := q.Put(t.Context(), driver.Put{Items: item}); return err },
		"tw:{orders:0}:c": func() error { _, err := q.Count(t.Context(), 0); return err },
		"tw:{orders:0}:x": func() error { _, err := q.Claim(t.Context(), driver.Claim{}); return err },
		"tw:{orders:0}:s": func() error { _, err := q.Get(t.Context(), 0, "a"); return err },
		"tw:{orders:0}:l": func() error { _, err := q.Claim(t.Context(), driver.Claim{}); return err },
		"tw:{orders}:members": func() error {
			_, err := q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Minute)
			return err
		},
		"tw:{orders}:hosts": func() error {
			_, err := q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Minute)
			return err
		},
		"tw:{orders}:meta": func() error {
			_, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), config())
			return err
		},
	} {
		require.NoError(t, client.Del(t.Context(), key).Err())
		require.NoError(t, client.Set(t.Context(), key, "of another program", 0).Err())
		err := call()
		require.ErrorIs(t, err, driver.ErrVersion, key)
		require.ErrorContains(t, err, `"`+key+`" is a string`)
		require.NoError(t, client.Del(t.Context(), key).Err())
	}
}
