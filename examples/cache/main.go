// Cache is a cache each of whose values has its own time to live, kept by the timing wheel, and the
// workers that try it out.
//
// Each worker has keys of its own, and so knows what it must find: the last value that it set,
// until its time is over, and nothing from then on. At the end everything has expired, each value
// has ended in exactly one way, none before its time, and the memory has been given back. The
// program exits with 1 where that is not so.
//
//	go run ./examples/cache
//	go run ./examples/cache -keys 5000000 -size 4000000 -ttl 10s -duration 30s
//
// Read cache.go for the cache, which is made to be copied, and load.go for what counts as right. If
// no bound on the number of values is needed, Map of package keyed does the same.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

// config is what one run is asked to do.
type config struct {
	workers  int
	keys     int // in all
	size     int // of the cache
	ttl      time.Duration
	duration time.Duration
	seed     uint64

	patience time.Duration // how long to wait for what should have expired already
}

func defaults() config {
	return config{workers: 8, keys: 100_000, size: 20_000, ttl: time.Second, duration: 2 * time.Second, seed: 1, patience: 20 * time.Second}
}

func main() { program.Main(cache) }

// cache is the program without its process: it returns the exit code.
func cache(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "cache",
		Usage: "a cache with a time to live for each value, kept by the timing wheel",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("workers", &cfg.workers, 1, 10_000, "let `n` workers use the cache at the same time"),
		option.Count("keys", &cfg.keys, 1, 100_000_000, "use `n` keys"),
		option.Count("size", &cfg.size, 1, 100_000_000, "hold `n` values at most"),
		option.Duration("ttl", &cfg.ttl, 10*time.Millisecond, time.Hour, "let values live for this `time` at most"),
		option.Duration("duration", &cfg.duration, 10*time.Millisecond, 24*time.Hour, "work for this `time`"),
		option.Seed(&cfg.seed, "draw what is done from the seed `n`"),
	}
}

// validate checks what no option can know alone.
func (cfg *config) validate() error {
	if cfg.keys < cfg.workers {
		return fmt.Errorf("-keys %d for -workers %d: must be at least one for each", cfg.keys, cfg.workers)
	}
	return nil
}
