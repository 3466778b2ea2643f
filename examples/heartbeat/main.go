// Heartbeat is a TCP server that keeps an idle timeout for each of its connections on a timing
// wheel, and the clients that test it, all over loopback in one process.
//
// Each client sends a heartbeat at random intervals of at most a quarter of the timeout. During the
// run some clients close their connection, some reset it as if they had crashed, and some go silent
// without closing, as if their machine had lost its network. The server must cut each silent
// connection within a bound after its timeout, and no other connection. At the end the program
// compares what the server did with what the clients recorded. The exit code is 0 if the server was
// right, 1 if it was wrong, and 2 if an option is not accepted.
//
//	go run ./examples/heartbeat
//	go run ./examples/heartbeat -conns 2000 -timeout 1s -duration 8s -impl std
//	go run ./examples/heartbeat -compare
//
// Option -impl chooses how the server keeps the timeouts:
//
//	wheel     a FuncTimer of the wheel for each connection
//	wheelnet  read deadlines of package wheelnet
//	std       a timer of package time for each connection
//	net       read deadlines of package net
//
// With -compare the program runs all four in turn with the same clients, and prints CPU time,
// memory and verdict of each. The first run and the last run have no timeouts. The exit code is 1
// if any run was wrong. Ctrl-C ends the comparison and prints the runs until then. When you read
// the table, note:
//
//   - The clients and the server share the process, so only the differences between runs count.
//   - Postponing a timeout costs far less CPU time than sending and reading a heartbeat. The
//     difference between the two runs without timeouts is noise, and so is any smaller difference.
//   - The memory is the heap for each connection, after all clients have connected. With few
//     connections, most of the difference is the wheel itself. The last run includes what the
//     runtime retains from the runs before.
//
// timeouts.go has the four implementations. server.go shows how a connection is cut without a race
// against its last beat. check.go defines which runs are right.
package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
	"github.com/urfave/cli/v3"
)

const (
	exitRight = iota
	exitWrong
	exitUsage
)

func main() { program.Main(heartbeat) }

// heartbeat is the program. It returns the exit code.
func heartbeat(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\nSee heartbeat -help.\n", err)
		return exitUsage
	}
	if !ok { // the help was printed
		return exitRight
	}
	if err := fitFileLimit(&cfg, stdout); err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\n", err)
		return exitWrong
	}
	if cfg.seed == 0 {
		cfg.seed = uint64(time.Now().UnixNano())
	}
	start := runOne
	if cfg.compare {
		start = compare
	}
	right, err := start(ctx, cfg, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "heartbeat: %v\n", err)
	}
	if err != nil || !right {
		return exitWrong
	}
	return exitRight
}

// runOne runs one implementation and prints its report.
func runOne(ctx context.Context, cfg config, w io.Writer) (right bool, err error) {
	printSettings(w, cfg)
	res, err := run(ctx, cfg, newDisplay(w))
	if err != nil {
		return false, err
	}
	res.print(w)
	return res.right(), nil
}

// config is the configuration of a run.
type config struct {
	conns                  int
	timeout                time.Duration // the server cuts a connection that is idle for so long
	bound                  time.Duration // by which a cut may be late
	duration               time.Duration // from the time at which all clients are connected
	impl                   string
	compare                bool    // run all implementations instead of impl
	silent, closing, crash float64 // percent of the connections
	seed                   uint64  // 0 means a seed from the clock

	patience time.Duration         // how long to wait for events that are overdue
	newImpl  func() implementation // nil means impl; tests set broken implementations
	cutAfter time.Duration         // the server's timeout if a test sets it apart from timeout
}

// maxConns is the limit of conns. The clients connect from one address, and Linux has 28,232
// ephemeral ports for one address by default.
const maxConns = 25_000

func defaults() config {
	return config{
		conns:    5_000,
		timeout:  3 * time.Second,
		bound:    250 * time.Millisecond,
		duration: 15 * time.Second,
		impl:     "wheel",
		silent:   5,
		closing:  10,
		crash:    5,
		patience: 5 * time.Second,
	}
}

