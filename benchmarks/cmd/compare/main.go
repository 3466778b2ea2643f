// Command compare measures this library beside package time and the timers of other libraries, and writes
// the figures in the format of go test -bench:
//
//	go run ./benchmarks/cmd/compare -list
//	go run ./benchmarks/cmd/compare -quick
//	go run ./benchmarks/cmd/compare -impl std,wheel -workload ArmStop,Fill -pending 1k,1M -o compare.txt
//
// Each implementation runs each workload in a process of its own, which is ended when it takes too long.
// What failed or cannot be done stands in the output as a line with the reason. Runs take turns: all
// workloads once, then all a second time, so that a machine that is slow for a while is so for all.
//
// Ctrl-C ends it; what was measured until then is in the output. It exits with 1 if nothing could be
// measured or written, and with 2 for options it does not accept. A workload that fails on an
// implementation is a finding, not a failure.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
)

const (
	exitDone = iota
	exitFailed
	exitUsage
)

func main() { command.Main(compare) }

// compare is the program without its process: it returns the exit code.
func compare(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[1] == childCommand {
		return child(args[2:], stdout, stderr)
	}
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "compare: %v\nSee compare -help.\n", err)
		return exitUsage
	}
	if !ok { // the help was asked for and printed
		return exitDone
	}
	if cfg.list {
		list(stdout, cfg)
		return exitDone
	}
	if err := run(ctx, cfg, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "compare: %v\n", err)
		return exitFailed
	}
	return exitDone
}
