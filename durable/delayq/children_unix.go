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

// killAll ends a command and all processes of its group.
func killAll(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// survivePipes makes a write to a pipe without a reader return an error. By default the signal
// SIGPIPE would end the program before it gives messages back. Commands are not affected.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// shell returns the arguments that run a line.
func shell(line string) []string { return []string{"sh", "-c", line} }
