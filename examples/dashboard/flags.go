package main

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
)

// config holds the options of one run.
type config struct {
	addr     string
	duration time.Duration // 0: until interrupted
	conns    int
	requests int // per second
	entries  int // initial entries of the cache
}

func defaults() config {
	return config{addr: "localhost:8080", conns: 20_000, requests: 2_000, entries: 200_000}
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "addr", Usage: "`address` of the page, a host and a port", Value: cfg.addr, Destination: &cfg.addr},
		option.New("for", "end after this `time`; 0: run until Ctrl-C",
			option.Within(&cfg.duration, time.ParseDuration, 0, 24*time.Hour, "a time")),
		option.New("conns", "`number` of connections", option.Within(&cfg.conns, strconv.Atoi, 1, 1_000_000, "a whole number")),
		option.New("requests", "`number` of requests per second", option.Within(&cfg.requests, strconv.Atoi, 1, 100_000, "a whole number")),
		option.New("entries", "`number` of initial entries of the cache", option.Within(&cfg.entries, strconv.Atoi, 1, 10_000_000, "a whole number")),
	}
}

func (cfg config) validate() error {
	if _, _, err := net.SplitHostPort(cfg.addr); err != nil {
		return fmt.Errorf("invalid value %q for flag -addr: it must be a host and a port, such as localhost:8080", cfg.addr)
	}
	return nil
}
