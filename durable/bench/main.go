// Command bench measures the durable queue against its targets: on Redis, with and without an
// append-only file, and in a directory. The same run measures hibiken/asynq on the same server, and
// River with SQLite on the same disk. The output is a table of the figures and their targets.
//
//	go -C durable/bench run .
//
// bench starts a private redis-server on a free loopback port. With -redis it uses another server
// instead, and deletes all data of that server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Args, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the sizes of the workloads.
type settings struct {
	redis    string
	messages int
	seconds  int
	reopen   int // messages in the reopened directory
	skip     map[string]bool
	progress io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := settings{skip: make(map[string]bool), progress: stderr}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.redis, "redis", "", "use the server at this `address`, and delete all its data; by default start one")
	f.IntVar(&s.messages, "messages", 200_000, "messages of each throughput measurement, 1,000 to 10,000,000")
	f.IntVar(&s.seconds, "seconds", 10, "seconds of each measurement of lateness and of an idle consumer, 1 to 600")
	f.IntVar(&s.reopen, "reopen", 1_000_000, "messages in the reopened directory, 1,000 to 10,000,000")
	f.Func("skip", "`parts` to leave out, separated by commas: redis, aof, asynq, directory, river", func(parts string) error {
		for part := range strings.SplitSeq(parts, ",") {
			s.skip[part] = true
		}
		return nil
	})
	if err := f.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the program takes only options", f.Arg(0))
	}
	if err := s.check(); err != nil {
		return err
	}
	return measure(ctx, s, stdout)
}

func (s *settings) check() error {
	switch {
	case s.messages < 1000 || s.messages > 10_000_000:
		return fmt.Errorf("-messages is %d; it must be from 1,000 to 10,000,000", s.messages)
	case s.seconds < 1 || s.seconds > 600:
		return fmt.Errorf("-seconds is %d; it must be from 1 to 600", s.seconds)
	case s.reopen < 1000 || s.reopen > 10_000_000:
		return fmt.Errorf("-reopen is %d; it must be from 1,000 to 10,000,000", s.reopen)
	}
	for part := range s.skip {
		if !slices.Contains([]string{"redis", "aof", "asynq", "directory", "river"}, part) {
			return fmt.Errorf("-skip is %q; it must be redis, aof, asynq, directory or river", part)
		}
	}
	return nil
}

// row is a figure with its target.
type row struct {
	name, target, figure, verdict string
}

type results struct {
	rows     []row
	progress io.Writer
}

// add records a figure that must be at least its target, or at most if most is true.
func (r *results) add(name string, figure, target float64, most bool, format func(float64) string) {
	sign, ok := "≥ ", figure >= target
	if most {
		sign, ok = "≤ ", figure <= target
	}
	verdict := "reached"
	if !ok {
		verdict = "NOT reached"
	}
	r.put(row{name, sign + format(target), format(figure), verdict})
}

func (r *results) note(name, figure string) { r.put(row{name, "–", figure, ""}) }

func (r *results) put(w row) {
	r.rows = append(r.rows, w)
	fmt.Fprintf(r.progress, "%-60s %14s %s\n", w.name, w.figure, w.verdict)
}

func (r *results) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\ttarget\tmeasured\tverdict")
	for _, w := range r.rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", w.name, w.target, w.figure, w.verdict)
	}
	return t.Flush()
}

func perSecond(f float64) string { return fmt.Sprintf("%.1fk/s", f/1000) }
func millis(f float64) string    { return fmt.Sprintf("%.2f ms", f) }
func plain(f float64) string     { return fmt.Sprintf("%.4g", f) }
func bytesOf(f float64) string   { return fmt.Sprintf("%.0f B", f) }

// measure runs all parts that are not skipped, and prints the table.
func measure(ctx context.Context, s settings, stdout io.Writer) error {
	r := &results{progress: s.progress}
	for _, part := range []struct {
		name string
		run  func(context.Context, settings, *results) error
	}{{"redis", redisPart}, {"aof", aofPart}, {"directory", directoryPart}} {
		if s.skip[part.name] {
			continue
		}
		if err := part.run(ctx, s, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	fmt.Fprintf(stdout, "%s/%s, %d processors, %s, commit %s, %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), commit(), time.Now().Format(time.DateOnly))
	return r.write(stdout)
}

// commit returns the commit of the working directory.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
