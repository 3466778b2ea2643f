// Package storetest is the conformance suite of the stores of a durable queue. It tests the
// promises of [driver.Store] and [driver.Backend]. The tests of each store call Run:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Fixture { ... })
//	}
package storetest

import (
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Factory makes an empty store, and closes it by t.Cleanup unless the test has closed it. The suite
// calls it several times for each test, from several tests at the same time. The stores share
// nothing.
type Factory func(t testing.TB) Fixture

// Fixture is a store to test, with the means that the suite has.
type Fixture struct {
	Store driver.Store

	// Reopen closes the store that was opened last and opens one on the same data, as a restart of
	// the process does, and of the server if there is one. It closes the new store by t.Cleanup. If
	// Reopen is nil the store keeps no data, and the suite skips the tests of restarts.
	Reopen func(t testing.TB) driver.Store

	// Embedded says that the store ends with the process of its callers. After Reopen no lease is
	// left, and the messages that were claimed are scheduled again.
	Embedded bool

	// Remote says that copies of a call may arrive late and more than once, as over a network, and
	// that the store honours [driver.Call].
	Remote bool

	// Advance moves the clock of this store ahead, or back by a negative duration, also after the
	// store was reopened. The clock may stand still or run in between. If Advance is nil the suite
	// sleeps for tens of milliseconds at a time, and skips some tests.
	Advance func(d time.Duration)
}

// Run tests a store. Its subtests run at the same time.
func Run(t *testing.T, newStore Factory) {
	t.Helper()
	for _, group := range [][]test{
		openTests, putTests, callTests, delayTests, claimTests, leaseTests, applyTests, deadTests,
		readTests, pauseTests, memberTests, watchTests,
		sharingTests, restartTests, modelTests, consumerTests,
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, newStore)
			})
		}
	}
}

// test is one case of the suite.
type test struct {
	name string
	run  func(t *testing.T, newStore Factory)
}
