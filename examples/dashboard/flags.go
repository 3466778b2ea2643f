package main

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
)

// config is what one run is asked to do.
type config struct {
	addr     string
	duration time.Duration // 0: until it is interrupted
	conns    int
	requests int // in a second
	entries  int // of the cache, at the beginning
}

func defaults() config {
	return config{addr: "localhost:8080", conns: 20_000, requests: 2_000, entries: 200_000}
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "addr", Usage: "serve the page at this `address`, host and port", Value: cfg.addr, Destination: &cfg.addr},
		option.New("for", "end after this `time`, 0 for not before Ctrl-C",
			option.Within(&cfg.duration, time.ParseDuration, 0, 24*time.Hour, "a time")),
		option.New("conns", "keep `n` connections", option.Within(&cfg.conns, strconv.Atoi, 1, 1_000_000, "a whole number")),
		option.New("requests", "make `n` requests a second", option.Within(&cfg.requests, strconv.Atoi, 1, 100_000, "a whole number")),
		option.New("entries", "begin with `n` entries in the cache", option.Within(&cfg.entries, strconv.Atoi, 1, 10_000_000, "a whole number")),
	}
}

func (cfg config) validate() error {
	if _, _, err := net.SplitHostPort(cfg.addr); err != nil {
		return fmt.Errorf("invalid value %q for flag -addr: must be a host and a port, as in localhost:8080", cfg.addr)
	}
	return nil
}
