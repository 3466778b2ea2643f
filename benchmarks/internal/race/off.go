//go:build !race

// Package race reports whether the program was built with the race detector.
package race

// Enabled is true in a program that was built with the race detector.
const Enabled = false
