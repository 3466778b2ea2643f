package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
	"golang.org/x/perf/benchfmt"
)

// childCommand is the first argument of a process that measures one job; the second is an order.
const childCommand = "one"

// phasePrefix begins the lines on standard error by which it says what it is about to do.
const phasePrefix = "phase: "

// busyProcs are the processors on which workloads run whose goroutines spin, so that the same
// number of these keeps every machine as busy.
const busyProcs = 2

// order is a job as the process that does it is told.
type order struct {
	Workload string
	Subject  string
	Pending  int
	Busy     int
	Procs    []int
	Time     time.Duration
	Grace    time.Duration
}

// child does one job and writes its results. It returns the exit code.
func child(args []string, stdout, stderr io.Writer) int {
	if err := obey(args, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return exitDone
}

func obey(args []string, stdout, stderr io.Writer) error {
	var o order
	if len(args) != 1 {
		return fmt.Errorf("%s needs one argument, an order as JSON", childCommand)
	}
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return fmt.Errorf("%s: %w", childCommand, err)
	}
	out := benchfmt.NewWriter(stdout)
	p := workload.Params{Pending: o.Pending, Busy: o.Busy, Procs: o.Procs, Time: o.Time, Grace: o.Grace,
		Phase: func(what string) { fmt.Fprintln(stderr, phasePrefix+what) }}
	var failed error
	emit := func(j job) func(workload.Result) {
		return func(r workload.Result) { failed = errors.Join(failed, out.Write(record(j, r))) }
	}
	if o.Workload == floorJob.workload.Name {
		workload.RunFloor(p, emit(floorJob))
		return failed
	}
	w, known := workload.Find(o.Workload)
	if !known {
		return fmt.Errorf("%s: no workload %q", childCommand, o.Workload)
	}
	s, known := workload.FindSubject(o.Subject)
	if !known {
		return fmt.Errorf("%s: no implementation %q", childCommand, o.Subject)
	}
	if len(w.Busy) > 0 {
		runtime.GOMAXPROCS(min(busyProcs, runtime.NumCPU()))
	}
	err := s.Run(w, p, emit(job{w, s, o.Pending, o.Busy}))
	return errors.Join(err, failed)
}

// record is a result as a line of benchmark output. Its name ends in GOMAXPROCS, as Go has it.
func record(j job, r workload.Result) *benchfmt.Result {
	name, procs := j.name(), runtime.GOMAXPROCS(0)
	if r.Procs > 0 {
		name, procs = fmt.Sprintf("%s/procs=%d", name, r.Procs), r.Procs
	}
	if procs > 1 {
		name = fmt.Sprintf("%s-%d", name, procs)
	}
	line := &benchfmt.Result{Name: benchfmt.Name(name), Iters: r.N}
	for _, v := range r.Values {
		line.Values = append(line.Values, benchfmt.Value{Value: rounded(v.Value), Unit: v.Unit})
	}
	return line
}
