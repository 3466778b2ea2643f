//go:build race

package race

// Enabled is true in a program that was built with the race detector.
const Enabled = true
