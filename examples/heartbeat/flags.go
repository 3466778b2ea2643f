package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"
)

// config is what one run is asked to do.
type config struct {
	conns                  int
	timeout                time.Duration // a connection idle for so long is cut
	bound                  time.Duration // how much later than that is still right
	duration               time.Duration // from the moment that all are connected
	impl                   string
	silent, closing, crash float64 // percent of the connections
	seed                   uint64  // 0: one from the clock

	patience time.Duration          // how long to wait for what should have happened already
	timers   func() (timers, error) // nil: what impl says; tests put broken ones here
	cutAfter time.Duration          // 0: timeout; tests make the server disagree with its clients
}

// Of a connection the server keeps one file, the client another, and both live in this process. The
// ephemeral ports of one loopback address end the range: Linux has 28,232 by default.
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

// parse reads the command line; args[0] is the program's name. It returns false if there is nothing to run
// since the help was asked for, and printed.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = defaults()
	cmd := &cli.Command{
		Name:            "heartbeat",
		Usage:           "a TCP server whose idle timeouts are kept by the timing wheel, and its clients",
		UsageText:       "go run ./examples/heartbeat [options]   (one dash or two)",
		Flags:           options(&cfg),
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          help,
		ErrWriter:       io.Discard, // errors are returned, and printed once
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		OnUsageError:    func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err },
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fmt.Errorf("unexpected argument %q: only options are accepted", cmd.Args().First())
			}
			ok = true
			return cfg.validate()
		},
	}
	err = cmd.Run(context.Background(), args)
	return cfg, ok && err == nil, err
}

func options(cfg *config) []cli.Flag {
	percent := func(name string, p *float64, usage string) cli.Flag {
		return option(name, usage, within(p, parseFloat, 0, 100, "a number"))
	}
	return []cli.Flag{
		option("conns", "connect `n` clients", within(&cfg.conns, strconv.Atoi, 1, maxConns, "a whole number")),
		option("timeout", "cut a connection that is idle for this `time`",
			within(&cfg.timeout, time.ParseDuration, 100*time.Millisecond, time.Hour, "a time")),
		option("bound", "accept a cut that comes later by this `time`",
			within(&cfg.bound, time.ParseDuration, 10*time.Millisecond, time.Minute, "a time")),
		option("duration", "run for this `time` once all are connected",
			within(&cfg.duration, time.ParseDuration, 200*time.Millisecond, 24*time.Hour, "a time")),
		option("impl", "use these `timers`, this library or time.AfterFunc", oneOf(&cfg.impl, "wheel", "std")),
		percent("silent", &cfg.silent, "let this `percent` of the connections go silent without closing"),
		percent("close", &cfg.closing, "let this `percent` close early"),
		percent("crash", &cfg.crash, "let this `percent` crash, their connection being reset"),
		option("seed", "draw who does what and when from the seed `n`, 0 for another one each time",
			within(&cfg.seed, parseUint, 0, 1<<64-1, "a whole number")),
	}
}

// validate checks what no option can know alone.
func (cfg config) validate() error {
	if sum := cfg.silent + cfg.closing + cfg.crash; sum > 100 {
		return fmt.Errorf("-silent %v, -close %v and -crash %v are %v percent together: must be at most 100",
			cfg.silent, cfg.closing, cfg.crash, sum)
	}
	if least := 2*cfg.timeout + cfg.bound; cfg.duration < least {
		return fmt.Errorf("invalid value %q for flag -duration: must be at least %v, twice -timeout (%v) and -bound (%v), "+
			"so that connections can go silent and be cut", cfg.duration, least, cfg.timeout, cfg.bound)
	}
	return nil
}

// option makes a flag whose help says what it accepts; the backquoted word in usage stands for its value.
func option[T any](name, usage string, v *checked[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// checked is a flag's value that says what it accepts.
type checked[T any] struct {
	to       *T
	parse    func(string) (T, error)
	accepts  func(T) bool
	accepted string
}

func (c *checked[T]) Set(s string) error {
	v, err := c.parse(s)
	if err != nil || !c.accepts(v) {
		return errors.New("must be " + c.accepted)
	}
	*c.to = v
	return nil
}

func (c *checked[T]) Get() any { return *c.to }

func (c *checked[T]) String() string {
	if c.to == nil {
		return ""
	}
	return fmt.Sprint(*c.to)
}

func within[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T, what string) *checked[T] {
	return &checked[T]{
		to:       to,
		parse:    parse,
		accepts:  func(v T) bool { return least <= v && v <= most }, // false for a NaN
		accepted: fmt.Sprintf("%s from %v to %v", what, least, most),
	}
}

func oneOf(to *string, names ...string) *checked[string] {
	return &checked[string]{
		to:       to,
		parse:    func(s string) (string, error) { return s, nil },
		accepts:  func(s string) bool { return slices.Contains(names, s) },
		accepted: fmt.Sprintf("one of %v", names),
	}
}

func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
func parseUint(s string) (uint64, error)   { return strconv.ParseUint(s, 10, 64) }
