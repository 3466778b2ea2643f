// Package chaos has the fault tests of durable queues. Producers and consumers are processes of
// their own, which are killed and paused. Servers are killed, fail over and lose replies. A checker
// compares the events that all processes have recorded with the guarantees.
//
// The tests are brief by default. With TIMINGWHEEL_CHAOS=full they run with the numbers of the
// guarantees, one after the other, for about fifteen minutes on a machine without other load. With
// -short most tests are skipped.
//
//	TIMINGWHEEL_CHAOS=full go test -v -timeout 30m ./durable/chaos
package chaos
