package keyed

import (
	"context"
	"reflect"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/timingwheel-go/timingwheel"
)

// withCallbackName makes the wheel report slow calls and profile labels under the name of the
// user's callback. The wheel itself calls the sweep, which is the same function for all sets of a
// program.
func withCallbackName[K comparable](opts timingwheel.Options, callback any, sweep func([]K)) (timingwheel.Options, func([]K)) {
	f := runtime.FuncForPC(reflect.ValueOf(callback).Pointer())
	name := strings.TrimSuffix(f.Name(), "-fm") // as in stack traces; the suffix marks a method value
	if onSlow := opts.OnSlow; onSlow != nil {
		file, line := f.FileLine(f.Entry())
		opts.OnSlow = func(c timingwheel.SlowCallback) {
			c.Func, c.File, c.Line = name, file, line
			onSlow(c)
		}
	}
	if !opts.ProfileLabels {
		return opts, sweep
	}
	base := opts.ProfileContext
	if base == nil {
		base = context.Background()
	}
	labels := pprof.WithLabels(base, pprof.Labels("timingwheel", opts.Name, "callback", name))
	return opts, func(claimed []K) {
		pprof.SetGoroutineLabels(labels) // the wheel removes them after the call
		sweep(claimed)
	}
}
