package timingwheel

import (
	"context"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The caller of Advance has the labels of Options.ProfileContext afterwards, also where a callback
// changes them, panics, or advances another wheel. While a callback runs they are added to.
func TestAdvanceGivesBackTheLabelsOfProfileContext(t *testing.T) {
	defer pprof.SetGoroutineLabels(context.Background())
	pprof.Do(context.Background(), pprof.Labels("loop", "1"), func(loop context.Context) {
		opts := Options{Manual: true, ProfileLabels: true, ProfileContext: loop}
		opts.Name = "inner"
		inner := startWheel(t, opts)
		opts.Name = "outer"
		outer := startWheel(t, opts)
		var within string
		outer.AfterFunc(time.Second, func() {
			inner.AfterFunc(time.Second, func() { within = myLabels(t) })
			inner.Advance(inner.Now().Add(time.Minute))
			pprof.SetGoroutineLabels(context.Background())
		})
		outer.AfterFunc(2*time.Second, func() { panic("over") })
		outer.Advance(outer.Now().Add(time.Second))
		require.Equal(t, `{"loop":"1"}`, myLabels(t))
		require.Panics(t, func() { outer.Advance(outer.Now().Add(time.Second)) })
		require.Equal(t, `{"loop":"1"}`, myLabels(t))
		require.Contains(t, within, `"loop":"1", "timingwheel":"inner"`)
	})
}

// Without it the caller of Advance has none, so that at least nothing is said to be a callback's
// that is not.
func TestAdvanceLeavesNoLabelsBehind(t *testing.T) {
	tw := startWheel(t, Options{Manual: true, Name: "w", ProfileLabels: true})
	var within string
	tw.AfterFunc(time.Second, func() { within = myLabels(t) })
	tw.Advance(tw.Now().Add(time.Minute))
	require.Contains(t, within, `"timingwheel":"w"`)
	require.Empty(t, myLabels(t))
}

// A wheel without ProfileLabels touches none, with a ProfileContext or not.
func TestNoLabelsWithProfileContextAlone(t *testing.T) {
	defer pprof.SetGoroutineLabels(context.Background())
	other := pprof.WithLabels(context.Background(), pprof.Labels("loop", "2"))
	tw := startWheel(t, Options{Manual: true, ProfileContext: other})
	pprof.Do(context.Background(), pprof.Labels("request", "1"), func(context.Context) {
		var within string
		tw.AfterFunc(time.Second, func() { within = myLabels(t) })
		tw.Advance(tw.Now().Add(time.Minute))
		require.Equal(t, `{"request":"1"}`, within)
		require.Equal(t, `{"request":"1"}`, myLabels(t))
	})
}

// Goroutines of the wheel keep the labels of the wheel after a callback; foreign goroutines do not.
func TestOwnGoroutinesAreToldFromForeignOnes(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		want bool
	}{
		"default":      {Options{}, true},
		"Inline":       {Options{Executor: Inline}, true},
		"Manual":       {Options{Manual: true}, false},
		"foreign pool": {Options{Executor: Goroutines}, false},
	} {
		opts, err := c.opts.validate()
		require.NoError(t, err)
		require.Equal(t, c.want, opts.ownGoroutines(), name)
	}
}
