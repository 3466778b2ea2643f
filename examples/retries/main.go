// Retries retries jobs with exponential backoff, jitter, a cap and a budget. The jobs wait on the
// timing wheel, so a waiting job has no goroutine.
//
// The simulated server is unreliable: some calls fail, some hang, some are refused permanently, and
// for some time the server is down. Some callers have a deadline. Each job must end exactly once,
// and its result must match the records of the server. The program runs all jobs twice: without a
// budget, and with one, which limits the load of retries while the server is down. The exit code is
// 1 if a check fails.
//
//	go run ./examples/retries
//	go run ./examples/retries -jobs 200000 -arrive 10s -down 3s
//
// Read retrier.go and backoff.go, which are meant to be copied. For retries without a budget or
// contexts use package schedule: schedule.Limit(schedule.Jitter(schedule.Backoff(first, max),
// first), n) is a Scheduler for ScheduleRun, whose function calls Run.Stop after a success.
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

// config holds the options of one run.
type config struct {
	jobs   int
	arrive time.Duration // jobs arrive during this time
	down   time.Duration // the server is down for this time, in the middle of arrive
	flaky  float64       // percentage of calls that fail
	policy Policy
	seed   uint64

	size   int // size and refill of the budget
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

// retries runs the program and returns its exit code.
func retries(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "retries",
		Usage: "jobs with retries and exponential backoff, on the timing wheel",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("jobs", &cfg.jobs, 1, 10_000_000, "`number` of jobs"),
		option.Duration("arrive", &cfg.arrive, time.Millisecond, time.Hour, "`time` during which the jobs arrive"),
		option.Duration("down", &cfg.down, 0, time.Hour, "`time` for which the server is down, in the middle of -arrive"),
		option.Percent("flaky", &cfg.flaky, "`percentage` of calls that fail at other times"),
		option.Count("attempts", &cfg.policy.Attempts, 1, 100, "largest `number` of attempts"),
		option.Duration("base", &cfg.policy.Base, time.Millisecond, time.Minute, "longest `time` before the second attempt"),
		option.Duration("cap", &cfg.policy.Cap, time.Millisecond, time.Hour, "longest `time` before any attempt"),
		option.Seed(&cfg.seed, "random `seed` of the run"),
	}
}

// validate checks constraints between options.
func (cfg *config) validate() error {
	if cfg.down > cfg.arrive {
		return fmt.Errorf("-down is %v; it must be at most -arrive, which is %v", cfg.down, cfg.arrive)
	}
	if cfg.policy.Cap < cfg.policy.Base {
		return fmt.Errorf("-cap is %v; it must be at least -base, which is %v", cfg.policy.Cap, cfg.policy.Base)
	}
	return nil
}

func newRand(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