// parse parses the command line. args[0] is the name of the program. parse returns false without an
// error if it printed the help.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = defaults()
	flags := options(&cfg)
	ok, err = option.Command{
		Name:  "heartbeat",
		Usage: "a TCP server with idle timeouts on a timing wheel, and clients that check it",
		Flags: flags,
	}.Parse(args, help, func() error {
		implGiven := slices.ContainsFunc(flags, func(f cli.Flag) bool { return f.Names()[0] == "impl" && f.IsSet() })
		if cfg.compare && implGiven {
			return fmt.Errorf("-compare and -impl %q exclude each other: -compare runs all of %v", cfg.impl, implementations)
		}
		return cfg.validate()
	})
	return cfg, ok, err
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("conns", &cfg.conns, 1, maxConns, "connect `n` clients"),
		option.Duration("timeout", &cfg.timeout, 100*time.Millisecond, time.Hour, "cut a connection that is idle for this `time`"),
		option.Duration("bound", &cfg.bound, 10*time.Millisecond, time.Minute, "accept cuts that are late by up to this `time`"),
		option.Duration("duration", &cfg.duration, 200*time.Millisecond, 24*time.Hour, "run for this `time` after all clients are connected"),
		option.New("impl", "keep the timeouts with this `implementation`: timers of the wheel (wheel) or of package time (std), "+
			"read deadlines of package wheelnet (wheelnet) or of package net (net)", option.OneOf(&cfg.impl, implementations...)),
		&cli.BoolFlag{Name: "compare", Destination: &cfg.compare, HideDefault: true, Usage: "run all implementations in turn, and two " +
			"runs without timeouts, and print CPU time and memory of each"},
		option.Percent("silent", &cfg.silent, "let this `percent` of the clients go silent without closing"),
		option.Percent("close", &cfg.closing, "let this `percent` of the clients close their connection early"),
		option.Percent("crash", &cfg.crash, "let this `percent` of the clients reset their connection"),
		option.Seed(&cfg.seed, "`seed` of the random plans of the clients; 0 means a different seed each time"),
	}
}

// validate checks options that depend on each other.
func (cfg config) validate() error {
	if sum := cfg.silent + cfg.closing + cfg.crash; sum > 100 {
		return fmt.Errorf("-silent %v, -close %v and -crash %v add up to %v percent; the sum must be at most 100",
			cfg.silent, cfg.closing, cfg.crash, sum)
	}
	if least := 2*cfg.timeout + cfg.bound; cfg.duration < least {
		return fmt.Errorf("invalid value %q for flag -duration: it must be at least %v, which is twice -timeout (%v) plus -bound (%v), "+
			"so that silent connections can be cut within the run", cfg.duration, least, cfg.timeout, cfg.bound)
	}
	return nil
}

// fitFileLimit raises the limit of open files as far as the connections need it. If the limit stays
// too low, fitFileLimit reduces cfg.conns and prints a note.
func fitFileLimit(cfg *config, w io.Writer) error {
	need := filesFor(cfg.conns)
	got, err := raiseFileLimit(need)
	if err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if got >= need {
		return nil
	}
	conns := connsFor(got)
	if conns < 1 {
		return fmt.Errorf("the limit of open files is %d (ulimit -n), and one connection needs %d", got, filesFor(1))
	}
	fmt.Fprintf(w, "note: %s connections need %s open files, and the limit is %s (ulimit -n): running with %s connections\n",
		figures.Comma(cfg.conns), figures.Comma(int(need)), figures.Comma(int(got)), figures.Comma(conns))
	cfg.conns = conns
	return nil
}

// otherFiles is the number of files that are not connections: standard streams, the network poller,
// the listener, and a reserve.
const otherFiles = 32

// filesFor returns the number of files for conns connections. Each has a file of the server and a
// file of the client.
func filesFor(conns int) uint64 { return 2*uint64(conns) + otherFiles }

// connsFor is the inverse of filesFor. The result is at most maxConns.
func connsFor(files uint64) int {
	if files < otherFiles {
		return 0
	}
	return int(min((files-otherFiles)/2, maxConns))
}
