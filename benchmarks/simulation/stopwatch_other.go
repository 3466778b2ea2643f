//go:build !linux

package simulation

import "time"

// stopwatch measures time on the wall where the processor time of a thread is not to be had.
type stopwatch struct{ last time.Time }

// start begins the first lap. The function that it returns is to be called at the end.
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
