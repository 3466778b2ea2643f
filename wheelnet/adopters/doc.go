// Package adopters shows how existing libraries use the timing wheel. Each file adapts one library.
// Its test file has a benchmark of the wheel and of the library's own timeouts.
package adopters
