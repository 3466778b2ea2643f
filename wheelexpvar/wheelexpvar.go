// Package wheelexpvar publishes the statistics of timing wheels as expvar variables, on
// /debug/vars.
//
//	tw, err := timingwheel.New(timingwheel.Options{})
//	…
//	err = wheelexpvar.Publish("timers", tw)
//
// A variable is a JSON object with the fields of [timingwheel.Stats] in snake case. Durations are
// in seconds and their names end in _seconds. The lateness histogram appears as quantiles. Each
// read of a variable calls Stats once. Between reads the package does no work.
//
// The package is separate from timingwheel because an import of expvar adds a handler to
// [net/http.DefaultServeMux].
package wheelexpvar

import (
	"errors"
	"expvar"
	"fmt"
	"sync"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/nilcheck"
)

// Source is a wheel whose statistics a variable shows: a *[timingwheel.TimingWheel], a
// *[timingwheel.Timeouts], a set from package keyed, or a type that wraps one of these. Stats may
// be called concurrently.
type Source interface{ Stats() timingwheel.Stats }

// ErrName is wrapped by the error that [Publish] returns if a variable already has the name.
var ErrName = errors.New("wheelexpvar: bad name")

// publishing makes the check for a name and its publication atomic.
var publishing sync.Mutex

// Publish publishes s as a variable with the given name. If a variable already has the name,
// Publish returns an error that wraps [ErrName] and publishes nothing. Package expvar cannot
// replace or remove a variable, so s is kept in memory until the program ends. For wheels with a
// shorter life put [Var] into an [expvar.Map]. A stopped wheel keeps its counters. Concurrent calls
// are safe: of several calls with the same name, one succeeds. Publish panics if s is nil or a nil
// pointer.
func Publish(name string, s Source) error {
	v := Var(s)
	publishing.Lock()
	defer publishing.Unlock()
	if expvar.Get(name) != nil {
		return fmt.Errorf("%w: %q is in use; names must be unique", ErrName, name)
	}
	expvar.Publish(name, v)
	return nil
}

// Var returns a variable that shows s and is not published, for an [expvar.Map]. Var panics if s is
// nil or a nil pointer, because otherwise each request would panic.
func Var(s Source) expvar.Func {
	if nilcheck.IsNil(s) {
		panic(fmt.Sprintf("wheelexpvar: the Source is a nil %T", s))
	}
	return func() any { return show(s.Stats()) }
}
