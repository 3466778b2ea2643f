package main

import "math"

// comparison is the way in which a figure is compared with the bound of a target.
type comparison struct {
	name string
	plus float64 // see ratioPlus
}

var (
	ratio      = comparison{name: "ratio"}      // figure / baseline, at most the bound
	speedup    = comparison{name: "speedup"}    // baseline / figure, at least the bound
	difference = comparison{name: "difference"} // figure - baseline, at most the bound
	absolute   = comparison{name: "absolute"}   // the figure alone, at most the bound
)

// ratioPlus accepts a figure of at most bound * baseline + plus. Plus has the unit of the
// figure. It is for baselines that may be so small that a ratio alone is meaningless.
func ratioPlus(plus float64) comparison { return comparison{"ratioPlus", plus} }

// target is a row of the table: a figure of a benchmark, and its bound.
type target struct {
	pattern  string // of benchmark names; each benchmark that matches has a row
	unit     string // times are in seconds
	how      comparison
	baseline string // a parameter or a benchmark; with absolute only shown, and may be ""
	bound    float64
}

// unbounded marks a comparison without a target.
var unbounded = math.Inf(1)

const (
	std       = "impl=std"
	none      = "impl=none" // BusyCalls without a call
	tick      = 1e-3        // the default Options.Tick, in seconds
	overShare = "over-1ms-%"
)

// targets are the performance targets that need no other library. docs/benchmarks.md has their
// results.
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
	{"Churn/pending=1M", "sec/op", ratio, std, 0.72},
	{"Churn/pending=1M", "sec/op", ratio, "FloorChurn/pending=1M", unbounded},

	{"Postpone/pending=1k/procs=2", "sec/op", ratio, std, 0.95},
	{"Postpone/pending=100k/procs=2", "sec/op", ratio, std, 0.75},
	{"Postpone/pending=1M/procs=2", "sec/op", ratio, std, 0.60},
	{"Churn/pending=1M/procs=2", "sec/op", ratio, std, 0.72},

	{"Touch/pending=1k", "sec/op", ratio, std, 0.65},
	{"Touch/pending=1M", "sec/op", ratio, std, 0.50},
	{"Touch/pending=1k/procs=2", "sec/op", ratio, std, 0.50},
	{"Touch/pending=1M/procs=2", "sec/op", ratio, std, 0.50},

	{"Fill/pending=10M", "sec/op", ratio, std, 0.30},
	{"Fill/pending=10M", "B/timer", absolute, std, 26.5},
	{"Fill/pending=10M", "allocs/op", absolute, std, 0},
	{"Fill/impl=functimer/pending=10M", "B/timer", absolute, std, 90},
	{"Fill/impl=timeouts/pending=10M", "B/timer", absolute, std, 25},
	{"Fill/impl=timeouts/pending=100M", "sec/op", ratio, "pending=1M", 2},

	{"GC/pending=10M", "gc-sec", ratio, std, 0.30},
	{"GC/impl=timeouts/pending=10M", "gc-sec", ratio, std, 0.03},

	{"Burst/pending=1M", "drain-sec", ratio, std, 0.08},
	{"BurstBlocking/pending=10k", "drain-sec", ratio, std, 1},
	{"Blocked", "late-sec", absolute, std, 5e-3},
	{"ArmDuringBurst", "p99.9-sec", absolute, std, 100e-6},
	{"ArmDuringBurst", "p99.9-sec", ratio, std, 1},

	{"Spread/pending=1M", "cpu-sec/timer", ratio, std, 0.40},
	{"Spread/pending=1M", "p99-sec", difference, std, tick + 0.5e-3},
	{"Spread/pending=1M", "early", absolute, std, 0},
	{"Cascade/pending=1M", "p99-sec", difference, "pending=0", 1e-3},
	{"Idle/pending=1M", "wakeups", difference, std, 2},

	{"BusyBlocked/busy=4", "late-sec", ratioPlus(10e-3), std, 1.5},
	{"BusyBlocked/busy=16", "late-sec", ratioPlus(10e-3), std, 1.5},
	{"BusyBlockedWaking/busy=4", "late-sec", ratioPlus(10e-3), std, 1.5},
	{"BusyBlockedWaking/busy=16", "late-sec", ratioPlus(10e-3), std, 1.5},
	{"BusyStream/busy=4", "late-p50-sec", ratioPlus(5e-3), std, 1.5},
	{"BusyStream/busy=16", "late-p50-sec", ratioPlus(5e-3), std, 1.5},
	{"BusyStream/busy=4", "late-max-sec", ratioPlus(10e-3), std, 1.5},
	{"BusyStream/busy=16", "late-max-sec", ratioPlus(10e-3), std, 1.5},
	{"BusySpread/busy=4", "late-p99-sec", ratio, std, 1},
	{"BusySpread/busy=16", "late-p99-sec", ratio, std, 1},
	{"BusyCalls/busy=4/call=reschedule/callers=1", overShare, absolute, std, 0.2},
	{"BusyCalls/busy=16/call=reschedule/callers=1", overShare, absolute, std, 0.2},
	{"BusyCalls/busy=4/call=reschedule/callers=1", "worst-sec", absolute, std, 1e-3},
	{"BusyCalls/busy=16/call=reschedule/callers=1", "worst-sec", absolute, std, 1e-3},
	{"BusyCalls/busy=4/call=rearm/callers=1", overShare, absolute, std, 0.2},
	{"BusyCalls/busy=16/call=rearm/callers=1", overShare, absolute, std, 0.2},
	{"BusyCalls/busy=4/call=rearm/callers=1", "worst-sec", absolute, std, 1e-3},
	{"BusyCalls/busy=16/call=rearm/callers=1", "worst-sec", absolute, std, 1e-3},
	{"BusyCalls/busy=4/call=rearm/callers=1", "worst-sec", difference, none, unbounded},
	{"BusyCalls/busy=16/call=rearm/callers=1", "worst-sec", difference, none, unbounded},
	{"BusyCalls/busy=4/call=rearm/callers=16", "worst-sec", difference, std, unbounded},
	{"BusyCalls/busy=16/call=rearm/callers=16", "worst-sec", difference, std, unbounded},
}
