// Package benchmarks measures the wheel. The module is separate from the root module, because it
// depends on other libraries, parsers, tables and plots.
//
//   - cmd/ratios compares the benchmarks of the root module with their targets.
//   - cmd/compare runs the workloads of package workload on the implementations of package impl,
//     which include the timers of other libraries. cmd/report makes tables and plots of the
//     figures.
//   - cmd/cost prints the cost of single operations, also under an instruction counter.
//   - cmd/simulate plays a trace of connections on several choices of options.
//   - layout compares forms of the list of a bucket.
//   - maps compares concurrent maps for package keyed.
package benchmarks
