package main

import (
	"fmt"
	"strings"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// job is one process: a workload of one implementation at one size.
type job struct {
	workload workload.Workload
	subject  workload.Subject
	pending  int
	busy     int // spinning goroutines, if the workload has any
}

// floorJob measures the floor, of which there is no implementation.
var floorJob = job{workload: workload.Workload{Name: "Floor"}}

func (j job) isFloor() bool { return j.workload.Name == floorJob.workload.Name }

// name is the benchmark's name up to the number of processors.
func (j job) name() string {
	if j.isFloor() {
		return j.workload.Name
	}
	name := j.workload.Name + "/impl=" + j.subject.Name + "/pending=" + results.FormatCount(j.pending)
	if len(j.workload.Busy) > 0 {
		name += fmt.Sprintf("/busy=%d", j.busy)
	}
	return name
}

// missing says why the job cannot be done, or "".
func (j job) missing() string {
	if j.isFloor() {
		return ""
	}
	return j.workload.Missing(j.subject.Traits, j.pending)
}

// plan lists the jobs of one run. Those that will be compared follow each other, and smaller ones come
// first, so that an implementation that fails is not tried with more.
func plan(cfg config) []job {
	jobs := []job{floorJob}
	for _, name := range cfg.workloads {
		w, _ := workload.Find(name)
		for _, pending := range sizes(cfg, w) {
			for _, busy := range busyLevels(cfg, w) {
				for _, subject := range cfg.subjects {
					s, _ := workload.FindSubject(subject)
					jobs = append(jobs, job{w, s, pending, busy})
				}
			}
		}
	}
	return jobs
}

// busyLevels are the numbers of spinning goroutines beside a workload; a quick comparison has only
// the last.
func busyLevels(cfg config, w workload.Workload) []int {
	switch {
	case len(w.Busy) == 0:
		return []int{0}
	case cfg.quick:
		return w.Busy[len(w.Busy)-1:]
	default:
		return w.Busy
	}
}

func sizes(cfg config, w workload.Workload) []int {
	switch {
	case len(cfg.pending) > 0 && !w.Fixed:
		return cfg.pending
	case cfg.quick:
		return w.Quick
	default:
		return w.Sizes
	}
}

// verdicts remembers what is of no use to try again.
type verdicts struct {
	failed map[string]string // by the name of the job
	stuck  map[string]int    // by implementation: so many timers could not be armed in time
	slow   map[string]int    // by workload and implementation: it took too long with so many
}

func newVerdicts() *verdicts {
	return &verdicts{map[string]string{}, map[string]int{}, map[string]int{}}
}

// foregone says why the job is not worth trying after what has happened before, or "".
func (v *verdicts) foregone(j job) string {
	if n, ok := v.stuck[j.subject.Name]; ok && j.pending >= n {
		return "could not arm " + results.FormatCount(n) + " timers in time before"
	}
	if n, ok := v.slow[v.kind(j)]; ok && j.pending > n {
		return "took too long with " + results.FormatCount(n) + " already"
	}
	return ""
}

func (v *verdicts) kind(j job) string { return j.workload.Name + "/" + j.subject.Name }

// note remembers that the job has failed.
func (v *verdicts) note(j job, f *failure) {
	v.failed[j.name()] = f.Error()
	if !f.timeout || j.isFloor() {
		return
	}
	if strings.HasPrefix(f.phase, "arming") {
		v.stuck[j.subject.Name] = j.pending
	}
	v.slow[v.kind(j)] = j.pending
}
