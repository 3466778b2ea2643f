//go:build unix

package proctest

import (
	"os"
	"syscall"
)

// CanSignal reports whether the system has the signals that faults need.
const CanSignal = true

// Pause and Continue are the signals that suspend a process and resume it.
var Pause, Continue os.Signal = syscall.SIGSTOP, syscall.SIGCONT
