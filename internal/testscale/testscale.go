// Package testscale reads the size of tests from the environment.
package testscale

import "os"

// Full reports whether the environment asks for tests of full size, as .ci/run full does. It is not
// a variable, because go test does not notice which variables of the environment a package reads
// before the tests run, and would return the cached result of another size.
func Full() bool { return os.Getenv("TIMINGWHEEL_TESTS") == "full" }

// Size returns the size of a test: n at full size, and otherwise a tenth of n, but at least 1.
func Size(n int) int {
	if Full() {
		return n
	}
	return max(n/10, 1)
}
