//go:build unix

package keyed

import (
	"syscall"
	"time"
)

// processorTime is the user and system time of the process: unlike the time that passes, others on
// the machine hardly move it.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
