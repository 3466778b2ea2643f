// Package workload holds what the comparison of timers measures: each workload runs on every
// implementation of package impl, through the same interface and with the same random numbers.
//
// A workload is meant to have a process of its own. Timers of package time that were stopped stay in the
// runtime's heaps for a while, and goroutines in its lists, so that the next workload's figures would be
// theirs.
package workload

import (
	"cmp"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// Params say how large and how long a workload is.
type Params struct {
	Pending int
	Busy    int           // spinning goroutines beside the workload
	Procs   []int         // of a parallel workload
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
	Procs  int // 0: the workload is not parallel
	N      int
	Values []Value
}

// Value is a figure with its unit.
type Value struct {
	Value float64
	Unit  string
}

func (r *Result) add(value float64, unit string) { r.Values = append(r.Values, Value{value, unit}) }

func (r *Result) addFigures(figures []bench.Figure) {
	for _, f := range figures {
		r.add(f.Value, f.Unit)
	}
}

// Workload describes one workload.
type Workload struct {
	Name     string
	Does     string
	Parallel bool                     // it is measured on several numbers of processors
	Fixed    bool                     // the number of timers is a part of it
	Busy     []int                    // numbers of spinning goroutines beside it; none: the machine is quiet
	Sizes    []int                    // the numbers of timers of a full comparison
	Quick    []int                    // and of a quick one
	need     func(impl.Traits) string // why an implementation cannot run it, or ""
}

// Missing says why an implementation cannot run the workload with so many timers, or "".
func (w Workload) Missing(t impl.Traits, pending int) string {
	if t.Unfit != "" {
		return t.Unfit
	}
	if t.Most > 0 && pending > t.Most {
		return "has a goroutine for each timer: too many"
	}
	if w.need == nil {
		return ""
	}
	return w.need(t)
}

const (
	k = 1_000
	m = 1_000_000
)

// All lists the workloads in the order in which they are measured.
var All = []Workload{
	{Name: "ArmStop", Does: "arm a timer for 30 s ahead and stop it",
		Parallel: true, Sizes: []int{k, 100 * k, m, 10 * m}, Quick: []int{k, 100 * k, m}, need: stops},
	{Name: "Postpone", Does: "reset a random timer to one hour from now",
		Parallel: true, Sizes: []int{k, 100 * k, m}, Quick: []int{k, 100 * k, m}, need: resets},
	{Name: "Churn", Does: "stop a random timer and arm another one",
		Parallel: true, Sizes: []int{k, 100 * k, m}, Quick: []int{k, 100 * k, m}, need: stops},
	{Name: "Fill", Does: "arm a whole population, with closures that exist already",
		Sizes: []int{k, 100 * k, m, 10 * m}, Quick: []int{k, 100 * k, m}},
	{Name: "GC", Does: "a full collection while a population is pending whose handles nobody keeps",
		Sizes: []int{100 * k, m, 10 * m}, Quick: []int{100 * k, m}},
	{Name: "Burst", Does: "callbacks due at one instant: time from then until the last has run",
		Sizes: []int{m}, Quick: []int{100 * k}, need: fires},
	{Name: "BurstBlocking", Does: "callbacks due at one instant that sleep for 1 ms each: time until all have run",
		Fixed: true, Sizes: []int{10 * k}, Quick: []int{10 * k}, need: runsFunctions},
	{Name: "Blocked", Does: "how late a quick callback is that is due together with others that block until it has run",
		Fixed: true, Sizes: []int{2 * k}, Quick: []int{2 * k}, need: runsFunctions},
	{Name: "Spread", Does: "callbacks due over two seconds: processor time for each, and lateness",
		Sizes: []int{m}, Quick: []int{100 * k}, need: fires},
	{Name: "ArmDuringBurst", Does: "single adds while a burst of timers expires",
		Sizes: []int{m}, Quick: []int{100 * k}, need: fires},
	{Name: "Idle", Does: "how often the process is scheduled while nothing is due",
		Sizes: []int{m}, Quick: []int{100 * k}, need: fires},
	{Name: "BusyBlocked", Does: "on busy processors, how late a quick callback is that is due right after others that block until it has run",
		Fixed: true, Busy: []int{4, 16}, Sizes: []int{2 * k}, Quick: []int{2 * k}, need: runsFunctions},
	{Name: "BusyStream", Does: "on busy processors, lateness of 10,000 callbacks a second that sleep for 5 ms each",
		Fixed: true, Busy: []int{4, 16}, Sizes: []int{20 * k}, Quick: []int{5 * k}, need: runsFunctions},
	{Name: "BusySpread", Does: "on busy processors, lateness of 100,000 quick callbacks a second",
		Fixed: true, Busy: []int{4, 16}, Sizes: []int{200 * k}, Quick: []int{50 * k}, need: fires},
	{Name: "BusyReschedule", Does: "on busy processors, a reset each 200 µs while 250,000 timers a second expire",
		Fixed: true, Busy: []int{16}, Sizes: []int{500 * k}, Quick: []int{100 * k}, need: firesAnd(resets)},
	{Name: "BusyRearm", Does: "on busy processors, a stop and an add each 200 µs while 250,000 timers a second expire",
		Fixed: true, Busy: []int{16}, Sizes: []int{500 * k}, Quick: []int{100 * k}, need: firesAnd(stops)},
	{Name: "BusyCallers", Does: "on busy processors, 16 goroutines that stop and add each 200 µs while a million timers a second expire",
		Fixed: true, Busy: []int{16}, Sizes: []int{m}, Quick: []int{250 * k}, need: firesAnd(stops)},
	{Name: "Exact", Does: "timers due over a second, a half of them stopped or reset: is each one right?",
		Sizes: []int{100 * k}, Quick: []int{10 * k}, need: fires},
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

func stops(t impl.Traits) string { return able(t.Stop, "stop") }

func resets(t impl.Traits) string { return able(t.Reset, "reset") }

// able says why a call is not worth measuring. The time of one that is dropped is that of doing nothing.
func able(answer impl.Answer, call string) string {
	switch answer {
	case impl.Absent:
		return "cannot " + call + " a timer"
	case impl.Deadlocked:
		return "waits for itself for ever in some calls of its " + call
	case impl.Lossy:
		return "drops a " + call + " when it is busy, without saying so"
	default:
		return ""
	}
}

func fires(t impl.Traits) string {
	if t.Manual {
		return "has no clock of its own"
	}
	return ""
}

// firesAnd is of workloads in which timers expire while others are called.
func firesAnd(other func(impl.Traits) string) func(impl.Traits) string {
	return func(t impl.Traits) string { return cmp.Or(fires(t), other(t)) }
}

func runsFunctions(t impl.Traits) string {
	if t.Values {
		return "hands over values in batches, and runs no functions"
	}
	return fires(t)
}
