package keyed

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/survey"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// Keys and Heartbeats can be added to the debug page.
var (
	_ wheeldebug.Source = (*Keys[string])(nil)
	_ wheeldebug.Source = (*Heartbeats[string])(nil)
)

func TestSurveyCountsKeys(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	h, err := NewHeartbeats(timingwheel.Options{Manual: true}, ms, func([]string) {})
	require.NoError(t, err)
	t.Cleanup(h.Stop)
	for i := range 3 {
		r.Set(text(i), ms)
		h.Beat(text(i))
	}
	assert.Equal(t, 3, survey.Take(r.Keys).Levels[0].Timers)
	assert.Equal(t, 3, survey.Take(h).Levels[0].Timers)
}

// sessions stands for a type of a program, with an expire method.
type sessions struct{ within func() }

func (s *sessions) expire([]string) { s.within() }

// A slow batch is reported under the name of the expire function, not under that of the sweep,
// which all sets share.
func TestSlowCallNamesExpireFunction(t *testing.T) {
	t.Parallel()
	var slow []timingwheel.SlowCallback
	opts := timingwheel.Options{Manual: true, Name: "sessions", SlowAfter: 1, OnSlow: func(c timingwheel.SlowCallback) { slow = append(slow, c) }}
	expire := func([]string) { runtime.Gosched() }
	for _, f := range []func([]string){expire, (&sessions{runtime.Gosched}).expire} {
		k := newKeys(t, opts, f)
		k.Set("a", 0)
		k.Set("b", 0)
		k.Advance(k.Now())
	}
	require.Len(t, slow, 2)
	assert.Contains(t, slow[0].Func, "keyed.TestSlowCallNamesExpireFunction.func")
	assert.True(t, strings.HasSuffix(slow[0].File, "callbackname_test.go"), slow[0].File)
	assert.Positive(t, slow[0].Line)
	assert.Equal(t, "github.com/timingwheel-go/timingwheel/keyed.(*sessions).expire", slow[1].Func)
	for _, c := range slow {
		assert.Equal(t, "sessions", c.Wheel)
		assert.Equal(t, 2, c.Payloads)
	}
}

// During the call a CPU profile shows the name of the expire function, in addition to the wheel's
// own labels. After the call the wheel's labels are restored.
func TestProfileLabelsNameExpireFunction(t *testing.T) {
	for name, c := range map[string]struct {
		base          context.Context
		within, after string
	}{
		"no labels": {nil, `{"callback":"github.com/timingwheel-go/timingwheel/keyed.(*sessions).expire", "timingwheel":"w1"}`, ""},
		"labels": {
			pprof.WithLabels(context.Background(), pprof.Labels("all", "of them")),
			`{"all":"of them", "callback":"github.com/timingwheel-go/timingwheel/keyed.(*sessions).expire", "timingwheel":"w1"}`, `{"all":"of them"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			within := ""
			s := &sessions{func() { within = labelsOfMine(t) }}
			k := newKeys(t, timingwheel.Options{Manual: true, Name: "w1", ProfileLabels: true, ProfileContext: c.base}, s.expire)
			k.Set("a", 0)
			k.Advance(k.Now())
			assert.Equal(t, c.within, within)
			assert.Equal(t, c.after, labelsOfMine(t))
		})
	}
}

// labelsOfMine returns the labels of the calling goroutine, or "" if there are none. It finds the
// goroutine in the goroutine profile, because no other test is inside this function.
//
//go:noinline
func labelsOfMine(t *testing.T) string {
	t.Helper()
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	for newRecorder := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(newRecorder, "keyed.labelsOfMine+") {
			continue
		}
		_, labels, _ := strings.Cut(newRecorder, "# labels: ")
		labels, _, _ = strings.Cut(labels, "\n")
		return labels
	}
	t.Fatal("this goroutine is not in the profile")
	return ""
}
