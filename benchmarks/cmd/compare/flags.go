package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
	"github.com/urfave/cli/v3"
)

// config holds the options of a comparison.
type config struct {
	quick     bool
	list      bool
	subjects  []string
	workloads []string
	pending   []int // nil: the sizes of each workload
	procs     []int
	count     int
	time      time.Duration // an operation is repeated for this time
	limit     time.Duration // of one process
	output    string
	command   string // the command line without -o
}

// grace returns the time without any callback after which due timers count as not run.
func (c config) grace() time.Duration { return min(c.limit/3, 5*time.Second) }

// maxPending timers take some 20 GB, at 200 bytes each.
const maxPending = 100_000_000

// parse parses the command line. args[0] is the name of the program. parse returns false if it has
// only printed the help text.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = config{procs: processors(runtime.NumCPU()), subjects: subjectNames(), workloads: workloadNames(), output: "compare.txt"}
	flags := options(&cfg)
	const usage = "compare this library with package time and with the timers of other libraries"
	text := "go -C benchmarks run ./cmd/compare [options]   (one dash or two)"
	err = command.New("compare", usage, text, flags, help, func(cmd *cli.Command) error {
		ok = true
		cfg.command = commandLine(cmd, flags)
		return command.NoArguments(cmd)
	}).Run(context.Background(), args)
	cfg.setDefaults()
	return cfg, ok && err == nil, err
}

// setDefaults sets the defaults that depend on -quick.
func (c *config) setDefaults() {
	set := func(to *time.Duration, quick, full time.Duration) {
		switch {
		case *to == 0 && c.quick:
			*to = quick
		case *to == 0:
			*to = full
		}
	}
	set(&c.time, 100*time.Millisecond, 300*time.Millisecond)
	set(&c.limit, 10*time.Second, 30*time.Second)
	switch {
	case c.count == 0 && c.quick:
		c.count = 1
	case c.count == 0:
		c.count = 6
	}
}

func options(c *config) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "quick", Usage: "small sizes, one run, short limits: about eight minutes", Destination: &c.quick},
		&cli.BoolFlag{Name: "list", Usage: "print the implementations and workloads and exit", Destination: &c.list},
		option("impl", "measure only these implementations, a comma-separated list of `names`", &c.subjects, listOf(oneOf(subjectNames()))),
		option("workload", "run only these workloads, a comma-separated list of `names`", &c.workloads, listOf(oneOf(workloadNames()))),
		option("pending", "comma-separated `numbers` of pending timers, such as 1k,1M; the default depends on the workload", &c.pending,
			listOf(count(1, maxPending))),
		option("procs", "comma-separated `numbers` of processors for the operations", &c.procs,
			listOf(within(1, runtime.NumCPU()))),
		option("count", "run everything `n` times; default 6, with -quick 1", &c.count, within(1, 100)),
		option("time", "repeat an operation for this `duration`; default 300ms, with -quick 100ms", &c.time, between(time.Millisecond, time.Minute)),
		option("limit", "kill a process after this `duration`; default 30s, with -quick 10s", &c.limit, between(100*time.Millisecond, time.Hour)),
		&cli.StringFlag{Name: "o", Usage: "write the figures to this `file`; - is standard output", Value: c.output, Destination: &c.output,
			Validator: func(s string) error {
				if s == "" {
					return errors.New("-o must name a file")
				}
				return nil
			}},
	}
}

// commandLine returns the command line without options that do not affect the figures.
func commandLine(cmd *cli.Command, flags []cli.Flag) string {
	words := []string{"go -C benchmarks run ./cmd/compare"}
	for _, f := range flags {
		name := f.Names()[0]
		switch {
		case !f.IsSet() || name == "o" || name == "list":
		case name == "quick":
			words = append(words, "-quick")
		default:
			words = append(words, "-"+name, fmt.Sprint(cmd.Value(name)))
		}
	}
	return strings.Join(words, " ")
}

// processors returns the default numbers of processors: powers of two, and all of them.
func processors(all int) []int {
	var procs []int
	for n := 1; n < all; n *= 2 {
		procs = append(procs, n)
	}
	return append(procs, all)
}

func subjectNames() (names []string) {
	for _, s := range workload.Subjects {
		names = append(names, s.Name)
	}
	return names
}

func workloadNames() (names []string) {
	for _, w := range workload.All {
		names = append(names, w.Name)
	}
	return names
}

// parser parses a value. Its error says what is accepted.
type parser[T any] func(string) (T, error)

func option[T any](name, usage string, to *T, p parser[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: &parsed[T]{to: to, parse: p}, HideDefault: true}
}

// parsed is a flag's value.
type parsed[T any] struct {
	to    *T
	parse parser[T]
	text  string
}

func (v *parsed[T]) Set(s string) error {
	x, err := v.parse(s)
	if err != nil {
		return err
	}
	*v.to, v.text = x, s
	return nil
}

func (v *parsed[T]) Get() any       { return v.text }
func (v *parsed[T]) String() string { return v.text }

func listOf[T comparable](one parser[T]) parser[[]T] {
	return func(s string) (all []T, err error) {
		for part := range strings.SplitSeq(s, ",") {
			x, err := one(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			if !slices.Contains(all, x) {
				all = append(all, x)
			}
		}
		return all, nil
	}
}

func oneOf(names []string) parser[string] {
	return func(s string) (string, error) {
		for _, name := range names {
			if strings.EqualFold(name, s) {
				return name, nil
			}
		}
		return "", fmt.Errorf("%q; it must be one of %s", s, strings.Join(names, ", "))
	}
}

func within(least, most int) parser[int] {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q; it must be a whole number from %d to %d", s, least, most)
		}
		return n, nil
	}
}

func count(least, most int) parser[int] {
	return func(s string) (int, error) {
		n, err := results.ParseCount(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q; it must be a number from %s to %s, such as 500, 10k or 1M",
				s, results.FormatCount(least), results.FormatCount(most))
		}
		return n, nil
	}
}

func between(least, most time.Duration) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("%q; it must be a duration from %v to %v", s, least, most)
		}
		return d, nil
	}
}
