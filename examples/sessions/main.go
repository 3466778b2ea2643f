// Sessions is the session store of a web server. A session ends when its user is idle for too long
// or logs out, and after a fixed lifetime. Its rate of requests is limited. Each session has one
// timer on the timing wheel, which every request postpones.
//
// Simulated users check the store: some stay active, some leave, some log out, and some send too
// many requests. Each session must end exactly once and for the correct reason. No request may
// succeed after the end or be refused before it. Otherwise the exit code is 1.
//
//	go run ./examples/sessions
//	go run ./examples/sessions -users 20000 -idle 2s -lifetime 10s
//
// Read store.go for the store, which is meant to be copied, and store_test.go for tests without
// waiting.
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
	users  int
	limits Limits
	seed   uint64

	maxWait time.Duration // for sessions that should have ended
}

func defaults() config {
	return config{
		users:   2_000,
		limits:  Limits{Idle: 400 * time.Millisecond, Lifetime: 2 * time.Second, Rate: 20, Burst: 10},
		seed:    1,
		maxWait: 20 * time.Second,
	}
}

func main() { program.Main(sessions) }

// sessions runs the program and returns its exit code.
func sessions(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "sessions",
		Usage: "sessions with sliding expiry and a rate limit, on the timing wheel",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("users", &cfg.users, 1, 1_000_000, "`number` of users"),
		option.Duration("idle", &cfg.limits.Idle, 50*time.Millisecond, time.Hour, "idle `time` after which a session ends"),
		option.Duration("lifetime", &cfg.limits.Lifetime, 50*time.Millisecond, 24*time.Hour, "`time` after which every session ends"),
		option.Count("burst", &cfg.limits.Burst, 1, 1_000_000, "`number` of requests in a burst"),
		option.Seed(&cfg.seed, "random `seed` of the users"),
	}
}

// validate checks constraints between options.
func (cfg *config) validate() error {
	if least := 3 * cfg.limits.Idle; cfg.limits.Lifetime < least {
		return fmt.Errorf("-lifetime is %v; it must be at least %v, three times -idle", cfg.limits.Lifetime, least)
	}
	// An active user sends a request every sixth of the idle time. The rate must allow that.
	cfg.limits.Rate = max(cfg.limits.Rate, 12/inSeconds(cfg.limits.Idle))
	return nil
}
