// Package chaos has the fault tests of durable queues: producers and consumers are processes of their own that are killed and
// paused, servers are killed, fail over and lose replies, and a checker looks at what everybody has seen.
//
// The tests are brief by default. With TIMINGWHEEL_CHAOS=full they run with the numbers that the guarantees are stated for, one after
// the other on a machine that has nothing else to do, which takes some fifteen minutes; with -short most are skipped.
//
//	TIMINGWHEEL_CHAOS=full go test -v -timeout 30m ./durable/chaos
package chaos
