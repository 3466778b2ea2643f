package watch

import (
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
)

// The names of profile labels.
const (
	labelWheel    = "timingwheel"
	labelCallback = "callback"
)

// Labels sets the profile labels of a wheel's goroutines. The label set of a function is created
// once, because a program has few functions that are callbacks.
type Labels struct {
	wheel     context.Context // the labels of the wheel's goroutines
	after     context.Context // the labels of a goroutine after a callback
	callbacks sync.Map        // address of a function → context.Context
}

// NewLabels returns the labels of a wheel. All label sets include the labels of others; a nil
// others has none. If own is true, callbacks run on goroutines of the wheel. If own is false, a
// goroutine has the labels of others after a callback.
//
// The labels of a goroutine cannot be read, so others replaces the labels of goroutines that do not
// belong to the wheel. Rejected: a go:linkname to the two functions of the runtime with which
// runtime/pprof reads and writes labels. A later linker may reject it, and with it every program
// that imports this package.
func NewLabels(wheelName string, others context.Context, own bool) *Labels {
	if others == nil {
		others = context.Background()
	}
	wheel := pprof.WithLabels(others, pprof.Labels(labelWheel, wheelName))
	if own {
		return &Labels{wheel: wheel, after: wheel}
	}
	return &Labels{wheel: wheel, after: others}
}

// Own sets the labels of a goroutine of the wheel. A new goroutine inherits the labels of the
// goroutine that started it, which may belong to a request that armed a timer, or to a callback.
// Own of a nil Labels does nothing.
func (l *Labels) Own() {
	if l != nil {
		pprof.SetGoroutineLabels(l.wheel)
	}
}

// Begin sets the labels for a callback with the function at pc.
func (l *Labels) Begin(pc uintptr) { pprof.SetGoroutineLabels(l.of(pc)) }

// End sets the labels for the time after a callback, regardless of the labels that the callback has
// set. Callers defer it, so that it also runs after a panic and runtime.Goexit.
func (l *Labels) End() { pprof.SetGoroutineLabels(l.after) }

// of returns the labels for the function at pc.
func (l *Labels) of(pc uintptr) context.Context {
	if set, ok := l.callbacks.Load(pc); ok {
		return set.(context.Context)
	}
	set := pprof.WithLabels(l.wheel, pprof.Labels(labelCallback, FuncName(pc)))
	l.callbacks.Store(pc, set)
	return set
}

// FuncName returns the name of the function at pc as shown in stack traces. The name of a method
// value is that of the method. If there is no function at pc, FuncName returns "unknown".
func FuncName(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return "unknown"
	}
	return strings.TrimSuffix(f.Name(), "-fm")
}
