package keyed

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// sessions stands for a type of a program, with an expire method.
type sessions struct{}

func (*sessions) expire([]string) {}

// Around gets the expire function and the number of its keys, not the sweep that all sets share.
func TestAroundGetsTheExpireFunction(t *testing.T) {
	t.Parallel()
	var calls []timingwheel.Call
	opts := timingwheel.Options{Manual: true, Name: "sessions", Around: func(c timingwheel.Call, run func()) {
		calls = append(calls, c)
		run()
	}}
	keys, entries := func([]string) {}, func(string, int) {}
	method := new(sessions).expire
	for _, f := range []func([]string){keys, method} {
		k := newKeys(t, opts, f)
		k.Set("a", 0)
		k.Set("b", 0)
		k.Advance(k.Now())
	}
	m := newMap(t, opts, time.Second, entries)
	m.Store("a", 1)
	m.Advance(m.Now().Add(time.Second))
	h, err := NewHeartbeats(opts, time.Second, method)
	require.NoError(t, err)
	t.Cleanup(h.Stop)
	h.Beat("a")
	h.Advance(h.Now().Add(time.Second))

	require.Len(t, calls, 4)
	for i, f := range []any{keys, method, entries, method} {
		want := timingwheel.Call{Wheel: "sessions", Func: reflect.ValueOf(f).Pointer(), Payloads: 2 - i/2}
		assert.Equal(t, want, calls[i])
	}
}
