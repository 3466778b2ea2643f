package keyed

import (
	"context"
	"reflect"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/timingwheel-go/timingwheel"
)

// The wheel knows the sweep as the function that takes its batches, and that is the same for all sets of the program. So what the
// wheel tells of its callbacks is told of the expire function instead.

// namedSlow gives reports of slow batches the name and place of expire.
func namedSlow[K comparable](expire func(keys []K), onSlow func(timingwheel.SlowCallback)) func(timingwheel.SlowCallback) {
	f := funcOf(expire)
	file, line := f.FileLine(f.Entry())
	return func(c timingwheel.SlowCallback) {
		c.Func, c.File, c.Line = nameOf(f), file, line
		onSlow(c)
	}
}

// labelled runs expire under the labels that the wheel would give it. The wheel takes them away afterwards.
func labelled[K comparable](opts timingwheel.Options, expire func(keys []K)) func(keys []K) {
	base := opts.ProfileContext
	if base == nil {
		base = context.Background()
	}
	labels := pprof.WithLabels(base, pprof.Labels("timingwheel", opts.Name, "callback", nameOf(funcOf(expire))))
	return func(keys []K) {
		pprof.SetGoroutineLabels(labels)
		expire(keys)
	}
}

func funcOf[K comparable](expire func(keys []K)) *runtime.Func {
	return runtime.FuncForPC(reflect.ValueOf(expire).Pointer())
}

// nameOf is the name of f as stack traces have it; of a method value it is the method.
func nameOf(f *runtime.Func) string { return strings.TrimSuffix(f.Name(), "-fm") }
