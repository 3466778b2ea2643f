// Httpserver is an HTTP server whose request deadlines come from the timing wheel, and its clients,
// on the loopback interface.
//
// Some of the handlers are too slow on purpose: one waits for its context, one calls a second
// server with it that does not answer in time, and one is deaf and ignores it. All of these
// requests must be answered with a 503, none of them before the deadline, and each other one by its
// handler. The same is done once more with context.WithTimeout in the place of the wheel, and with
// http.TimeoutHandler. Then each client sends one slow upload, which takes longer than the timeout:
// uploads that go on must be answered, and those that stall must be cut. The program exits with 1
// if a request was answered wrongly, early or not at all, or if a timer was left behind.
//
//	go run ./examples/httpserver
//	go run ./examples/httpserver -clients 1000 -requests 100000 -timeout 500ms
//
// Clients and servers share the processors, so that the times in the table are mostly those of
// waiting for one: they show that nothing is early or lost, and not which way is the quickest.
//
// Read deadline.go, answer.go and stream.go for the middleware, which is made to be copied, and
// server.go for how it is used. idle.go has a second middleware, for requests that may take as long
// as they like if only they go on.
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
	clients  int
	requests int // in all, for each kind of deadline
	timeout  time.Duration
	slow     float64 // percent of the requests
	seed     uint64

	enough time.Duration // after the timeout handlers wait no longer than this, where no deadline comes
}

func defaults() config {
	return config{clients: 200, requests: 3_000, timeout: 200 * time.Millisecond, slow: 6, seed: 1, enough: time.Minute}
}

func main() { program.Main(httpserver) }

// httpserver is the program without its process: it returns the exit code.
func httpserver(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "httpserver",
		Usage: "an HTTP server whose request deadlines are kept by the timing wheel, and its clients",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("clients", &cfg.clients, 1, 5_000, "send from `n` clients at the same time"),
		option.Count("requests", &cfg.requests, 1, 10_000_000, "send `n` requests in all"),
		option.Duration("timeout", &cfg.timeout, 10*time.Millisecond, time.Minute, "answer requests within this `time`"),
		option.Percent("slow", &cfg.slow, "let this `percent` of the handlers take too long"),
		option.Seed(&cfg.seed, "draw which are slow from the seed `n`"),
	}
}

// validate checks what no option can know alone.
func (cfg *config) validate() error {
	if cfg.requests < cfg.clients {
		return fmt.Errorf("-requests %d for -clients %d: must be at least one for each", cfg.requests, cfg.clients)
	}
	return nil
}
