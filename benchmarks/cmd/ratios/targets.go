package main

import "math"

// comparison says how a figure is held against a target's bound.
type comparison int

const (
	ratio      comparison = iota // ours / rival, at most the bound
	speedup                      // rival / ours, at least the bound
	difference                   // ours - rival, at most the bound
	absolute                     // ours alone, at most the bound
)

// target is one row of the table: which figure of which benchmark is held against what.
type target struct {
	ours  string // the benchmark; one row for each that matches
	unit  string // the figure, times in seconds
	how   comparison
	rival string // a changed parameter, or a benchmark; with absolute it is only shown, and "" is none
	bound float64
}

// unbounded marks a ratio that is of interest but promises nothing.
var unbounded = math.Inf(1)

const (
	std  = "impl=std"
	tick = 1e-3 // the default Options.Tick, in seconds
)

// targets are the promises that need no other library to be measured. docs/benchmarks.md says how each
// workload is built.
var targets = []target{
	{"ArmStop/pending=1k", "sec/op", ratio, std, 0.35},
	{"ArmStop/pending=1M", "sec/op", ratio, std, 0.25},
	{"ArmStop/pending=10M", "sec/op", ratio, "pending=1k", 1.25},
	{"ArmStop/pending=1M", "sec/op", ratio, "Floor", unbounded},
	{"ArmStop/pending=1M/procs=2", "sec/op", ratio, std, 0.30},
	{"ArmStop/pending=1M/procs=2", "sec/op", speedup, "procs=1", 1.6},
	{"ArmStop/impl=manual", "sec/op", ratio, std, 0.20},
	{"ArmStop/pending=1M", "allocs/op", absolute, std, 0},

	{"Postpone/pending=1k", "sec/op", ratio, std, 0.75},
	{"Postpone/pending=1k", "sec/op", ratio, "FloorPostpone/pending=1k", unbounded},
	{"Postpone/pending=1M", "sec/op", ratio, std, 0.60},
	{"Postpone/pending=1M", "sec/op", ratio, "FloorPostpone/pending=1M", unbounded},
	{"Postpone/pending=1M", "allocs/op", absolute, std, 0},
	{"Churn/pending=1M", "sec/op", ratio, std, 0.65},
	{"Churn/pending=1M", "sec/op", ratio, "FloorChurn/pending=1M", unbounded},

	{"Fill/pending=10M", "sec/op", ratio, std, 0.30},
	{"Fill/pending=10M", "B/timer", absolute, std, 36},
	{"Fill/pending=10M", "allocs/op", absolute, std, 0},
	{"Fill/impl=timeouts/pending=10M", "B/timer", absolute, std, 34},
	{"Fill/impl=timeouts/pending=100M", "sec/op", ratio, "pending=1M", 2},

	{"GC/pending=10M", "gc-sec", ratio, std, 0.30},
	{"GC/impl=timeouts/pending=10M", "gc-sec", ratio, std, 0.03},

	{"Burst/pending=1M", "drain-sec", ratio, std, 0.15},
	{"BurstBlocking/pending=10k", "drain-sec", ratio, std, 1.5},
	{"Blocked", "late-sec", absolute, std, 5e-3},
	{"ArmDuringBurst", "p99.9-sec", absolute, std, 100e-6},
	{"ArmDuringBurst", "p99.9-sec", ratio, std, 1},

	{"Spread/pending=1M", "cpu-sec/timer", ratio, std, 0.40},
	{"Spread/pending=1M", "p99-sec", difference, std, tick + 0.5e-3},
	{"Spread/pending=1M", "early", absolute, std, 0},
	{"Cascade/pending=1M", "p99-sec", difference, "pending=0", 1e-3},
	{"Idle/pending=1M", "wakeups", difference, std, 2},
}
