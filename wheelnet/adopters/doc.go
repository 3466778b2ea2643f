// Package adopters shows how existing libraries use the timing wheel. Each file adapts one library.
// Its test file compares the wheel with the library's own timeouts in a benchmark.
package adopters
