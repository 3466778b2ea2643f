package wheeldebug

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/figures"
)

// Programs rely on the schema, so the file must change only by additions. Before the comparison the
// test replaces values that depend on the machine.
func TestSchemaIsStable(t *testing.T) {
	t.Parallel()
	tw := newManualWheel(t, timingwheel.Options{Tick: time.Second, WheelSize: 8, Levels: 3})
	tw.Advance(start.Add(5 * time.Second))
	tw.AfterFunc(2*time.Second, noop)
	tw.AfterFunc(2*time.Second, noop)
	tw.AfterFunc(30*time.Second, noop)
	tw.AfterFunc(1000*time.Second, noop)
	tw.AfterFunc(time.Second, noop).Stop()
	tw.AfterFunc(time.Second, noop).Reschedule(20 * time.Second)
	tw.AfterFunc(-1, noop)
	tw.Advance(start.Add(5 * time.Second)) // runs the last timer
	tw.AfterFunc(0, noop)                  // due at the next Advance
	h := &Handler{}
	require.NoError(t, h.Add("orders", tw))
	require.NoError(t, h.Add("empty", newManualWheel(t, timingwheel.Options{})))

	doc := document(t, h, "/?format=json", http.StatusOK)
	assert.WithinDuration(t, time.Now(), doc.Wheel.Taken, time.Minute)
	assert.NotZero(t, doc.Wheel.Bytes)
	doc.Wheel.Taken, doc.Wheel.Bytes = start, 4096
	got, err := json.Marshal(doc)
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join("testdata", "schema.json"))
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(got))
}

// The JSON contains every figure of Stats. Counters are in an object of their own. The length of
// the list of levels replaces the number of levels in use.
func TestDocumentHasEachMetric(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(snapshot("x", newManualWheel(t, timingwheel.Options{})))
	require.NoError(t, err)
	var wheel map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &wheel))
	var counters map[string]uint64
	require.NoError(t, json.Unmarshal(wheel["counters"], &counters))
	for m, v := range figures.Numbers(&timingwheel.Stats{}) {
		key := m.Key()
		if _, ok := v.(time.Duration); ok {
			key += "_ns"
		}
		if m.Kind == figures.Counter {
			assert.Contains(t, counters, key)
		} else {
			assert.Contains(t, wheel, key)
		}
	}
}

// With any options the timers on levels and the due, moving and unseen timers add up to the pending
// timers.
func TestDocumentAddsUp(t *testing.T) {
	t.Parallel()
	for _, opts := range []timingwheel.Options{
		{}, {WheelSize: 65536, Levels: 16, Shards: 1024}, {WheelSize: 2, Levels: 16}, {Tick: time.Hour, WheelSize: 4, Levels: 1},
	} {
		tw := newManualWheel(t, opts)
		for k := range 60 {
			tw.AfterFunc(time.Duration(1)<<k, noop)
		}
		tw.AfterFunc(math.MaxInt64, noop)
		h := &Handler{}
		require.NoError(t, h.Add("wheel", tw))
		w := document(t, h, "/?format=json", http.StatusOK).Wheel
		sum := w.Due + w.Moving + w.Unseen
		for _, l := range w.Levels {
			assert.Equal(t, w.WheelSize, l.SlotsPerCell*len(l.Cells))
			for _, n := range l.Cells {
				sum += n
			}
		}
		assert.Equal(t, 61, sum, "%+v", opts)
		assert.Equal(t, 61, w.Pending, "%+v", opts)
		assert.LessOrEqual(t, len(request(h, http.MethodGet, "/?format=json").Body.Bytes()), 64<<10, "%+v", opts)
	}
}

// The failures are panics, and timers that are overdue, flushed, rejected or
// discarded.
func TestDocumentHasFigureForEachFailure(t *testing.T) {
	t.Parallel()
	tw := newManualWheel(t, timingwheel.Options{OnPanic: func(any, []byte) {}})
	var during *Wheel
	tw.AfterFunc(time.Second, func() {
		during = snapshot("x", tw)
		panic("over")
	})
	tw.AfterFunc(2*time.Second, noop)
	tw.AfterFunc(2*time.Second, noop)
	tw.AfterFunc(time.Hour, noop)
	tw.Advance(start.Add(5 * time.Second))
	assert.EqualValues(t, 3*time.Second, during.OverdueNs)
	assert.Equal(t, 2, during.Due)
	assert.EqualValues(t, 0, during.Counters["panics"])

	tw.Flush()
	tw.AfterFunc(time.Hour, noop)
	tw.Stop()
	tw.AfterFunc(0, noop)
	w := snapshot("x", tw)
	assert.EqualValues(t, 1, w.Counters["panics"])
	assert.EqualValues(t, 1, w.Counters["flushed"])
	assert.EqualValues(t, 1, w.Counters["discarded"])
	assert.EqualValues(t, 1, w.Counters["rejected"])
	assert.Zero(t, w.OverdueNs)
}

func TestDocumentHasLatenessOfLateTimers(t *testing.T) {
	t.Parallel()
	tw := newManualWheel(t, timingwheel.Options{})
	for range 3 {
		tw.AfterFunc(time.Millisecond, noop)
	}
	tw.Advance(start.Add(time.Second)) // 999 ms late
	l := snapshot("x", tw).Lateness
	assert.EqualValues(t, 3, l.Count)
	assert.Equal(t, int64(999*time.Millisecond), l.MaxNs)
	assert.Equal(t, l.MaxNs, l.P99Ns)
	require.Len(t, l.Buckets, 1)
	assert.EqualValues(t, 3, l.Buckets[0].Count)
	assert.LessOrEqual(t, l.Buckets[0].FromNs, l.MaxNs)
	assert.Greater(t, l.Buckets[0].ToNs, l.MaxNs)
}

// BenchmarkLook measures a snapshot of a wheel and its JSON, without the cache.
func BenchmarkLook(b *testing.B) {
	for name, opts := range map[string]timingwheel.Options{
		"default":                 {},
		"shards=64":               {Shards: 64},
		"size=65536/shards=16":    {WheelSize: 65536, Shards: 16},
		"size=65536/shards=16/us": {Manual: true, Tick: time.Microsecond, WheelSize: 65536, Shards: 16},
	} {
		eachPending(b, func(b *testing.B, n int) {
			b.Run(name, func(b *testing.B) {
				tw, err := timingwheel.NewTimeouts(opts, func([]uint32) {})
				require.NoError(b, err)
				defer tw.Stop()
				for k := range n {
					tw.Add(time.Minute+time.Duration(k)*time.Minute/1000, uint32(k)) // up to 17 hours
				}
				b.ResetTimer()
				for b.Loop() {
					if _, err := json.Marshal(snapshot("wheel", tw)); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkServe measures a request that is answered from the cache.
func BenchmarkServe(b *testing.B) {
	eachPending(b, func(b *testing.B, n int) {
		tw := newManualWheel(b, timingwheel.Options{})
		for k := range n {
			tw.AfterFunc(time.Duration(k)*time.Millisecond, noop)
		}
		h := &Handler{}
		require.NoError(b, h.Add("wheel", tw))
		for b.Loop() {
			if w := request(h, http.MethodGet, "/?format=json"); w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
	})
}

func eachPending(b *testing.B, run func(b *testing.B, n int)) {
	b.Helper()
	b.Run("pending=1k", func(b *testing.B) { run(b, 1000) })
	b.Run("pending=1M", func(b *testing.B) { run(b, 1_000_000) })
}
