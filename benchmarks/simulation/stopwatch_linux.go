package simulation

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// stopwatch measures the processor time of the goroutine that runs a simulation, which is thereby bound to its
// thread: what other programs and the garbage collector's own threads take does not show.
type stopwatch struct{ last time.Duration }

// start begins the first lap. The function that it returns is to be called at the end.
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
