package timingwheel

import (
	"reflect"
	"runtime"
	"sync"
	"unsafe"
)

// The code of the payloads of all plans and FuncTimers.
var (
	planRun       = reflect.ValueOf((*plan)(nil).run).Pointer()
	followedRun   = reflect.ValueOf((*followed)(nil).run).Pointer()
	funcTimerLook = reflect.ValueOf((*FuncTimer)(nil).look).Pointer()
)

// callee returns the address of a callback's code. For a plan or a FuncTimer it is the code of the
// user's function, because the payload is a method.
func callee(f func()) uintptr {
	pc := reflect.ValueOf(f).Pointer()
	switch {
	case pc == planRun && methodsAreKnown():
		return reflect.ValueOf(method[plan](f).receiver.f).Pointer()
	case pc == followedRun && methodsAreKnown():
		return method[followed](f).receiver.callee
	case pc == funcTimerLook && methodsAreKnown():
		return reflect.ValueOf(method[FuncTimer](f).receiver.f).Pointer()
	}
	return pc
}

// bound is a method value of a pointer as the compiler represents it: the code, and then the
// pointer.
type bound[P any] struct {
	_        uintptr
	receiver *P
}

func method[P any](f func()) *bound[P] { return *(**bound[P])(unsafe.Pointer(&f)) }

// methodsAreKnown reports whether this compiler represents method values like bound, which no
// specification promises. If it does not, plans have the name of their method. The check compares
// the two words as numbers, which is safe whatever they are.
var methodsAreKnown = sync.OnceValue(func() bool {
	p := new(plan)
	f := p.run
	words := *(**[2]uintptr)(unsafe.Pointer(&f))
	known := words[0] == planRun && words[1] == uintptr(unsafe.Pointer(p))
	runtime.KeepAlive(p)
	runtime.KeepAlive(f)
	return known
})
