package wheelexpvar

import (
	"encoding/json"
	"expvar"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

func newWheel(t *testing.T) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Name: "w", Tick: 5 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

var published atomic.Int64

// freshName returns a name that no variable has, even if the test runs more than once.
func freshName(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), published.Add(1)) }

// vars returns the variables of /debug/vars.
func vars(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	answer := httptest.NewRecorder()
	expvar.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/debug/vars", nil))
	all := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &all))
	return all
}

func TestPublishedWheelShowsItsStats(t *testing.T) {
	t.Parallel()
	tw := newWheel(t)
	name := freshName(t)
	require.NoError(t, Publish(name, tw))
	type varStats struct {
		Name                             string
		Armed, Fired, Pending, Discarded int
		Lateness                         lateness
	}
	read := func() (st varStats) {
		require.Contains(t, vars(t), name)
		require.NoError(t, json.Unmarshal(vars(t)[name], &st))
		return st
	}
	require.Equal(t, varStats{Name: "w"}, read())
	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {})
	tw.Advance(tw.Now().Add(3 * time.Second))
	st := read()
	require.EqualValues(t, 4, st.Armed)
	require.EqualValues(t, 3, st.Fired)
	require.Equal(t, 1, st.Pending)
	require.Equal(t, lateness{Samples: 3, P50: 2, P90: 2, P99: 2, P999: 2, Max: 2}, st.Lateness)
	tw.Stop()
	st = read()
	require.EqualValues(t, 1, st.Discarded, "a stopped wheel keeps its counters")
	require.EqualValues(t, 4, st.Armed)
}

// The error comes for a name of this package and for one of another package.
func TestPublishOfUsedNameFails(t *testing.T) {
	t.Parallel()
	taken := freshName(t)
	require.NoError(t, Publish(taken, newWheel(t)))
	for _, name := range []string{taken, "memstats"} {
		err := Publish(name, newWheel(t))
		require.ErrorIs(t, err, ErrName)
		require.Contains(t, err.Error(), `"`+name+`"`)
	}
	require.Panics(t, func() { _ = Publish("nil", nil) })
	require.PanicsWithValue(t, "wheelexpvar: the Source is a nil *timingwheel.TimingWheel", func() { _ = Publish("nil", (*timingwheel.TimingWheel)(nil)) })
	require.Nil(t, expvar.Get("nil"))
}

// Twenty goroutines publish under one name.
func TestConcurrentPublishSucceedsOnce(t *testing.T) {
	t.Parallel()
	tw, name := newWheel(t), freshName(t)
	results := make(chan error)
	for range 20 {
		go func() { results <- Publish(name, tw) }()
	}
	successes := 0
	for range 20 {
		if err := <-results; err == nil {
			successes++
		} else {
			require.ErrorIs(t, err, ErrName)
		}
	}
	require.Equal(t, 1, successes)
}

func TestVarCanBeRemovedFromAMap(t *testing.T) {
	t.Parallel()
	m := new(expvar.Map).Init()
	w, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	w.Add(time.Hour, 1)
	m.Set("w", Var(w))
	require.Contains(t, m.String(), `"pending":1`)
	m.Delete("w")
	require.Equal(t, "{}", m.String())
}

// Readers of /debug/vars rely on these names and units.
func TestNamesAndUnitsAreStable(t *testing.T) {
	t.Parallel()
	st := timingwheel.Stats{
		Name: "w", Tick: 5 * time.Millisecond, Shards: 1, Pending: 2, Due: 3, Overdue: 1500 * time.Millisecond,
		Armed: 5, Fired: 6, Stopped: 7, Discarded: 8, Postponed: 9, Rejected: 10, Flushed: 11, Moved: 12, Wakeups: 13,
		Running: 14, Panics: 16, Buckets: 19, Levels: 20, Bytes: 21, Expired: 22,
	}
	st.Lateness.Max = 2500 * time.Millisecond
	require.JSONEq(t, `{
		"name": "w", "tick_seconds": 0.005, "shards": 1, "pending": 2, "due": 3, "overdue_seconds": 1.5,
		"armed": 5, "fired": 6, "stopped": 7, "discarded": 8, "postponed": 9, "rejected": 10, "flushed": 11, "moved": 12,
		"wakeups": 13, "running": 14, "panics": 16, "buckets": 19, "levels": 20,
		"bytes": 21, "expired": 22, "lateness": {"samples": 0, "p50_seconds": 0, "p90_seconds": 0, "p99_seconds": 0,
		"p999_seconds": 0, "max_seconds": 2.5}
	}`, Var(fixedStats(st)).String())
}

// fixedStats is a source with known statistics.
type fixedStats timingwheel.Stats

func (c fixedStats) Stats() timingwheel.Stats { return timingwheel.Stats(c) }
