//go:build unix

package process

import (
	"syscall"
	"time"
)

// CPUTime returns the user and system time of the process. It returns false where the system does
// not report it.
func CPUTime() (time.Duration, bool) {
	ru := usage()
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), true
}

// ContextSwitches returns the number of voluntary context switches of the process. It returns false
// where the system does not count them.
func ContextSwitches() (int64, bool) { return int64(usage().Nvcsw), true }

func usage() syscall.Rusage {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err) // only for invalid arguments
	}
	return ru
}
