package timingwheel

import (
	"reflect"
	"runtime"
	"strings"
	"sync"
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

// planRun and followedRun are the code of the payloads of all plans.
var (
	planRun     = reflect.ValueOf((*plan)(nil).run).Pointer()
	followedRun = reflect.ValueOf((*followed)(nil).run).Pointer()
)

// callee is the code of a callback; of a plan that of its function, as the payload is a method of the plan there.
func callee(f func()) uintptr {
	pc := reflect.ValueOf(f).Pointer()
	switch {
	case pc == planRun && methodsAreKnown():
		return reflect.ValueOf(method[plan](f).receiver.f).Pointer()
	case pc == followedRun && methodsAreKnown():
		return method[followed](f).receiver.callee
	}
	return pc
}

// bound is what the compiler makes of a pointer's method that is a function value: its code, and then the pointer.
type bound[P any] struct {
	_        uintptr
	receiver *P
}

func method[P any](f func()) *bound[P] { return *(**bound[P])(unsafe.Pointer(&f)) }

// methodsAreKnown sees whether they are made like that by this compiler, of which no language says a word. Where they are not,
// plans go by the name of their method. It looks at the two words as numbers, which is safe whatever they are.
var methodsAreKnown = sync.OnceValue(func() bool {
	p := new(plan)
	f := p.run
	words := *(**[2]uintptr)(unsafe.Pointer(&f))
	known := words[0] == planRun && words[1] == uintptr(unsafe.Pointer(p))
	runtime.KeepAlive(p)
	runtime.KeepAlive(f)
	return known
})

// funcName is the name of the function at pc, as stack traces have it; of a method value that of the method.
func funcName(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return "unknown"
	}
	return strings.TrimSuffix(f.Name(), "-fm")
}
