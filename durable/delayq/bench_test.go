package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func TestBench(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "enqueue", "-id", "mine", "-body", "x"))
	var out bytes.Buffer
	require.NoError(t, onMemory(t.Context(), store, &out, io.Discard, "bench", "-n", "600", "-spread", "100ms", "-json"))
	var j benchJSON
	require.NoError(t, json.Unmarshal(out.Bytes(), &j))
	assert.Equal(t, 600, j.Messages)
	assert.Positive(t, j.EnqueueSec)
	assert.Positive(t, j.ConsumeSec)
	assert.GreaterOrEqual(t, j.Max, j.P50)
	counts := countsOf(t, store, benchQueue("default"))
	assert.EqualValues(t, 1200, counts.Acked)
	assert.Zero(t, counts.Scheduled+counts.InFlight)
	assert.EqualValues(t, 1, countsOf(t, store, "default").Scheduled, "the queue itself is left alone")
	out.Reset()
	require.NoError(t, onMemory(t.Context(), store, &out, io.Discard, "bench", "-n", "10", "-spread", "10ms", "-size", "0"))
	assert.Contains(t, out.String(), "late, 99.9%")
}

func countsOf(t *testing.T, store durable.Store, queue string) durable.Counts {
	q, err := durable.Open(t.Context(), store, durable.Options{Queue: queue})
	require.NoError(t, err)
	defer q.Close()
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	return stats.Counts
}

func TestBench_LeavesOthersAlone(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "-queue", "default.bench", "enqueue", "-id", "mine", "-body", "x"))
	err := onMemory(t.Context(), store, io.Discard, io.Discard, "bench", "-n", "10")
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, `"mine"`)
	assert.EqualValues(t, 1, countsOf(t, store, "default.bench").Scheduled)
}

func TestBench_CtrlC(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	stderr := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "due over") { // the second part begins
			cancel()
		}
		return len(p), nil
	})
	require.ErrorIs(t, onMemory(ctx, store, io.Discard, stderr, "bench", "-n", "1000", "-spread", "1h"), context.Canceled)
	c := countsOf(t, store, "default.bench")
	assert.Zero(t, c.Scheduled+c.InFlight, "it has tidied up")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// faulty is a store whose audits find faults.
type faulty struct{ durable.Store }

type faultyBackend struct{ driver.Backend }

func (f faulty) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := f.Store.Open(ctx, c)
	return faultyBackend{b}, err
}

func (f faultyBackend) Audit(_ context.Context, _ int, repair bool) (durable.AuditReport, error) {
	r := durable.AuditReport{Records: 10, Orphans: 2, Strays: 1, Wrong: 1}
	if repair {
		r.Repaired = 4
	}
	return r, nil
}

func TestAudit(t *testing.T) {
	t.Parallel()
	audit := func(store durable.Store, args ...string) (string, error) {
		var out bytes.Buffer
		a := newApp(nil, &out, io.Discard)
		a.open = func(string) (durable.Store, func() error, error) { return store, func() error { return nil }, nil }
		err := a.run(t.Context(), append([]string{"delayq", "-store", "memory:", "-partitions", "2", "audit"}, args...))
		return out.String(), err
	}
	sound := memstore.New(memstore.Options{})
	_, err := audit(sound)
	require.NoError(t, err)
	out, err := audit(faulty{sound}, "-json")
	require.ErrorContains(t, err, "8 faults are left; delayq audit -repair")
	assert.JSONEq(t, `{"records":20,"orphans":4,"strays":2,"wrong":2,"repaired":0}`, out)
	out, err = audit(faulty{sound}, "-repair")
	require.NoError(t, err)
	assert.Contains(t, out, "repaired")
}

// discarding is a store that keeps no messages.
type discarding struct{ durable.Store }

type discardingBackend struct{ driver.Backend }

func (d discarding) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := d.Store.Open(ctx, c)
	return discardingBackend{b}, err
}

func (d discardingBackend) Put(_ context.Context, p driver.Put) ([]driver.Status, error) {
	statuses := make([]driver.Status, len(p.Items))
	for i := range statuses {
		statuses[i] = driver.StatusDone
	}
	return statuses, nil
}

// TestEnqueue_LargeBodies counts the calls of the queue, which copies the bodies of each, by what is printed after them.
func TestEnqueue_LargeBodies(t *testing.T) {
	t.Parallel()
	calls := 0
	stdout := writerFunc(func(p []byte) (int, error) {
		calls++
		assert.LessOrEqual(t, strings.Count(string(p), "\n"), 16, "64 MiB in a call")
		return len(p), nil
	})
	a := newApp(strings.NewReader(strings.Repeat("x", 4<<20)), stdout, io.Discard)
	a.open = func(string) (durable.Store, func() error, error) {
		return discarding{memstore.New(memstore.Options{})}, func() error { return nil }, nil
	}
	require.NoError(t, a.run(t.Context(), []string{"delayq", "-store", "memory:", "enqueue", "-n", "20"}))
	assert.Equal(t, 2, calls)
}
