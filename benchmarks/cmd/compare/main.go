// Command compare measures this library, package time and the timers of other libraries, and writes
// the figures in the format of go test -bench:
//
//	go -C benchmarks run ./cmd/compare -list
//	go -C benchmarks run ./cmd/compare -quick
//	go -C benchmarks run ./cmd/compare -impl std,wheel -workload Fill -pending 1k,1M -o compare.txt
//
// Each implementation runs each workload in its own process, which compare kills after a time
// limit. A workload that fails or cannot run is a line with the reason in the output. Runs take
// turns: all workloads once, then all of them again, so that a temporary load of the machine
// affects all implementations alike.
//
// Ctrl-C ends the comparison and keeps the results so far. The exit code is 1 if nothing was
// measured or the output could not be written, and 2 for invalid options. A workload that fails on
// an implementation is a result and does not change the exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
	"golang.org/x/perf/benchfmt"
)

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() { command.Main(compare) }

// compare runs the program and returns its exit code.
func compare(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[1] == workerCommand {
		return runWorker(args[2:], stdout, stderr)
	}
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "compare: %v\nSee compare -help.\n", err)
		return exitUsage
	}
	if !ok { // printed the help text
		return exitOK
	}
	if cfg.list {
		list(stdout, cfg)
		return exitOK
	}
	if err := run(ctx, cfg, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "compare: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// comparison is a running comparison.
type comparison struct {
	cfg      config
	out      io.Writer
	writer   *benchfmt.Writer
	config   []benchfmt.Config
	progress *progress
	history  *history
	written  int // results
}

var errNothing = errors.New("nothing was measured")

// run runs all jobs and writes the results to cfg.output.
func run(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	config := configLines(cfg, time.Now()) // before the output file makes the checkout dirty
	out := stdout
	if cfg.output != "-" {
		file, err := os.Create(cfg.output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	jobs := plan(cfg)
	c := &comparison{cfg: cfg, out: out, writer: benchfmt.NewWriter(out), config: config,
		progress: newProgress(stderr, len(jobs), cfg.count), history: newHistory()}
	err = c.runAll(ctx, jobs)
	interrupted := errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return err
	}
	c.progress.end(c.written, cfg.output, interrupted)
	if c.written == 0 {
		return errNothing
	}
	return nil
}

// runAll runs all jobs, cfg.count times in turn.
func (c *comparison) runAll(ctx context.Context, jobs []job) error {
	for turn := range c.cfg.count {
		for _, j := range jobs {
			c.progress.begin(turn)
			if err := c.runJob(ctx, turn, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// runJob runs a job, or writes why it does not. It writes each reason in one turn only.
func (c *comparison) runJob(ctx context.Context, turn int, j job) error {
	if why := j.missing(); why != "" {
		return c.skip(turn, j, why)
	}
	if _, failed := c.history.failed[j.name()]; failed {
		return nil
	}
	if why := c.history.skipReason(j); why != "" {
		c.history.failed[j.name()] = why
		return c.fail(j, why)
	}
	measured, err := measure(ctx, c.cfg, j)
	for _, r := range measured {
		r.Config = c.config
		if err := c.writer.Write(r); err != nil {
			return err
		}
		c.written++
		c.progress.result(r)
	}
	var f *failure
	if errors.As(err, &f) {
		c.history.record(j, f)
		return c.fail(j, f.Error())
	}
	return err
}

func (c *comparison) skip(turn int, j job, why string) error {
	if turn > 0 {
		return nil
	}
	c.progress.outcome(j, why)
	return results.WriteOutcome(c.out, j.name(), false, why)
}

func (c *comparison) fail(j job, why string) error {
	c.progress.outcome(j, why)
	return results.WriteOutcome(c.out, j.name(), true, why)
}

// configLines are the configuration lines of the output, the context of every figure.
func configLines(cfg config, now time.Time) []benchfmt.Config {
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
	add("commit", commit())
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

// commit returns the commit of the checkout, with the suffix -dirty if there are uncommitted
// changes, or "" if the commit is unknown.
func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*").Output()
	return strings.TrimSpace(string(out))
}

// moduleVersions returns the versions of the modules in this program.
func moduleVersions() map[string]string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	return versions
}
