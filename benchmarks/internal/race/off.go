//go:build !race

// Package race says whether the program was built with the race detector.
package race

// Enabled says whether the race detector is on.
const Enabled = false
