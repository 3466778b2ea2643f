//go:build unix

package redistest

import (
	"os"
	"syscall"
)

// canSignal reports whether the system has the signals that faults need.
const canSignal = true

func pauseProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error  { return p.Signal(syscall.SIGCONT) }
func terminateProcess(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
