//go:build unix

// Package processor measures the CPU time of the examples.
package processor

import (
	"syscall"
	"time"
)

// Time returns the CPU time of this process, in user mode and in the kernel.
func Time() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
