// Package expvars shows timing wheels among the variables of package expvar, on /debug/vars.
//
//	tw, err := timingwheel.New(timingwheel.Options{})
//	…
//	err = expvars.Publish("timers", tw)
//
// The variable is an object with the fields of [timingwheel.Stats] in snake case; times are in
// seconds, and the histogram of lateness is given by quantiles. It is made anew whenever it is
// read, at the cost of Stats.
//
// It is a package of its own since importing expvar adds a handler to [net/http.DefaultServeMux].
package expvars

import (
	"errors"
	"expvar"
	"fmt"
	"sync"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/nilcheck"
)

// Source is what a variable shows: a *[timingwheel.TimingWheel], a *[timingwheel.Timeouts], or what
// wraps one.
type Source interface{ Stats() timingwheel.Stats }

// ErrName is wrapped by the errors of [Publish].
var ErrName = errors.New("expvars: name in use")

// publishing makes looking for a name and taking it one step.
var publishing sync.Mutex

// Publish shows the source under the name. A name that a variable has already, of this package or
// another, gives an error that wraps [ErrName]: expvar knows no way to replace or remove a
// variable. For wheels that come and go put [Var] into an [expvar.Map]. A nil source panics. The
// source is kept for as long as the program runs; a wheel that is stopped keeps its counters.
func Publish(name string, s Source) error {
	v := Var(s)
	publishing.Lock()
	defer publishing.Unlock()
	if expvar.Get(name) != nil {
		return fmt.Errorf("%w: %q; accepted is one that no variable has", ErrName, name)
	}
	expvar.Publish(name, v)
	return nil
}

// Var returns the source as a variable that is not published. It panics where s is nil, or a nil
// pointer: else each request would.
func Var(s Source) expvar.Func {
	if nilcheck.IsNil(s) {
		panic(fmt.Sprintf("expvars: the Source is a nil %T", s))
	}
	return func() any { return show(s.Stats()) }
}
