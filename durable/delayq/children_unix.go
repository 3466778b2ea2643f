//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// detach gives a command a process group of its own.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killAll ends a command with all that it has started in its group.
func killAll(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// survivePipes makes writing to a pipe that nobody reads an error, which would end the program before it could give
// messages back. Commands are not affected.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// shell is how a line is run.
func shell(line string) []string { return []string{"sh", "-c", line} }
