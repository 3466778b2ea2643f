// Hundredmillion keeps a hundred million timers pending on one timing wheel, in less than 4 GiB,
// and checks that exactly the right ones expire.
//
// It arms them, beats a random share (their deadline is moved, as a sign of life does it), stops
// another, and lets a third one expire within a window of some seconds; the rest lies an hour
// ahead. What is to become of a timer, and its deadline, follow from its number and the seed alone.
// So nothing has to be remembered, and the check at the end does not ask the wheel: every number
// that expired has set its bit and entered a count and two checksums, which a second pass over all
// numbers must meet. The program exits with 1 if they disagree, with 2 for options it does not
// accept or memory that the machine does not have, and with 130 if it was interrupted.
//
//	go run ./examples/hundredmillion
//	go run ./examples/hundredmillion -n 1000000 -window 5s
//
// Read population.go for the use of the library, plan.go for what is to happen, tally.go for what
// is counted when a timer expires, and judge.go for what counts as right.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

const (
	exitRight       = 0
	exitWrong       = 1
	exitUsage       = 2
	exitInterrupted = 130 // what shells report of a program that Ctrl-C has ended
)

func main() { program.Main(hundredmillion) }

// hundredmillion is the program without its process: it returns the exit code.
func hundredmillion(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err == nil && ok {
		err = fitMemory(cfg, memorySources(), stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "hundredmillion: %v\nSee hundredmillion -help.\n", err)
		return exitUsage
	}
	if !ok { // The help was asked for and printed.
		return exitRight
	}
	out, err := run(ctx, cfg, newDisplay(stdout))
	if err != nil {
		fmt.Fprintf(stderr, "hundredmillion: %v\n", err)
		return exitWrong
	}
	out.print(stdout)
	switch {
	case len(out.faults) > 0:
		return exitWrong
	case out.interrupted:
		return exitInterrupted
	}
	return exitRight
}
