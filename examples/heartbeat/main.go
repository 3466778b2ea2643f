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
//	go run ./examples/heartbeat -compare
//
// The option -impl chooses how the server keeps its timeouts: a FuncTimer of the wheel for each
// connection (wheel), read deadlines of package wheelnet (wheelnet), a timer of package time for
// each connection (std), or read deadlines of package net (net).
//
// With -compare the program runs all four in turn with the same clients, and prints processor time,
// memory and verdict of each. The first run and the last one have no timeouts. The exit code is 1
// if any run was wrong. Ctrl-C ends the comparison and prints what was measured until then. When
// you read the table, note:
//
//   - The clients and the server share the process, so only the differences count.
//   - To postpone a timeout costs far less processor time than to send and read the beat. The
//     difference between the two runs without timeouts shows the noise. A difference that is
//     smaller says nothing.
//   - The memory is the heap once all are connected, for each connection. With few connections the
//     wheel itself is most of what it costs. The last run includes what the runtime keeps of the
//     runs before.
//
// Read guard.go for the use of the wheel, deadline.go for that of package wheelnet, server.go for
// how a connection is cut without a race against its last beat, and check.go for what counts as
// right.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

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
	if cfg.seed == 0 {
		cfg.seed = uint64(time.Now().UnixNano())
	}
	play := runOnce
	if cfg.compare {
		play = compare
	}
	right, err := play(ctx, cfg, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\n", err)
	}
	if err != nil || !right {
		return exitWrong
	}
	return exitRight
}

// runOnce runs one implementation and prints its report.
func runOnce(ctx context.Context, cfg config, w io.Writer) (right bool, err error) {
	out, err := run(ctx, cfg, newDisplay(w))
	if err != nil {
		return false, err
	}
	out.print(w)
	return out.right(), nil
}
