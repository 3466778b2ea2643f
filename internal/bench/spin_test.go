package bench

import (
	"testing"
	"testing/synctest"
)

// A bubble ends only when all of its goroutines have ended.
func TestSpinningGoroutinesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 1, 8} {
			stop := Spin(n)
			stop()
			stop()
		}
	})
}
