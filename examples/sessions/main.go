// Sessions are those of a web server: they end when their user is idle for too long, or logs out,
// and after a fixed time in any case. Each has a limited rate of requests. One timer on the timing
// wheel for each of them does it, which every request moves.
//
// Users of several kinds try it out: some stay active, some go away, some log out, and some hammer.
// Each session must end in one way only, and that the right one; no request may succeed after the
// end, and none be refused before. The program exits with 1 where that is not so.
//
//	go run ./examples/sessions
//	go run ./examples/sessions -users 20000 -idle 2s -lifetime 10s
//
// Read store.go, which is made to be copied. That it can be tested without waiting is seen in
// store_test.go.
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
	users  int
	limits Limits
	seed   uint64

	patience time.Duration // how long to wait for sessions that should have ended already
}

func defaults() config {
	return config{
		users:    2_000,
		limits:   Limits{Idle: 400 * time.Millisecond, Lifetime: 2 * time.Second, Rate: 20, Burst: 10},
		seed:     1,
		patience: 20 * time.Second,
	}
}

func main() { program.Main(sessions) }

// sessions is the program without its process: it returns the exit code.
func sessions(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "sessions",
		Usage: "sessions with sliding expiry and a limited rate, on the timing wheel",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("users", &cfg.users, 1, 1_000_000, "let `n` users log in"),
		option.Duration("idle", &cfg.limits.Idle, 50*time.Millisecond, time.Hour, "end sessions that are idle for this `time`"),
		option.Duration("lifetime", &cfg.limits.Lifetime, 50*time.Millisecond, 24*time.Hour, "end all sessions after this `time`"),
		option.Count("burst", &cfg.limits.Burst, 1, 1_000_000, "accept `n` requests at once"),
		option.Seed(&cfg.seed, "draw what the users do from the seed `n`"),
	}
}

// validate checks what no option can know alone.
func (cfg *config) validate() error {
	if least := 3 * cfg.limits.Idle; cfg.limits.Lifetime < least {
		return fmt.Errorf("-lifetime %v: must be at least %v, three times -idle", cfg.limits.Lifetime, least)
	}
	// A user who is active sends a request in a sixth of the idle time; the rate must allow that.
	cfg.limits.Rate = max(cfg.limits.Rate, 12/limitOf(cfg.limits.Idle))
	return nil
}
