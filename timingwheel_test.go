package timingwheel

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A nil callback panics at the call, where the mistake is, and not at the deadline.
func TestNilFunctionsPanicAtTheCall(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for message, call := range map[string]func(){
		"timingwheel: AfterFunc with a nil function":                 func() { tw.AfterFunc(0, nil) },
		"timingwheel: AtFunc with a nil function":                    func() { tw.AtFunc(time.Now(), nil) },
		"timingwheel: ScheduleFunc with a nil Scheduler or function": func() { tw.ScheduleFunc(Every(1), nil) },
		"timingwheel: ScheduleRun with a nil Scheduler or function":  func() { tw.ScheduleRun(Every(1), nil) },
		"timingwheel: NewTimeouts with a nil function":               func() { _, _ = NewTimeouts[int](Options{}, nil) },
		"timingwheel: Every: d is 0s; it must be positive":           func() { Every(0) },
		"timingwheel: Every: d is -1ns; it must be positive":         func() { Every(-1) },
		"timingwheel: Advance called on a wheel that is not Manual":  func() { tw.Advance(time.Now()) },
	} {
		assert.PanicsWithValue(t, message, call)
	}
	assert.Panics(t, func() { tw.ScheduleFunc(nil, func() {}) })
	assert.Panics(t, func() { tw.ScheduleRun(nil, func(*Run) {}) })
	assert.Panics(t, func() { startWheel(t, Options{Manual: true}).AfterFunc(0, nil) })
	assert.Panics(t, func() { AfterFunc(0, nil) })
	assert.Panics(t, func() { AtFunc(time.Now(), nil) })
	assert.Panics(t, func() { ScheduleFunc(nil, func() {}) })
	tw.Stop()
	assert.Panics(t, func() { tw.AfterFunc(0, nil) }, "a nil function panics after Stop as well")
	assert.Zero(t, tw.Len())
}

// The Stop and Flush methods of one wheel do not affect other wheels in the same bubble.
func TestWheelsInOneBubbleAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var wheels []*TimingWheel
		ran := make([]atomic.Int32, len(shapes))
		for i, opts := range shapes {
			tw := startWheel(t, opts)
			wheels = append(wheels, tw)
			tick := tickOf(opts)
			for h := range 50 {
				d := time.Duration(1+h) * time.Hour
				tw.AfterFunc(d, func() {
					ran[i].Add(1)
					if i != 1 { // wheel 1 is flushed
						assert.Equal(t, (d+tick-1)/tick*tick, time.Since(start))
					}
				})
			}
		}
		pass(10*time.Hour + time.Second)
		wheels[0].Stop()
		wheels[1].Flush()
		pass(3 * day)
		assert.EqualValues(t, 10, ran[0].Load())
		for i := range ran[2:] {
			assert.EqualValues(t, 50, ran[2+i].Load())
		}
	})
	// A second bubble follows, as in the tests of a program.
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		ran := false
		tw.AfterFunc(day, func() { ran = true })
		pass(day)
		assert.True(t, ran)
	})
}

// A bubble ends only when all its goroutines have ended. A wheel with pending timers has none, and
// neither has a wheel whose callbacks have returned.
func TestBubbleEndsWithoutStop(t *testing.T) {
	for _, opts := range shapes {
		synctest.Test(t, func(t *testing.T) {
			tw, err := New(withLimit(opts))
			require.NoError(t, err)
			for range 100 {
				tw.AfterFunc(rand.N(time.Hour), func() {})
			}
			pass(time.Hour + tickOf(opts))
			assert.Zero(t, tw.Len())
			tw.AfterFunc(oneYear, func() {})
		})
	}
}
