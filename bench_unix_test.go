//go:build unix

package timingwheel

import (
	"syscall"
	"time"
)

// contextSwitches is how often the process has given up the processor by itself.
func contextSwitches() int64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return int64(ru.Nvcsw)
}

// processorTime is the user and system time of the process.
func processorTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
