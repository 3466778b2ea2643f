package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/docsnippet"
)

// The code in the pages on the durable queue is from this program, its tests, and the examples of
// module durable and the stores.
func TestPagesShowCodeThatRuns(t *testing.T) {
	t.Parallel()
	files := []string{}
	for _, pattern := range []string{"*.go", "../../durable/example_test.go", "../../durable/*/example_test.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			code, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, string(code))
		}
	}
	for name, least := range map[string]int{"durable.md": 10, "durable-postgres.md": 3} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		require.NoError(t, err)
		snippets := docsnippet.All(string(text))
		assert.GreaterOrEqual(t, len(snippets), least, name)
		for _, s := range snippets {
			assert.True(t, docsnippet.InOneOf(files, s), "docs/%s has code that is in no example:\n%s", name, s)
		}
	}
}

// The first program of docs/durable.md is main.go, so it compiles.
func TestPageShowsTheWholeProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/durable.md")
	require.NoError(t, err)
	code, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Regexp(t, "(?s)^// Reminder [^\n]*\n.*\n"+"package main\n", string(code))
	require.Contains(t, string(code), "\n"+docsnippet.All(string(text))[0])
	require.Regexp(t, "^package main\n", docsnippet.All(string(text))[0])
}

var (
	errNoSuchUser = errors.New("no such user")
	errRefused    = errors.New("connection refused")
	errUnpaid     = errors.New("not paid yet")
)

func TestOutcomesAsOnThePage(t *testing.T) {
	t.Parallel()
	q := openQueue(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	outcomes := map[string]error{"a": errNoSuchUser, "b": errRefused, "c": nil, "d": errUnpaid, "e": nil}
	var sent atomic.Int32
	send := func(_ context.Context, d *durable.Delivery) error {
		if int(sent.Add(1)) == len(outcomes) {
			stop()
		}
		return outcomes[d.ID]
	}
	for id := range outcomes {
		_, err := q.Enqueue(ctx, durable.Message{ID: id, MaxAttempts: 1, Headers: map[string]string{"more": map[string]string{"e": "yes"}[id]}})
		require.NoError(t, err)
	}

	err := q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
		err := send(ctx, d)
		switch {
		case errors.Is(err, errNoSuchUser):
			return durable.Reject(err) // a dead letter immediately
		case errors.Is(err, errRefused):
			return durable.Fail(err, time.Minute) // instead of Backoff
		case errors.Is(err, errUnpaid):
			return durable.Postpone(time.Minute) // look again later; counts no attempt
		case err == nil && d.Headers["more"] != "":
			return durable.Again(time.Hour) // handled, and due again with the same id
		}
		return err
	}, durable.ConsumerOptions{HandlerTimeout: 10 * time.Second})
	require.NoError(t, err)

	ctx = t.Context()
	var dead []string
	for r, err := range q.List(ctx, durable.StateDead) {
		require.NoError(t, err)
		dead = append(dead, r.ID)
	}
	require.ElementsMatch(t, []string{"a", "b"}, dead, "b has had its only attempt")
	for id, delay := range map[string]time.Duration{"d": time.Minute, "e": time.Hour} {
		r, err := q.Get(ctx, id)
		require.NoError(t, err)
		require.Zero(t, r.Attempts)
		require.InDelta(t, delay, time.Until(r.Due), float64(30*time.Second))
	}
}

func openQueue(t *testing.T) *durable.Queue {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	q, err := durable.Open(t.Context(), store, durable.Options{Queue: "orders"})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q
}
