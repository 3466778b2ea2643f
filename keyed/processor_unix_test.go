//go:build unix

package keyed

import (
	"syscall"
	"time"
)

// processorTime returns the user and system time of the process. Other processes on the machine
// hardly affect it, in contrast to elapsed time.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
