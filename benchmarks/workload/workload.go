// Package workload holds what the comparison of timers measures: each workload runs on every
// implementation of package impl, through the same interface and with the same random numbers.
//
// A workload is meant to have a process of its own. Timers of package time that were stopped stay in the
// runtime's heaps for a while, and goroutines in its lists, so that the next workload's figures would be
// theirs.
package workload

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// Params say how large and how long a workload is.
type Params struct {
	Pending int
	Time    time.Duration // how long an operation is repeated, at least
	Grace   time.Duration // timers that are due count as lost once none has run for so long
	Phase   func(string)  // told what begins, so that a run that hangs can say where; may be nil
}

func (p Params) phase(format string, args ...any) {
	if p.Phase != nil {
		p.Phase(fmt.Sprintf(format, args...))
	}
}

// Result is one line of benchmark output: its iterations and its figures.
type Result struct {
	N      int
	Values []Value
}

// Value is a figure with its unit.
type Value struct {
	Value float64
	Unit  string
}

func (r *Result) add(value float64, unit string) { r.Values = append(r.Values, Value{value, unit}) }

// Workload describes one workload.
type Workload struct {
	Name string
	Does string
	Per  Scale
	need func(impl.Traits) string // why an implementation cannot run it, or ""
}

// Scale says which parameters make a difference to a workload.
type Scale int

const (
	Pending  Scale = iota // a population of any size
	Parallel              // a population of any size, and any number of processors
	Fixed                 // the number of timers is part of the workload
)

// Missing says why an implementation cannot run the workload with so many timers, or "".
func (w Workload) Missing(t impl.Traits, pending int) string {
	if t.Most > 0 && pending > t.Most {
		return "has a goroutine for each timer: too many"
	}
	if w.need == nil {
		return ""
	}
	return w.need(t)
}

// All lists the workloads in the order in which they are measured.
var All = []Workload{
	{"ArmStop", "arm a timer for 30 s ahead and stop it", Parallel, stops},
	{"Postpone", "Reset of a random timer to one hour from now", Parallel, resets},
	{"Churn", "stop a random timer and arm another one", Parallel, stops},
	{"Fill", "arm a whole population, with closures that exist already", Pending, nil},
	{"GC", "one full collection while a population is pending whose handles nobody keeps", Pending, nil},
	{"Burst", "callbacks due at one instant: time from then until the last has run", Pending, fires},
	{"BurstBlocking", "the same with callbacks that sleep for 1 ms each", Fixed, runsFunctions},
	{"Blocked", "lateness of one quick callback that is due together with 2,000 that block until it has run", Fixed, runsFunctions},
	{"Spread", "callbacks due over two seconds: processor time for each, and lateness", Pending, fires},
	{"ArmDuringBurst", "single adds while a burst of timers expires", Pending, fires},
	{"Idle", "how often a process is scheduled while nothing is due", Pending, fires},
	{"Exact", "timers due over a second, a half of them stopped or reset: is every one right?", Pending, fires},
}

// Find returns the workload of that name.
func Find(name string) (Workload, bool) {
	for _, w := range All {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

func stops(t impl.Traits) string {
	if t.Stop == impl.Absent {
		return "cannot stop a timer"
	}
	return ""
}

func resets(t impl.Traits) string {
	if t.Reset == impl.Absent {
		return "cannot reset a timer"
	}
	return ""
}

func fires(t impl.Traits) string {
	if t.Manual {
		return "has no clock of its own"
	}
	return ""
}

func runsFunctions(t impl.Traits) string {
	if t.Values {
		return "hands over values in batches, and runs no functions"
	}
	return fires(t)
}
