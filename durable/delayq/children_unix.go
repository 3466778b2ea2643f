//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// setProcessGroup gives a command a process group of its own.
func setProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a command and all processes of its group.
func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// handleSIGPIPE makes a write to a pipe without a reader return an error. By default SIGPIPE would
// end the program before it releases its messages. Commands are not affected.
func handleSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// shell returns the arguments that run a line of the shell.
func shell(line string) []string { return []string{"sh", "-c", line} }
