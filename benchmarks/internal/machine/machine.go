// Package machine describes the machine and the checkout of a measurement.
package machine

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// Describe returns the context of a published figure: processor, cores, system, Go version and
// commit. The name of the processor comes from the benchmark output. The rest is read here, so the
// caller must run on the same machine, with the same toolchain and in the same checkout as the
// benchmark.
func Describe(cpu string) string {
	if cpu == "" {
		cpu = "unknown processor"
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, %s",
		cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), commitText())
}

func commitText() string {
	if c := Commit(); c != "" {
		return "commit " + c
	}
	return "unknown commit"
}

// Commit returns the commit of the checkout, with the suffix -dirty if there are uncommitted
// changes. It returns "" if the commit is unknown.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
