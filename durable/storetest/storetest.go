// Package storetest is the conformance suite for stores of durable queues. It tests the contract of
// [driver.Store] and [driver.Backend]. Each store's tests call Run:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Fixture { ... })
//	}
//
// Unless the environment variable TIMINGWHEEL_TESTS is "full", the model runs with three of its ten
// seeds, and it and the concurrent tests make only a tenth of their steps.
package storetest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Fixture is a store to test, with the capabilities that the suite may use.
type Fixture struct {
	Store driver.Store

	// Reopen closes the store that was opened last and opens a store on the same data, like a
	// restart of the process, and of the server if there is one. It closes the new store with
	// t.Cleanup. If Reopen is nil, the store keeps no data, and the suite skips the restart tests.
	Reopen func(t testing.TB) driver.Store

	// Embedded means that the store lives only as long as its callers' process. After Reopen no
	// lease is left, and messages that were claimed are scheduled again.
	Embedded bool

	// Remote means that calls may be late or repeated and answers may be lost, as over a network,
	// and that the store honours [driver.Call] and Claim.Seen, Seq and Repeat.
	Remote bool

	// Advance moves the store's clock forward, or back for a negative duration. It also works after
	// Reopen. Between calls the clock may be stopped or running. If Advance is nil, the suite
	// sleeps for tens of milliseconds at a time, and skips some tests.
	Advance func(d time.Duration)

	// Bubble means that the store works in a testing/synctest bubble, because it does no I/O. Tests
	// that wait for seconds then run in a bubble, where the waits take no time.
	Bubble bool
}

// Run tests a store. Its subtests run in parallel. newStore returns an empty store, and closes it
// with t.Cleanup unless the test has closed it. Run calls newStore at least once for each test, and
// concurrently. The stores share nothing.
func Run(t *testing.T, newStore func(t testing.TB) Fixture) {
	t.Helper()
	for _, c := range slices.Concat(openTests, putTests, callTests, delayTests, claimTests, leaseTests, applyTests,
		deadTests, readTests, pauseTests, sharingTests, restartTests, modelTests()) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, openAs(t, newStore(t), config()))
		})
	}
	for _, c := range slowTests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T) { c.run(t, openAs(t, newStore(t), config())) }
			if newStore(t).Bubble {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

// test is one test of the suite, which gets an empty queue in a store of its own.
type test struct {
	name string
	run  testFunc
}

type testFunc = func(t *testing.T, q *queue)

// slowTests wait for seconds. They run in a testing/synctest bubble if the store works in one.
var slowTests = []test{
	{"Pause/Hints", pauseHints},
	{"Watch/Transitions", watchTransitions},
}

// only returns a test that is skipped if the store does not have a capability.
func only(has func(Fixture) bool, run testFunc) testFunc {
	return func(t *testing.T, q *queue) {
		if !has(q.fixture) {
			t.Skip("the store does not have this capability")
		}
		run(t, q)
	}
}

func remote(f Fixture) bool  { return f.Remote }
func kept(f Fixture) bool    { return f.Reopen != nil }
func movable(f Fixture) bool { return f.Advance != nil }
