//go:build !linux

package redistest

import (
	"os"
	"syscall"
)

// diesWithParent reports whether a server ends with the test binary, however the binary ends.
const diesWithParent = false

// processAttributes returns nil. An interrupt from the terminal reaches the servers and the test
// binary.
func processAttributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }
