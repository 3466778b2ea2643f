// Cache is a cache with a time to live for each value, on the timing wheel, and workers that use
// it.
//
// Each worker has its own keys, so it knows what it must find: the last value that it set, until
// the value expires, and nothing from then on. At the end all values have expired, each has ended
// in exactly one way, none early, and the memory has been freed. Otherwise the exit code is 1.
//
//	go run ./examples/cache
//	go run ./examples/cache -keys 5000000 -size 4000000 -ttl 10s -duration 30s
//
// Read cache.go for the cache, which is meant to be copied, and load.go for the checks. If the
// number of values needs no bound, use Map of package keyed.
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

// config holds the options of one run.
type config struct {
	workers  int
	keys     int // of all workers
	size     int // of the cache
	ttl      time.Duration
	duration time.Duration
	seed     uint64

	maxWait time.Duration // for values that should have expired
}

func defaults() config {
	return config{workers: 8, keys: 100_000, size: 20_000, ttl: time.Second, duration: 2 * time.Second, seed: 1, maxWait: 20 * time.Second}
}

func main() { program.Main(cache) }

// cache runs the program and returns its exit code.
func cache(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "cache",
		Usage: "a cache with a time to live for each value, on the timing wheel",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("workers", &cfg.workers, 1, 10_000, "`number` of concurrent workers"),
		option.Count("keys", &cfg.keys, 1, 100_000_000, "`number` of keys"),
		option.Count("size", &cfg.size, 1, 100_000_000, "largest `number` of values in the cache"),
		option.Duration("ttl", &cfg.ttl, 10*time.Millisecond, time.Hour, "longest `time` to live"),
		option.Duration("duration", &cfg.duration, 10*time.Millisecond, 24*time.Hour, "run the workers for this `time`"),
		option.Seed(&cfg.seed, "random `seed` of the operations"),
	}
}

// validate checks constraints between options.
func (cfg *config) validate() error {
	if cfg.keys < cfg.workers {
		return fmt.Errorf("-keys is %d; it must be at least -workers, which is %d", cfg.keys, cfg.workers)
	}
	return nil
}
