// Command simulate plays a trace of connections with idle timeouts on the timing wheel, once for each choice of
// tick, slots, levels and shards, and prints a table of what each one costs: memory, moves between wheels,
// wake-ups and processor time.
//
//	go run ./benchmarks/cmd/simulate
//	go run ./benchmarks/cmd/simulate -conns 10000000 -markdown
//	go run ./benchmarks/cmd/simulate -choices 1ms/256/4,10ms/256/4/8
//
// Time is virtual (Manual mode), so figures other than processor time are the same on every machine. It exits with 1
// if a timer expired that should not have, or one did not that should, and with 2 for options that it does not
// accept. Ctrl-C ends it with what has been measured.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
)

const (
	exitRight = iota
	exitWrong
	exitUsage
)

func main() { command.Main(simulate) }

// simulate is the program without its process: it returns the exit code.
func simulate(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "simulate: %v\nSee simulate -help.\n", err)
		return exitUsage
	}
	if !ok { // The help was asked for and printed.
		return exitRight
	}
	out, err := run(ctx, cfg, newDisplay(stderr))
	if err != nil {
		fmt.Fprintf(stderr, "simulate: %v\n", err)
		return exitWrong
	}
	out.print(stdout, cfg)
	if out.faults > 0 {
		return exitWrong
	}
	return exitRight
}
