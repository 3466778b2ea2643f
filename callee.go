package timingwheel

import (
	"reflect"
	"runtime"
	"strings"
	"unsafe"
)

// namer returns a function that tells which function of the program a batch is about, by its address: the callback or,
// of Timeouts, the function that takes the batches.
func namer[T any](batch int, expire func([]T)) func(items []T) uintptr {
	pc := reflect.ValueOf(expire).Pointer()
	return func(items []T) uintptr {
		if batch == 1 {
			if f, ok := any(&items[0]).(*func()); ok {
				return callee(*f)
			}
		}
		return pc
	}
}

// planRun is the code of the payload of every plan.
var planRun = reflect.ValueOf((*plan)(nil).run).Pointer()

// callee is the code of a callback; of a plan that of its function, as the payload is the plan's own method there. A
// function value is a pointer to the address of its code, and where it is a method's the receiver follows.
func callee(f func()) uintptr {
	pc := reflect.ValueOf(f).Pointer()
	if pc != planRun {
		return pc
	}
	method := *(**struct {
		code uintptr
		plan *plan
	})(unsafe.Pointer(&f))
	return reflect.ValueOf(method.plan.f).Pointer()
}

// funcName is the name of the function at pc, as stack traces have it; of a method value that of the method.
func funcName(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return "unknown"
	}
	return strings.TrimSuffix(f.Name(), "-fm")
}
