//go:build !linux

package proctest

import (
	"os"
	"os/exec"
)

// DiesWithParent reports whether a server ends with the test binary, however the binary ends.
const DiesWithParent = false

// setAttributes does nothing. An interrupt from the terminal reaches the servers and the test
// binary.
func setAttributes(*exec.Cmd, os.Signal) {}

func signalGroup(p *os.Process, signal os.Signal) error { return p.Signal(signal) }
