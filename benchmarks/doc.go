// Package benchmarks measures the wheel from outside the root module, which stays free of what that
// takes: other libraries, parsers and tables. Command cmd/ratios prints the targets beside the figures.
package benchmarks
