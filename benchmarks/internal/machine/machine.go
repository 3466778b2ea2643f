// Package machine says on what a figure was measured.
package machine

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// Describe names what a published figure has to name: processor, cores, system, Go version and commit. Go
// reports the processor's name with the results; the rest is asked here, where the same toolchain runs in
// the same checkout.
func Describe(cpu string) string {
	if cpu == "" {
		cpu = "unnamed processor"
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, %s",
		cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), commitWords())
}

func commitWords() string {
	if c := Commit(); c != "" {
		return "commit " + c
	}
	return "unknown commit"
}

// Commit names the checkout's commit, with a mark if there are uncommitted changes, or is empty.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
