//go:build gc && !timingwheel_nolinkname

package timingwheel

import (
	"context"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The caller of Advance has its labels back, also where a callback changes them, panics, or advances another wheel.
func TestAdvanceRestoresTheCallersLabels(t *testing.T) {
	inner := startWheel(t, Options{Manual: true, Name: "inner", ProfileLabels: true})
	outer := startWheel(t, Options{Manual: true, Name: "outer", ProfileLabels: true})
	var within []string
	outer.AfterFunc(time.Second, func() {
		inner.AfterFunc(time.Second, func() { within = append(within, myLabels(t)) })
		inner.Advance(inner.Now().Add(time.Minute))
		within = append(within, myLabels(t))
		pprof.SetGoroutineLabels(context.Background())
	})
	outer.AfterFunc(2*time.Second, func() { panic("over") })
	pprof.Do(context.Background(), pprof.Labels("request", "1"), func(context.Context) {
		outer.Advance(outer.Now().Add(time.Second))
		require.Equal(t, `{"request":"1"}`, myLabels(t))
		require.Panics(t, func() { outer.Advance(outer.Now().Add(time.Second)) })
		require.Equal(t, `{"request":"1"}`, myLabels(t))
	})
	require.Empty(t, myLabels(t))
	require.Len(t, within, 2)
	require.Contains(t, within[0], `"timingwheel":"inner"`)
	require.Contains(t, within[1], `"timingwheel":"outer"`)
}
