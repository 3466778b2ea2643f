// Package chaos tests durable queues under faults. Producers and consumers are separate processes,
// which are killed and paused. Servers are killed, fail over and lose replies. A checker compares
// the events that all processes have recorded with the guarantees.
//
// By default the tests are short. With TIMINGWHEEL_CHAOS=full they run with the numbers of the
// guarantees, one after the other, for about fifteen minutes on an otherwise idle machine. With
// -short most tests are skipped.
//
//	TIMINGWHEEL_CHAOS=full go test -v -timeout 30m ./durable/chaos
package chaos
