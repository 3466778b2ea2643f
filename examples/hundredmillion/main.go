// Hundredmillion keeps a hundred million timers pending on one timing wheel, in about 3.1 GiB, and
// checks that exactly the due ones expire.
//
// The program arms the timers, beats a random share (that postpones the deadline), stops another
// share, and lets a third share expire within a window of some seconds. The other timers are due an
// hour later. The kind of a timer and its deadline are functions of its number and the seed, so the
// program need not store them, and the final check does not depend on the wheel: each expired
// number sets a bit and updates a count and two checksums, and a second pass over all numbers must
// give the same result. The exit code is 1 if they differ, 2 for invalid options, and 130 after
// an interrupt.
//
//	go run ./examples/hundredmillion
//	go run ./examples/hundredmillion -n 1000000 -window 5s
//
// Read population.go for the use of the library, plan.go for the kinds of timers, recorder.go for
// the records of expired timers, and check.go for the final check.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report after Ctrl-C
)

func main() { program.Main(hundredmillion) }

// hundredmillion runs the program and returns its exit code.
func hundredmillion(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "hundredmillion: %v\nSee hundredmillion -help.\n", err)
		return exitUsage
	}
	if !ok { // printed the help text
		return exitOK
	}
	out, err := run(ctx, cfg, newDisplay(stdout))
	if err != nil {
		fmt.Fprintf(stderr, "hundredmillion: %v\n", err)
		return exitFailed
	}
	out.print(stdout)
	switch {
	case len(out.faults) > 0:
		return exitFailed
	case out.interrupted:
		return exitInterrupted
	}
	return exitOK
}
