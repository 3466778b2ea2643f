//go:build !linux

package simulation

import "time"

// stopwatch measures wall time, because the CPU time of a thread is not available.
type stopwatch struct{ last time.Time }

// start begins the first lap. The caller calls end after the last one.
func (s *stopwatch) start() (end func()) {
	s.last = time.Now()
	return func() {}
}

// lap returns the time since the last call.
func (s *stopwatch) lap() time.Duration {
	now := time.Now()
	d := now.Sub(s.last)
	s.last = now
	return d
}
