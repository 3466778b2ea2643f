package timingwheel

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logged is what a record with the value looks like, read back.
func logged(t *testing.T, value any) map[string]any {
	t.Helper()
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", value)
	var record struct{ V map[string]any }
	require.NoError(t, json.Unmarshal(out.Bytes(), &record))
	return record.V
}

func TestStatsAsLogRecord(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Start: modelStart, Name: "w"})
	require.Equal(t, map[string]any{
		"name": "w", "pending": 0.0, "armed": 0.0, "fired": 0.0, "stopped": 0.0, "running": 0.0,
	}, without(logged(t, tw.Stats()), "bytes"))
	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {}).Reschedule(2 * time.Hour)
	tw.AfterFunc(time.Hour, func() {}).Stop()
	tw.Advance(modelStart.Add(3 * time.Second))
	require.Equal(t, map[string]any{
		"name": "w", "pending": 1.0, "armed": 5.0, "fired": 3.0, "stopped": 1.0, "running": 0.0,
		"postponed": 1.0, "moved": 3.0, "buckets": 1.0,
		"lateness": map[string]any{"p50": 2e9, "p99": 2e9, "max": 2e9},
	}, without(logged(t, tw.Stats()), "bytes"))
}

func without(m map[string]any, key string) map[string]any {
	delete(m, key)
	return m
}

func TestSlowCallbackAsLogRecord(t *testing.T) {
	t.Parallel()
	c := SlowCallback{Wheel: "w", Func: "main.f", File: "main.go", Line: 7, Took: time.Second, Running: true, Payloads: 1}
	require.Equal(t, map[string]any{
		"wheel": "w", "func": "main.f", "took": 1e9, "running": true, "payloads": 1.0,
		"source": map[string]any{"function": "main.f", "file": "main.go", "line": 7.0},
	}, logged(t, c))
	c.Wheel = ""
	require.NotContains(t, logged(t, c), "wheel")
}
