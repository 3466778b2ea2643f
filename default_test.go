package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the whole process relies on cannot be stopped or flushed by one part of it.
func TestDefaultRefusesToStop(t *testing.T) {
	t.Parallel()
	require.Same(t, Default(), Default())
	fired := make(chan struct{}, 1)
	timer := AfterFunc(time.Hour, func() { fired <- struct{}{} })

	for method, call := range map[string]func(){
		"Stop":     Default().Stop,
		"Shutdown": func() { _ = Default().Shutdown(t.Context()) },
		"Flush":    func() { Default().Flush() },
	} {
		assert.PanicsWithValue(t, "timingwheel: "+method+" of the default wheel, which belongs to the whole process", call)
	}
	require.True(t, timer.Reschedule(0), "the timer was lost")
	receive(t, fired, "the timer")
}

func TestPackageLevelFunctionsUseDefault(t *testing.T) {
	t.Parallel()
	fired := make(chan string, 1)
	AfterFunc(time.Millisecond, func() { fired <- "AfterFunc" })
	assert.Equal(t, "AfterFunc", receive(t, fired, "AfterFunc"))
	AtFunc(time.Now().Add(time.Millisecond), func() { fired <- "AtFunc" })
	assert.Equal(t, "AtFunc", receive(t, fired, "AtFunc"))

	runs := make(chan struct{}, 1000)
	plan := ScheduleFunc(Every(time.Millisecond), func() { runs <- struct{}{} })
	for range 3 {
		receive(t, runs, "a run of the plan")
	}
	assert.True(t, plan.Stop())

	timer := AfterFunc(time.Hour, func() {})
	owner := false
	for _, s := range Default().engine.shards {
		owner = owner || timer.shard() == &s.shard
	}
	assert.True(t, owner, "the timer is not one of Default's")
	assert.True(t, timer.Stop())
}

// A nil callback is found out at the call, where the mistake is, not at the deadline.
func TestNilFunctionsPanicAtTheCall(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for message, call := range map[string]func(){
		"timingwheel: AfterFunc of a nil function":                   func() { tw.AfterFunc(0, nil) },
		"timingwheel: AtFunc of a nil function":                      func() { tw.AtFunc(time.Now(), nil) },
		"timingwheel: ScheduleFunc with a nil Scheduler or function": func() { tw.ScheduleFunc(Every(1), nil) },
		"timingwheel: NewTimeouts with a nil function":               func() { _, _ = NewTimeouts[int](Options{}, nil) },
		"timingwheel: Every(0s): accepted is a positive duration":    func() { Every(0) },
		"timingwheel: Every(-1ns): accepted is a positive duration":  func() { Every(-1) },
		"timingwheel: Advance of a wheel that is not Manual":         func() { tw.Advance(time.Now()) },
	} {
		assert.PanicsWithValue(t, message, call)
	}
	assert.Panics(t, func() { tw.ScheduleFunc(nil, func() {}) })
	assert.Panics(t, func() { AfterFunc(0, nil) })
	assert.Panics(t, func() { AtFunc(time.Now(), nil) })
	assert.Panics(t, func() { ScheduleFunc(nil, func() {}) })
	tw.Stop()
	assert.Panics(t, func() { tw.AfterFunc(0, nil) }, "also after Stop")
	assert.Zero(t, tw.Len())
}
