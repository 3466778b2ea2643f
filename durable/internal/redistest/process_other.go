//go:build !linux

package redistest

import (
	"os"
	"syscall"
)

// diesWithParent says that a server ends with the test binary however that ends.
const diesWithParent = false

// processAttributes are none: an interrupt from the terminal reaches the servers as it reaches the test binary.
func processAttributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }
