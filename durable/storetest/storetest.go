// Package storetest is the conformance suite of the stores of a durable queue: what [driver.Store] and [driver.Backend] promise,
// as tests. A store passes when Run does:
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

// Factory makes a fresh, empty store, and closes it by t.Cleanup, where the test has not closed it already. It is called several times for
// each test, from several tests at the same time; its stores must not see each other.
type Factory func(t testing.TB) Fixture

// Fixture is a store that is to be tested, and what the suite may do with it.
type Fixture struct {
	Store driver.Store

	// Reopen closes the store that was opened last and opens one on the same data, as a restart of the process would, and of the server if
	// there is one; the new one is closed by t.Cleanup, too. Nil where data is not kept: then the suite skips the tests of restarts.
	Reopen func(t testing.TB) driver.Store

	// Embedded says that the store ends with the process of its callers: after Reopen no lease is left, as nobody can hold it. What was
	// claimed is scheduled again then.
	Embedded bool

	// Remote says that copies of a call may arrive late and more than once, as over a network: the store honours [driver.Call].
	Remote bool

	// Advance moves the clock of this store ahead, or back by a negative duration, also after the store was
	// reopened. The clock may stand still in between or run. If Advance is nil the suite waits for real, some
	// tens of milliseconds at a time, so a store that can move its clock is tested better.
	Advance func(d time.Duration)
}

// Run tests a store. Its subtests run at the same time.
func Run(t *testing.T, newStore Factory) {
	t.Helper()
	for _, group := range [][]test{
		openTests, putTests, callTests, delayTests, claimTests, leaseTests, applyTests, deadTests, readTests, pauseTests, memberTests, watchTests,
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
