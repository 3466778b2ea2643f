package expvars

import (
	"encoding/json"
	"expvar"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// freshName is a name that no variable has, also where the test runs more than once.
func freshName(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), published.Add(1)) }

// vars is what /debug/vars answers.
func vars(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	answer := httptest.NewRecorder()
	expvar.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/debug/vars", nil))
	all := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &all))
	return all
}

func TestPublishedWheel(t *testing.T) {
	t.Parallel()
	tw := newWheel(t)
	name := freshName(t)
	require.NoError(t, Publish(name, tw))
	read := func() (st stats) {
		require.Contains(t, vars(t), name)
		require.NoError(t, json.Unmarshal(vars(t)[name], &st))
		return st
	}
	require.Equal(t, stats{Name: "w", TickSeconds: 0.005, Shards: 1, Bytes: read().Bytes}, read())
	for range 3 {
		tw.AfterFunc(time.Second, func() {})
	}
	tw.AfterFunc(time.Hour, func() {})
	tw.Advance(tw.Now().Add(3 * time.Second))
	st := read()
	require.EqualValues(t, 4, st.Armed)
	require.EqualValues(t, 3, st.Fired)
	require.Equal(t, 1, st.Pending)
	require.Equal(t, lateness{Samples: 3, Mean: 2, P50: 2, P90: 2, P99: 2, P999: 2, Max: 2}, st.Lateness)
	tw.Stop()
	st = read()
	require.EqualValues(t, 1, st.Discarded, "a stopped wheel keeps its counters")
	require.EqualValues(t, 4, st.Armed)
}

// A name that is in use is an error, whoever has it, and what it shows stays.
func TestPublishTwice(t *testing.T) {
	t.Parallel()
	taken := freshName(t)
	require.NoError(t, Publish(taken, newWheel(t)))
	for _, name := range []string{taken, "memstats"} {
		err := Publish(name, newWheel(t))
		require.ErrorIs(t, err, ErrName)
		require.Contains(t, err.Error(), `"`+name+`"`)
	}
	require.Panics(t, func() { _ = Publish("nil", nil) })
	require.PanicsWithValue(t, "expvars: the Source is a nil *timingwheel.TimingWheel", func() { _ = Publish("nil", (*timingwheel.TimingWheel)(nil)) })
	require.Nil(t, expvar.Get("nil"))
}

// Of several goroutines that publish under one name one succeeds.
func TestPublishByMany(t *testing.T) {
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

// Wheels come and go in a map.
func TestVarInMap(t *testing.T) {
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

// Every field of Stats is shown: each is set to a value of its own, and found.
func TestEveryFieldIsShown(t *testing.T) {
	t.Parallel()
	var st timingwheel.Stats
	v := reflect.ValueOf(&st).Elem()
	want := map[float64]string{}
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		n := i + 100
		switch {
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(int64(time.Duration(n) * time.Second))
		case f.CanInt():
			f.SetInt(int64(n))
		case f.CanUint():
			f.SetUint(uint64(n))
		default:
			assert.Contains(t, []string{"Name", "Lateness"}, name)
			continue
		}
		want[float64(n)] = name
	}
	shown := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(Var(constant(st)).String()), &shown))
	for key, value := range shown {
		if n, ok := value.(float64); ok {
			name := strings.ReplaceAll(strings.TrimSuffix(key, "_seconds"), "_", "")
			assert.True(t, strings.EqualFold(want[n], name), "%s shows %s", key, want[n])
			delete(want, n)
		}
	}
	require.Empty(t, want, "not shown")
}

// constant is a wheel of which a test knows all.
type constant timingwheel.Stats

func (c constant) Stats() timingwheel.Stats { return timingwheel.Stats(c) }
