// Retries tries jobs again and again, with exponential backoff, jitter, a cap and a budget. The
// jobs wait on the timing wheel, and so cost no goroutine while they do.
//
// The server that they call is flaky: some calls fail, some hang, some are refused for good, and
// for a while it is down altogether. Some of the callers lose patience, or have a deadline. Each
// job must end exactly once, and as the server has seen it. All of it is done twice: without a
// budget, and with one, which keeps the retries from burdening the server while it is down. The
// program exits with 1 if something was wrong.
//
//	go run ./examples/retries
//	go run ./examples/retries -jobs 200000 -arrive 10s -down 3s
//
// Read retrier.go and backoff.go, which are made to be copied. For a few things that are tried
// again, without a budget or contexts, package plan is enough:
// plan.Limit(plan.Jitter(plan.Backoff(first, max), first), n) is a Scheduler for ScheduleRun, whose
// function calls Run.Stop when it has succeeded.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

// config is what one run is asked to do.
type config struct {
	jobs   int
	arrive time.Duration // jobs arrive during this time
	down   time.Duration // the server is down for so long, in the middle of it
	flaky  float64       // percent of the calls that fail
	policy Policy
	seed   uint64

	size   int // of the budget
	refill float64
}

func defaults() config {
	return config{
		jobs:   10_000,
		arrive: 1500 * time.Millisecond,
		down:   400 * time.Millisecond,
		flaky:  5,
		policy: Policy{Base: 20 * time.Millisecond, Cap: 400 * time.Millisecond, Attempts: 8},
		seed:   1,
		size:   100,
		refill: 0.1,
	}
}

func main() { program.Main(retries) }

// retries is the program without its process: it returns the exit code.
func retries(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "retries",
		Usage: "jobs that are tried again with exponential backoff, on the timing wheel",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("jobs", &cfg.jobs, 1, 10_000_000, "do `n` jobs"),
		option.Duration("arrive", &cfg.arrive, time.Millisecond, time.Hour, "let the jobs arrive during this `time`"),
		option.Duration("down", &cfg.down, 0, time.Hour, "let the server be down for this `time` in the middle of that"),
		option.Percent("flaky", &cfg.flaky, "let this `percent` of the calls fail at other times"),
		option.Count("attempts", &cfg.policy.Attempts, 1, 100, "try `n` times at most"),
		option.Duration("base", &cfg.policy.Base, time.Millisecond, time.Minute, "wait for this `time` at most before the second attempt"),
		option.Duration("cap", &cfg.policy.Cap, time.Millisecond, time.Hour, "wait for this `time` at most before any"),
		option.Seed(&cfg.seed, "draw what happens from the seed `n`"),
	}
}

// validate checks what no option can know alone.
func (cfg *config) validate() error {
	if cfg.down > cfg.arrive {
		return fmt.Errorf("-down %v: must be at most -arrive, which is %v", cfg.down, cfg.arrive)
	}
	if cfg.policy.Cap < cfg.policy.Base {
		return fmt.Errorf("-cap %v: must be at least -base, which is %v", cfg.policy.Cap, cfg.policy.Base)
	}
	return nil
}

func newRand(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
