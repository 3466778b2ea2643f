// Package workload has the workloads of the comparison of timers. Each workload runs on every
// implementation of package impl, through the same interface and with the same random numbers.
//
// Run each workload in its own process. The runtime keeps stopped timers of package time in its
// heaps for a while, and ended goroutines in its lists, and both would change the figures of the
// next workload.
package workload

import (
	"cmp"
	"fmt"
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// Params are the size and the duration of a workload.
type Params struct {
	Pending int
	Busy    int           // spinning goroutines during the workload
	Procs   []int         // numbers of processors of a parallel workload
	Time    time.Duration // an operation is repeated for at least this time
	Grace   time.Duration // a workload ends when no timer has run for this time
	Over    time.Duration // span of the deadlines of Spread and Exact; 0: 2 s and 1 s
	Phase   func(string)  // called at the beginning of each phase, to locate a hang; may be nil

	// KeepGarbage skips the garbage collections before the measurements. It is for tests that run
	// many workloads concurrently.
	KeepGarbage bool
}

// collectGarbage collects the garbage of the preparation, before the clock starts.
func (p Params) collectGarbage() {
	if !p.KeepGarbage {
		runtime.GC()
	}
}

func (p Params) phase(format string, args ...any) {
	if p.Phase != nil {
		p.Phase(fmt.Sprintf(format, args...))
	}
}

// Result is one line of benchmark output.
type Result struct {
	Procs  int // 0: the workload is not parallel
	N      int // iterations
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

// lack returns why an implementation cannot run a workload, or "".
type lack func(impl.Traits) string

// Workload describes one workload.
type Workload struct {
	Name        string
	Description string
	Parallel    bool   // it runs on several numbers of processors
	Fixed       bool   // the number of timers is part of the workload
	Ticks       bool   // it also runs with the coarse ticks
	Busy        []int  // numbers of spinning goroutines; may be empty
	Sizes       []int  // numbers of timers of a full comparison
	Quick       []int  // numbers of timers of a quick comparison
	lacks       []lack // reasons why an implementation cannot run it
}

// Covers reports whether the workload compares an implementation, which may have a coarse tick.
func (w Workload) Covers(t impl.Traits) bool { return w.Ticks || !t.Coarse }

// Missing returns why an implementation cannot run the workload, or "".
func (w Workload) Missing(t impl.Traits) string {
	why := t.Unsupported
	for _, lack := range w.lacks {
		why = cmp.Or(why, lack(t))
	}
	return why
}

const (
	k = 1_000
	m = 1_000_000
)

// All lists the workloads in the order of measurement.
var All = []Workload{
	{Name: "ArmStop", Description: "arm a timer for 30 s, earlier than all others, and stop it",
		Parallel: true, Sizes: []int{k, 100 * k, m, 10 * m}, Quick: []int{k, 100 * k, m}, lacks: []lack{lacksStop}},
	{Name: "Postpone", Description: "reset a random timer to one hour from now",
		Parallel: true, Sizes: []int{k, 100 * k, m}, Quick: []int{k, 100 * k, m}, lacks: []lack{lacksReset}},
	{Name: "Churn", Description: "stop a random timer and arm another one",
		Parallel: true, Sizes: []int{k, 100 * k, m}, Quick: []int{k, 100 * k, m}, lacks: []lack{lacksStop}},
	{Name: "Fill", Description: "arm a population of timers; the memory is without closures, handles and the empty wheel",
		Sizes: []int{k, 100 * k, m, 10 * m}, Quick: []int{k, 100 * k, m}, lacks: []lack{lacksPopulation}},
	{Name: "GC", Description: "a full garbage collection while a population is pending, without its handles",
		Sizes: []int{100 * k, m, 10 * m}, Quick: []int{100 * k, m}, lacks: []lack{lacksPopulation}},
	{Name: "Burst", Description: "callbacks due at one instant: time from that instant until the last has run",
		Sizes: []int{m}, Quick: []int{100 * k}, lacks: []lack{lacksFiring}},
	{Name: "BurstBlocking", Description: "callbacks due at one instant, which sleep for 1 ms each: time until all have run",
		Fixed: true, Sizes: []int{10 * k}, Quick: []int{10 * k}, lacks: []lack{lacksFunctions}},
	{Name: "Blocked", Description: "lateness of a quick callback that is due together with others, which block until it has run",
		Fixed: true, Sizes: []int{2 * k}, Quick: []int{2 * k}, lacks: []lack{lacksFunctions}},
	{Name: "Spread", Description: "callbacks due over two seconds: CPU time for each, and lateness",
		Ticks: true, Sizes: []int{m}, Quick: []int{100 * k}, lacks: []lack{lacksFiring}},
	{Name: "ArmDuringBurst", Description: "single adds while a burst of timers expires",
		Sizes: []int{m}, Quick: []int{100 * k}, lacks: []lack{lacksFiring, lacksPopulation}},
	{Name: "Idle", Description: "voluntary context switches of the process while nothing is due",
		Ticks: true, Sizes: []int{m}, Quick: []int{100 * k}, lacks: []lack{lacksClock, lacksPopulation}},
	{Name: "BusyBlocked", Description: "on busy processors, lateness of a quick callback that is due right after others, which block until it has run",
		Fixed: true, Busy: []int{4, 16}, Sizes: []int{2 * k}, Quick: []int{2 * k}, lacks: []lack{lacksFunctions, lacksBusyBlocked}},
	{Name: "BusyStream", Description: "on busy processors, lateness of 10,000 callbacks per second, which sleep for 5 ms each",
		Ticks: true, Fixed: true, Busy: []int{4, 16}, Sizes: []int{20 * k}, Quick: []int{5 * k}, lacks: []lack{lacksFunctions}},
	{Name: "BusySpread", Description: "on busy processors, lateness of 100,000 quick callbacks per second",
		Ticks: true, Fixed: true, Busy: []int{4, 16}, Sizes: []int{200 * k}, Quick: []int{50 * k}, lacks: []lack{lacksFiring}},
	{Name: "BusyReschedule", Description: "on busy processors, a reset every 200 µs while 250,000 timers per second expire",
		Fixed: true, Busy: []int{16}, Sizes: []int{500 * k}, Quick: []int{100 * k}, lacks: []lack{lacksFiring, lacksReset}},
	{Name: "BusyRearm", Description: "on busy processors, stopping and adding a timer every 200 µs while 250,000 timers per second expire",
		Fixed: true, Busy: []int{16}, Sizes: []int{500 * k}, Quick: []int{100 * k}, lacks: []lack{lacksFiring, lacksStop}},
	{Name: "BusyCallers", Description: "on busy processors, 16 goroutines that stop and add every 200 µs while a million timers per second expire",
		Fixed: true, Busy: []int{16}, Sizes: []int{m}, Quick: []int{250 * k}, lacks: []lack{lacksFiring, lacksStop}},
	{Name: "Exact", Description: "timers due over a second, half of which are stopped or reset",
		Ticks: true, Sizes: []int{100 * k}, Quick: []int{10 * k}, lacks: []lack{lacksFiring}},
}

// Find returns the workload with this name.
func Find(name string) (Workload, bool) {
	for _, w := range All {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

func lacksStop(t impl.Traits) string { return lacksCall(t.Stop, "stop") }

func lacksReset(t impl.Traits) string { return lacksCall(t.Reset, "reset") }

// lacksCall returns why the time of a call is meaningless, or "". A dropped call takes the time of
// doing nothing.
func lacksCall(support impl.Support, call string) string {
	switch support {
	case impl.Absent:
		return "cannot " + call + " a timer"
	case impl.MayDeadlock:
		return "may deadlock in " + call
	case impl.MayDrop:
		return "may drop a call to " + call + " when it is busy, without reporting it"
	default:
		return ""
	}
}

func lacksClock(t impl.Traits) string {
	if t.Manual {
		return "does not advance its clock by itself"
	}
	return ""
}

func lacksPopulation(t impl.Traits) string { return t.Population }

// lacksBusyBlocked is for BusyBlocked, which must arm thousands of timers within 50 ms on busy
// processors. An implementation that drops calls to stop drops adds too.
func lacksBusyBlocked(t impl.Traits) string {
	if t.Stop == impl.MayDrop {
		return "drops adds while the processors are busy"
	}
	return ""
}

// lacksFiring is for workloads in which timers fire at deadlines that are not whole seconds.
func lacksFiring(t impl.Traits) string {
	if t.Seconds {
		return "truncates delays to whole seconds"
	}
	return lacksClock(t)
}

func lacksFunctions(t impl.Traits) string {
	if t.Values {
		return "hands over values in batches and does not run functions"
	}
	return lacksFiring(t)
}
