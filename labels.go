package timingwheel

import (
	"context"
	"runtime/pprof"
	"sync"
)

// The labels of profiles.
const (
	labelWheel    = "timingwheel"
	labelCallback = "callback"
)

// labels are what the samples of a profile say of a wheel. A set is made once for each function, and there are not
// many of those.
type labels struct {
	wheel     context.Context // of the wheel's own work
	callbacks sync.Map        // address of the function to context.Context
}

func newLabels(wheel string) *labels {
	return &labels{wheel: pprof.WithLabels(context.Background(), pprof.Labels(labelWheel, wheel))}
}

// own labels a goroutine of the wheel's own, which has inherited the labels of whoever has started it: somebody who armed
// a timer, a callback.
func (l *labels) own() {
	if l != nil {
		pprof.SetGoroutineLabels(l.wheel)
	}
}

// of returns the labels of a function.
func (l *labels) of(pc uintptr) context.Context {
	if set, ok := l.callbacks.Load(pc); ok {
		return set.(context.Context)
	}
	set := pprof.WithLabels(l.wheel, pprof.Labels(labelCallback, funcName(pc)))
	l.callbacks.Store(pc, set)
	return set
}

// labelled is run under the labels of its callback. The labels that the goroutine had are back afterwards, whatever the
// callback has set, and also after a panic: it may be the caller's of Advance, or an executor's.
func labelled[T any](l *labels, name func([]T) uintptr, run func([]T)) func([]T) {
	return func(items []T) {
		before := currentLabels()
		defer restoreLabels(before)
		pprof.SetGoroutineLabels(l.of(name(items)))
		run(items)
	}
}
