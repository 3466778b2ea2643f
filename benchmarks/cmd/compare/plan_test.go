package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

func names(jobs []job) (all []string) {
	for _, j := range jobs {
		all = append(all, j.name())
	}
	return all
}

func TestPlan(t *testing.T) {
	t.Parallel()
	cfg := config{subjects: []string{"std", "wheel"}, workloads: []string{"Fill", "Blocked"}, pending: []int{10, 1_000}}
	assert.Equal(t, []string{
		"Floor",
		"Fill/impl=std/pending=10", "Fill/impl=wheel/pending=10",
		"Fill/impl=std/pending=1k", "Fill/impl=wheel/pending=1k",
		"Blocked/impl=std/pending=2k", "Blocked/impl=wheel/pending=2k", // fixed size
	}, names(plan(cfg)))

	cfg = config{subjects: []string{"std", "wheel"}, workloads: []string{"BusyStream"}}
	assert.Equal(t, []string{
		"Floor",
		"BusyStream/impl=std/pending=20k/busy=4", "BusyStream/impl=wheel/pending=20k/busy=4",
		"BusyStream/impl=std/pending=20k/busy=16", "BusyStream/impl=wheel/pending=20k/busy=16",
	}, names(plan(cfg)))
	cfg.quick = true
	assert.Equal(t, []string{
		"Floor", "BusyStream/impl=std/pending=5k/busy=16", "BusyStream/impl=wheel/pending=5k/busy=16",
	}, names(plan(cfg)))

	cfg = config{subjects: subjectNames(), workloads: workloadNames()}
	full := names(plan(cfg))
	assert.Contains(t, full, "ArmStop/impl=wheel/pending=10M")
	assert.Contains(t, full, "BusyStream/impl=wheel-100ms/pending=20k/busy=4")
	assert.NotContains(t, full, "ArmStop/impl=wheel-100ms/pending=1k")
	cfg.quick = true
	quick := names(plan(cfg))
	assert.NotContains(t, quick, "ArmStop/impl=wheel/pending=10M")
	assert.Less(t, len(quick), len(full))
}

func TestJobsThatWouldFailAgainAreSkipped(t *testing.T) {
	t.Parallel()
	fill, _ := workload.Find("Fill")
	burst, _ := workload.Find("Burst")
	gost, _ := workload.FindSubject("gost")
	std, _ := workload.FindSubject("std")

	h := newHistory()
	h.record(job{fill, gost, 1_000, 0}, &failure{timeout: true, phase: "measuring"})
	assert.Empty(t, h.skipReason(job{fill, gost, 100, 0}))
	assert.Equal(t, "already took too long with 1k timers", h.skipReason(job{fill, gost, 2_000, 0}))
	assert.Empty(t, h.skipReason(job{burst, gost, 2_000, 0}), "another workload may succeed")
	assert.Empty(t, h.skipReason(job{fill, std, 2_000, 0}), "another implementation may succeed")

	h.record(job{fill, gost, 1_000, 0}, &failure{timeout: true, phase: "arming 1000 timers"})
	assert.Equal(t, "could not arm 1k timers in time in an earlier workload", h.skipReason(job{burst, gost, 1_000, 0}))
	assert.Empty(t, h.skipReason(job{burst, gost, 999, 0}))

	h = newHistory()
	h.record(job{fill, gost, 1_000, 0}, &failure{reason: "panic: no"})
	h.record(floorJob, &failure{timeout: true})
	assert.Empty(t, h.skipReason(job{fill, gost, 2_000, 0}), "a failure other than a timeout may not repeat with more timers")
	assert.Empty(t, h.skipReason(floorJob))
	assert.Len(t, h.failed, 2)
}

func TestFailureText(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "timeout after 5s, arming 3 timers", (&failure{timeout: true, limit: 5 * time.Second, phase: "arming 3 timers"}).Error())
	assert.Equal(t, "timeout after 5s", (&failure{timeout: true, limit: 5 * time.Second}).Error())
	assert.Equal(t, "panic: no", (&failure{phase: "measuring", reason: "panic: no"}).Error())
}

func TestFiguresAreRoundedToFiveDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 0, 123456.7: 123460, 1.234567: 1.2346, 0.00012345678: 0.00012346, -2: -2} {
		assert.InDelta(t, want, rounded(v), 1e-12)
	}
}
