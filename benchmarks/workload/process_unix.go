//go:build unix

package workload

import (
	"syscall"
	"time"
)

func usage() syscall.Rusage {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err) // it fails for bad arguments only
	}
	return ru
}

// contextSwitches is how often the process has given up a processor by itself.
func contextSwitches() (int64, bool) { return int64(usage().Nvcsw), true }

// processorTime is the user and system time of the process.
func processorTime() (time.Duration, bool) {
	ru := usage()
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), true
}
