package simulation

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// stopwatch measures the CPU time of the goroutine that runs a simulation. It locks the goroutine
// to its thread, so the time of other programs and of the garbage collector does not count.
type stopwatch struct{ last time.Duration }

// start begins the first lap. The caller calls end after the last one.
func (s *stopwatch) start() (end func()) {
	runtime.LockOSThread()
	s.last = threadTime()
	return runtime.UnlockOSThread
}

// lap returns the time since the last call.
func (s *stopwatch) lap() time.Duration {
	now := threadTime()
	d := now - s.last
	s.last = now
	return d
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err) // only for a clock that does not exist
	}
	return time.Duration(ts.Nano())
}
