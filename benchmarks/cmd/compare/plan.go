package main

import (
	"fmt"
	"strings"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

// job is one workload of one implementation at one size. It runs in its own process.
type job struct {
	workload workload.Workload
	subject  workload.Subject
	pending  int
	busy     int // spinning goroutines
}

// floorJob measures the floor, which has no implementation.
var floorJob = job{workload: workload.Workload{Name: "Floor"}}

func (j job) isFloor() bool { return j.workload.Name == floorJob.workload.Name }

// name returns the name of the benchmark, up to the number of processors.
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

// missing returns why the job cannot run, or "".
func (j job) missing() string {
	if j.isFloor() {
		return ""
	}
	return j.workload.Missing(j.subject.Traits)
}

// plan lists the jobs of one run. Jobs that are compared with each other run one after another.
// Smaller sizes come first, so that an implementation that fails is not tried with more timers.
func plan(cfg config) []job {
	jobs := []job{floorJob}
	for _, name := range cfg.workloads {
		w, _ := workload.Find(name)
		for _, pending := range sizes(cfg, w) {
			for _, busy := range busyLevels(cfg, w) {
				for _, subject := range cfg.subjects {
					s, _ := workload.FindSubject(subject)
					if w.Covers(s.Traits) {
						jobs = append(jobs, job{w, s, pending, busy})
					}
				}
			}
		}
	}
	return jobs
}

// busyLevels returns the numbers of spinning goroutines of a workload. A quick comparison has only
// the last one.
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

// history records failures, so that jobs which would fail again are skipped.
type history struct {
	failed  map[string]string // reason by name of the job
	slowArm map[string]int    // by implementation: arming this many timers took too long
	slow    map[string]int    // by workload and implementation: this many timers took too long
}

func newHistory() *history {
	return &history{map[string]string{}, map[string]int{}, map[string]int{}}
}

// skipReason returns the earlier failure because of which the job is skipped, or "".
func (h *history) skipReason(j job) string {
	if n, ok := h.slowArm[j.subject.Name]; ok && j.pending >= n {
		return "could not arm " + results.FormatCount(n) + " timers in time in an earlier workload"
	}
	if n, ok := h.slow[h.kind(j)]; ok && j.pending > n {
		return "already took too long with " + results.FormatCount(n) + " timers"
	}
	return ""
}

func (h *history) kind(j job) string { return j.workload.Name + "/" + j.subject.Name }

func (h *history) record(j job, f *failure) {
	h.failed[j.name()] = f.Error()
	if !f.timeout || j.isFloor() {
		return
	}
	if strings.HasPrefix(f.phase, "arming") {
		h.slowArm[j.subject.Name] = j.pending
	}
	h.slow[h.kind(j)] = j.pending
}
