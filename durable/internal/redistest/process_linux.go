package redistest

import (
	"os"
	"syscall"
)

// diesWithParent reports whether a server ends with the test binary, however the binary ends.
const diesWithParent = true

// processAttributes returns attributes that end a server with the test binary and give it a process
// group.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
