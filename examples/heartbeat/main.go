// Heartbeat is a TCP server that keeps an idle timeout for each of its connections on the timing
// wheel, together with the clients that try it out, all on the loopback interface.
//
// Every client sends a beat at random intervals of at most a quarter of the timeout. As time
// passes, some of the clients close, some crash (the connection is reset), and some go silent
// without closing, as a machine does that lost its network. The server must cut exactly the silent
// ones, each within its timeout plus a small bound, and never a live one. At the end the program
// compares what the server did with what the clients know and exits with 1 if the server was wrong,
// and with 2 for options it does not accept.
//
//	go run ./examples/heartbeat
//	go run ./examples/heartbeat -conns 2000 -timeout 1s -duration 8s -impl std
//
// Read guard.go for the use of the library, server.go for how a connection is cut without a race
// against its last beat, and check.go for what counts as right.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

const (
	exitRight = iota
	exitWrong
	exitUsage
)

func main() { program.Main(heartbeat) }

// heartbeat is the program without its process: it returns the exit code.
func heartbeat(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\nSee heartbeat -help.\n", err)
		return exitUsage
	}
	if !ok { // The help was asked for and printed.
		return exitRight
	}
	if err := fitFiles(&cfg, stdout); err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\n", err)
		return exitWrong
	}
	out, err := run(ctx, cfg, newDisplay(stdout))
	if err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\n", err)
		return exitWrong
	}
	out.print(stdout)
	if len(out.verdict.faults) > 0 {
		return exitWrong
	}
	return exitRight
}
