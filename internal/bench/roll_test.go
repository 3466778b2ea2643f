package bench

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRollCountsMistakes(t *testing.T) {
	t.Parallel()
	r := NewRoll(3)
	r.Call(0)
	assert.Equal(t, 2, r.Left())
	r.Call(2)
	r.Call(2)
	assert.Equal(t, 0, r.Left())
	r.Early.Add(1)
	r.Wait(time.Hour) // returns immediately, because there were three calls
	assert.Equal(t, []Figure{{1, "early"}, {1, "not-run"}, {1, "twice"}}, r.Mistakes())
}

func TestWaitReturnsAfterGraceWithoutACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRoll(3)
		begin := time.Now()
		time.AfterFunc(700*time.Millisecond, func() { r.Call(0) })
		r.Wait(time.Second)
		assert.Equal(t, 2*time.Second, time.Since(begin), "one second with a call and one without")
		assert.Equal(t, 2, r.Left())
	})
}

func TestQuantileOfSortedDurations(t *testing.T) {
	t.Parallel()
	sorted := []time.Duration{1, 2, 3, 4, 5}
	assert.Equal(t, time.Duration(1), Quantile(sorted, 0))
	assert.Equal(t, time.Duration(3), Quantile(sorted, 0.5))
	assert.Equal(t, time.Duration(5), Quantile(sorted, 1))
}
