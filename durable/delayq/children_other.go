//go:build !unix

package main

import "os/exec"

func setProcessGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

func handleSIGPIPE() {}

func shell(line string) []string { return []string{"cmd", "/C", line} }
