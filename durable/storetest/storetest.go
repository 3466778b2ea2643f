// Package storetest is the conformance suite for stores of a durable queue. It tests the contract
// of [driver.Store] and [driver.Backend]. The tests of each store call Run:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Fixture { ... })
//	}
//
// The model and the concurrent tests make a tenth of their steps, unless the environment variable
// TIMINGWHEEL_TESTS is "full".
package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Factory returns an empty store, and closes it with t.Cleanup unless the test has closed it. The
// suite calls it several times in each test, and concurrently. The stores share nothing.
type Factory func(t testing.TB) Fixture

// Fixture is a store to test, with the capabilities that the suite may use.
type Fixture struct {
	Store driver.Store

	// Reopen closes the store that was opened last and opens a store on the same data, like a
	// restart of the process, and of the server if there is one. It closes the new store with
	// t.Cleanup. If Reopen is nil, the store keeps no data, and the suite skips the tests of
	// restarts.
	Reopen func(t testing.TB) driver.Store

	// Embedded means that the lifetime of the store is that of its callers' process. After Reopen
	// no lease is left, and messages that were claimed are scheduled again.
	Embedded bool

	// Remote means that calls may be late or repeated and answers may be lost, as over a network,
	// and that the store honours [driver.Call] and Claim.Seen, Seq and Repeat.
	Remote bool

	// Advance moves the clock of this store forward, or back for a negative duration, also after
	// the store was reopened. The clock may be stopped or running in between. If Advance is nil,
	// the suite sleeps for tens of milliseconds at a time, and skips some tests.
	Advance func(d time.Duration)

	// Bubble means that the store works in a testing/synctest bubble, because it does no I/O. Tests
	// that wait for seconds then run in a bubble, where the waits take no time.
	Bubble bool
}

// Run tests a store. Its subtests run in parallel.
func Run(t *testing.T, newStore Factory) {
	t.Helper()
	for _, group := range [][]test{
		openTests, putTests, callTests, delayTests, claimTests, leaseTests, applyTests, deadTests,
		readTests, pauseTests, sharingTests, restartTests, modelTests,
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, newStore)
			})
		}
	}
}

// inBubble returns a test that runs in a testing/synctest bubble if the store works in one.
func inBubble(run func(t *testing.T, newStore Factory)) func(t *testing.T, newStore Factory) {
	return func(t *testing.T, newStore Factory) {
		if !newStore(t).Bubble {
			run(t, newStore)
			return
		}
		synctest.Test(t, func(t *testing.T) { run(t, newStore) })
	}
}

// test is one test of the suite.
type test struct {
	name string
	run  func(t *testing.T, newStore Factory)
}
