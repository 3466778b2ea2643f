// Package load has what the commands that measure the durable queue share: flags, a table of
// figures, loads, and the queue River.
package load

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

// Main runs a command, which Ctrl-C interrupts.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Args, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// Bench has the settings and the figures of a command.
type Bench struct {
	Flags    *flag.FlagSet
	Server   string // empty means a private one
	Messages int
	Seconds  int
	Pending  int
	Skip     map[string]bool
	rows     []row
	progress io.Writer
}

// New returns a Bench with the flags that all commands have. messages is the default of -messages,
// and -skip accepts parts.
func New(stderr io.Writer, messages int, parts ...string) *Bench {
	b := &Bench{Flags: flag.NewFlagSet("bench", flag.ContinueOnError), Skip: make(map[string]bool), progress: stderr}
	b.Flags.SetOutput(stderr)
	b.Flags.IntVar(&b.Messages, "messages", messages, "messages of each throughput measurement, 1,000 to 10,000,000")
	b.Flags.IntVar(&b.Seconds, "seconds", 10, "seconds of each measurement of lateness, commits or an idle consumer, 1 to 600")
	b.Flags.IntVar(&b.Pending, "pending", 1_000_000, "messages of a large queue, 1,000 to 10,000,000")
	b.Flags.Func("skip", "`parts` to leave out, separated by commas: "+strings.Join(parts, ", "), func(list string) error {
		for part := range strings.SplitSeq(list, ",") {
			if !slices.Contains(parts, part) {
				return fmt.Errorf("%q is not a part", part)
			}
			b.Skip[part] = true
		}
		return nil
	})
	return b
}

// Parse parses the arguments of a command, whose name is the first.
func (b *Bench) Parse(args []string) error {
	if err := b.Flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case b.Flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; the program takes only options", b.Flags.Arg(0))
	case b.Messages < 1000 || b.Messages > 10_000_000:
		return fmt.Errorf("-messages is %d; it must be from 1,000 to 10,000,000", b.Messages)
	case b.Seconds < 1 || b.Seconds > 600:
		return fmt.Errorf("-seconds is %d; it must be from 1 to 600", b.Seconds)
	case b.Pending < 1000 || b.Pending > 10_000_000:
		return fmt.Errorf("-pending is %d; it must be from 1,000 to 10,000,000", b.Pending)
	}
	return nil
}

// row is a figure with its target.
type row struct{ name, target, figure, verdict string }

// NoTarget is the target of a figure without one.
const NoTarget = -1

// Add records a figure that must be at least its target, or at most if most is true.
func (b *Bench) Add(name string, figure, target float64, most bool, format func(float64) string) {
	sign, ok := "≥ ", figure >= target
	if most {
		sign, ok = "≤ ", figure <= target
	}
	switch {
	case target == NoTarget:
		b.Note(name, format(figure))
	case ok:
		b.put(row{name, sign + format(target), format(figure), "reached"})
	default:
		b.put(row{name, sign + format(target), format(figure), "NOT reached"})
	}
}

// Note records a figure without a target.
func (b *Bench) Note(name, figure string) { b.put(row{name, "–", figure, ""}) }

func (b *Bench) put(w row) {
	b.rows = append(b.rows, w)
	fmt.Fprintf(b.progress, "%-60s %14s %s\n", w.name, w.figure, w.verdict)
}

// Write prints the table.
func (b *Bench) Write(out io.Writer) error {
	commit := "unknown"
	if hash, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(hash))
	}
	fmt.Fprintf(out, "%s/%s, %d processors, %s, commit %s, %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), commit, time.Now().Format(time.DateOnly))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\ttarget\tmeasured\tverdict")
	for _, w := range b.rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", w.name, w.target, w.figure, w.verdict)
	}
	return t.Flush()
}

// PerSecond formats a rate.
func PerSecond(f float64) string {
	if f < 1000 {
		return fmt.Sprintf("%.0f/s", f)
	}
	return fmt.Sprintf("%.1fk/s", f/1000)
}

// Millis formats milliseconds.
func Millis(f float64) string { return fmt.Sprintf("%.2f ms", f) }

// Plain formats a number without a unit.
func Plain(f float64) string { return fmt.Sprintf("%.4g", f) }
