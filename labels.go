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
	after     context.Context // of a goroutine that has run a callback
	callbacks sync.Map        // address of the function to context.Context
}

// newLabels knows what the goroutines have that callbacks run on: the wheel's own those of the wheel, others those of
// Options.ProfileContext. Nobody can ask a goroutine for its labels. Rejected: the two functions of the runtime that package
// runtime/pprof reads and writes them with, by go:linkname, as a later linker may refuse those, and with them every program
// that imports this package.
func newLabels(opts Options) *labels {
	others := opts.ProfileContext
	if others == nil {
		others = context.Background()
	}
	l := &labels{wheel: pprof.WithLabels(others, pprof.Labels(labelWheel, opts.Name)), after: others}
	if !opts.Manual && (opts.Executor == nil || opts.Executor == Inline) {
		l.after = l.wheel
	}
	return l
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

// labelled is run under the labels of its callback. Afterwards, also after a panic, the goroutine has those that it should
// have, whatever the callback has set.
func labelled[T any](l *labels, name func([]T) uintptr, run func([]T)) func([]T) {
	return func(items []T) {
		defer pprof.SetGoroutineLabels(l.after)
		pprof.SetGoroutineLabels(l.of(name(items)))
		run(items)
	}
}
