// Package testscale reads the size of the durable queue's tests from the environment.
package testscale

import "os"

// Full is true if the environment asks for tests of full size, as .ci/run full and race do.
var Full = os.Getenv("TIMINGWHEEL_TESTS") == "full"

// Size returns the size of a test: n at full size, and otherwise a tenth of n, but at least 1.
func Size(n int) int {
	if Full {
		return n
	}
	return max(n/10, 1)
}
