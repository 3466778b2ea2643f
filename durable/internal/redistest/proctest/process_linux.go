package proctest

import (
	"os"
	"os/exec"
	"syscall"
)

// DiesWithParent reports whether a server ends with the test binary, however the binary ends.
const DiesWithParent = true

// setAttributes makes the child receive a signal when the test binary ends, and gives it a process
// group.
func setAttributes(cmd *exec.Cmd, deathSignal os.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, deathSignal.(syscall.Signal)
}

func signalGroup(p *os.Process, signal os.Signal) error {
	err := syscall.Kill(-p.Pid, signal.(syscall.Signal))
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}
