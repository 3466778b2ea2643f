package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// TestBench_Twice begins a second one in the middle of the first.
func TestBench_Twice(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	args := []string{"bench", "-n", "600", "-spread", "50ms"}
	refused := 0
	stderr := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "messages that are due") {
			refused++
			require.ErrorContains(t, onMemory(t.Context(), store, io.Discard, io.Discard, args...), `another delayq bench measures queue "default.bench"`)
		}
		return len(p), nil
	})
	require.NoError(t, onMemory(t.Context(), store, io.Discard, stderr, args...))
	assert.Equal(t, 2, refused, "in both parts")
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, args...), "the mark is gone")
	assert.EqualValues(t, 2400, countsOf(t, store, "default.bench").Acked)
}

// benchSession opens the queue of bench in memory.
func benchSession(t *testing.T) (*app, *session) {
	store := memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{Queue: benchQueue("default"), Partitions: 1})
	require.NoError(t, err)
	a := newApp(nil, io.Discard, io.Discard)
	a.store = "memory:"
	return a, &session{q, store, benchQueue("default")}
}

func TestMarked_Kept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := benchSession(t)
		defer s.Close()
		nothing := func(context.Context) error { return nil }
		broken := errors.New("broken")
		require.ErrorIs(t, a.marked(t.Context(), s, func(context.Context) error {
			time.Sleep(10 * markTime)
			require.ErrorContains(t, a.marked(t.Context(), s, nothing), "another delayq bench")
			return broken
		}), broken)
		require.NoError(t, a.marked(t.Context(), s, nothing), "it is taken out")
	})
}

func TestMarked_AfterAKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := benchSession(t)
		defer s.Close()
		nothing := func(context.Context) error { return nil }
		require.NoError(t, a.mark(t.Context(), s, []byte("killed")))
		time.Sleep(markTime - time.Second)
		require.ErrorContains(t, a.marked(t.Context(), s, nothing), "less than 30s ago")
		a.store = "file:x"
		require.NoError(t, a.marked(t.Context(), s, nothing), "who has the file is alone")
		a.store = "memory:"
		require.NoError(t, a.mark(t.Context(), s, []byte("killed")))
		time.Sleep(markTime + time.Second)
		require.NoError(t, a.marked(t.Context(), s, nothing))
	})
}

func TestMarked_Lost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, s := benchSession(t)
		defer s.Close()
		for _, taker := range []string{"", "another one"} {
			require.ErrorIs(t, a.marked(t.Context(), s, func(ctx context.Context) error {
				_, err := s.Cancel(ctx, benchMark)
				require.NoError(t, err)
				if taker != "" {
					require.NoError(t, a.mark(ctx, s, []byte(taker)))
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}), errMarkLost)
		}
		r, err := s.Get(t.Context(), benchMark)
		require.NoError(t, err)
		assert.Equal(t, "another one", string(r.Body), "it is left alone")
	})
}
