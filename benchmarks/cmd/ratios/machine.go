package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// thisMachine describes what a published figure has to name: processor, cores, system, Go version and
// commit. Go reports the processor's name with the results; the rest is asked here, where the same
// toolchain runs in the same checkout.
func thisMachine(cpu string) string {
	if cpu == "" {
		cpu = "unnamed processor"
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, %s",
		cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), commit())
}

// commit names the checkout's commit, with a mark if there are uncommitted changes.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*").Output()
	if err != nil {
		return "unknown commit"
	}
	return "commit " + strings.TrimSpace(string(out))
}
