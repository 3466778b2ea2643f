//go:build !unix

package main

import "os/exec"

func detach(*exec.Cmd) {}

func killAll(cmd *exec.Cmd) error { return cmd.Process.Kill() }

func survivePipes() {}

func shell(line string) []string { return []string{"cmd", "/C", line} }
