package main

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/machine"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
	"golang.org/x/perf/benchfmt"
)

// circumstances are the configuration lines of the output: what a figure has to name.
func circumstances(cfg config, now time.Time) []benchfmt.Config {
	var lines []benchfmt.Config
	add := func(key, value string) {
		if value != "" {
			lines = append(lines, benchfmt.Config{Key: key, Value: []byte(value), File: true})
		}
	}
	add("goos", runtime.GOOS)
	add("goarch", runtime.GOARCH)
	add("pkg", "github.com/timingwheel-go/timingwheel/benchmarks")
	add("cpu", cpuid.CPU.BrandName)
	add("cores", strconv.Itoa(runtime.NumCPU()))
	add("go", runtime.Version())
	add("commit", machine.Commit())
	add("date", now.UTC().Format(time.DateOnly))
	add("command", cfg.command)
	add("count", strconv.Itoa(cfg.count))
	versions := moduleVersions()
	for _, name := range cfg.subjects {
		if s, _ := workload.FindSubject(name); s.Module != "" {
			add("module-"+s.Name, s.Module+" "+versions[s.Module])
		}
	}
	return lines
}

// moduleVersions are those with which this program was built.
func moduleVersions() map[string]string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	return versions
}
