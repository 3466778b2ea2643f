package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/urfave/cli/v3"
)

// config is what one run is asked to do.
type config struct {
	conns                  int
	timeout                time.Duration // a connection idle for so long is cut
	bound                  time.Duration // how much later than that is still right
	duration               time.Duration // from the moment that all are connected
	impl                   string
	compare                bool    // run all implementations, not impl
	silent, closing, crash float64 // percent of the connections
	seed                   uint64  // 0: one from the clock

	patience time.Duration         // how long to wait for what should have happened already
	newImpl  func() implementation // nil: what impl says; tests put broken ones here
	cutAfter time.Duration         // 0: timeout; tests make the server disagree with its clients
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

// parse reads the command line; args[0] is the program's name. It returns false if there is nothing
// to run since the help was asked for, and printed.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = defaults()
	flags := options(&cfg)
	ok, err = option.Command{
		Name:  "heartbeat",
		Usage: "a TCP server whose idle timeouts are kept by the timing wheel, and its clients",
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
		option.New("conns", "connect `n` clients", option.Within(&cfg.conns, strconv.Atoi, 1, maxConns, "a whole number")),
		option.New("timeout", "cut a connection that is idle for this `time`",
			option.Within(&cfg.timeout, time.ParseDuration, 100*time.Millisecond, time.Hour, "a time")),
		option.New("bound", "accept a cut that comes later by this `time`",
			option.Within(&cfg.bound, time.ParseDuration, 10*time.Millisecond, time.Minute, "a time")),
		option.New("duration", "run for this `time` once all are connected",
			option.Within(&cfg.duration, time.ParseDuration, 200*time.Millisecond, 24*time.Hour, "a time")),
		option.New("impl", "keep the timeouts with this `implementation`: timers of the wheel or of package time (std), "+
			"or read deadlines of package wheelnet or of package net", option.OneOf(&cfg.impl, implementations...)),
		&cli.BoolFlag{Name: "compare", Destination: &cfg.compare, HideDefault: true, Usage: "run all implementations in turn, with the " +
			"same clients, and print processor time and memory of each beside a server without timeouts; clients and server share " +
			"the process, so only the differences count"},
		option.Percent("silent", &cfg.silent, "let this `percent` of the connections go silent without closing"),
		option.Percent("close", &cfg.closing, "let this `percent` close early"),
		option.Percent("crash", &cfg.crash, "let this `percent` crash, their connection being reset"),
		option.Seed(&cfg.seed, "draw who does what and when from the seed `n`, 0 for another one each time"),
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
