// Package benchmarks measures the wheel from outside the root module, which stays free of what that
// takes: other libraries, parsers, tables and plots.
//
//   - cmd/ratios prints the targets of this library beside the figures of its own benchmarks.
//   - cmd/compare runs the workloads of package workload on the implementations of package impl, the
//     timers of other libraries among them, and cmd/report makes tables and plots of what it has measured.
//   - maps compares the concurrent maps on which package keyed could stand.
package benchmarks
