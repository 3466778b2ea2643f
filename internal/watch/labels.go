package watch

import (
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
)

// The labels of profiles.
const (
	labelWheel    = "timingwheel"
	labelCallback = "callback"
)

// Labels are the labels that a wheel sets for profiles. A set is made once for each function, and a
// program has few functions that are callbacks.
type Labels struct {
	wheel     context.Context // for goroutines of the wheel
	after     context.Context // for a goroutine after its callback
	callbacks sync.Map        // address of a function → context.Context
}

// NewLabels returns the labels of a wheel. All sets add to the labels of others; nil means none.
// The flag own says that callbacks run on goroutines of the wheel. If own is false, a goroutine has
// the labels of others after a callback.
//
// A goroutine's labels cannot be read, so others stands for those of foreign goroutines. Rejected:
// linking to the two functions of the runtime that runtime/pprof reads and writes them with. A
// later linker may refuse such a go:linkname, and with it every program that imports this package.
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

// Own labels a goroutine of the wheel. A new goroutine inherits the labels of the goroutine that
// started it, which may be a request that armed a timer or a callback. Own of a nil Labels does
// nothing.
func (l *Labels) Own() {
	if l != nil {
		pprof.SetGoroutineLabels(l.wheel)
	}
}

// Begin sets the labels of the callback's function.
func (l *Labels) Begin(pc uintptr) { pprof.SetGoroutineLabels(l.of(pc)) }

// End sets the labels that the goroutine has after a callback, whatever labels the callback has
// set. It is called with defer, so that it also follows a panic and runtime.Goexit.
func (l *Labels) End() { pprof.SetGoroutineLabels(l.after) }

// of returns the labels of a function.
func (l *Labels) of(pc uintptr) context.Context {
	if set, ok := l.callbacks.Load(pc); ok {
		return set.(context.Context)
	}
	set := pprof.WithLabels(l.wheel, pprof.Labels(labelCallback, FuncName(pc)))
	l.callbacks.Store(pc, set)
	return set
}

// FuncName returns the name of the function at pc as stack traces show it. For a method value the
// name is that of the method. If no function is known there, the name is "unknown".
func FuncName(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return "unknown"
	}
	return strings.TrimSuffix(f.Name(), "-fm")
}
