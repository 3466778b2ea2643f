// Httpserver is an HTTP server with request deadlines on the timing wheel, and its clients, on the
// loopback interface.
//
// Some handlers are too slow on purpose: one waits for its context, one passes its context to a
// second server that does not answer in time, and one ignores its context. Their requests must be
// answered with a 503, not before the deadline, and all other requests by their handlers. The
// program repeats this with context.WithTimeout and with http.TimeoutHandler. Then each client
// sends a slow upload, which takes longer than the timeout: uploads in progress must be answered,
// and stalled uploads must be cut. The exit code is 1 if an answer was wrong, early or missing, or
// if a timer is left.
//
//	go run ./examples/httpserver
//	go run ./examples/httpserver -clients 1000 -requests 100000 -timeout 500ms
//
// Clients and servers share the processors, so the times in the table are mostly waiting times for
// a processor. They show that nothing is early or lost, and do not compare the speed of the
// implementations.
//
// Read deadline.go, answer.go and stream.go for the middleware, which is meant to be copied, and
// server.go for its use. idle.go has a second middleware, for requests that may take any time while
// data is transferred.
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
	clients  int
	requests int // for each implementation of deadlines
	timeout  time.Duration
	slow     float64 // percentage of requests
	seed     uint64

	maxWait time.Duration // handlers return this time after the timeout if there is no deadline
}

func defaults() config {
	return config{clients: 200, requests: 3_000, timeout: 200 * time.Millisecond, slow: 6, seed: 1, maxWait: time.Minute}
}

func main() { program.Main(httpserver) }

// httpserver runs the program and returns its exit code.
func httpserver(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "httpserver",
		Usage: "an HTTP server with request deadlines on the timing wheel, and its clients",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("clients", &cfg.clients, 1, 5_000, "`number` of concurrent clients"),
		option.Count("requests", &cfg.requests, 1, 10_000_000, "`number` of requests"),
		option.Duration("timeout", &cfg.timeout, 10*time.Millisecond, time.Minute, "`time` limit of a request"),
		option.Percent("slow", &cfg.slow, "`percentage` of requests with a slow handler"),
		option.Seed(&cfg.seed, "random `seed` of the requests"),
	}
}

// validate checks constraints between options.
func (cfg *config) validate() error {
	if cfg.requests < cfg.clients {
		return fmt.Errorf("-requests is %d; it must be at least -clients, which is %d", cfg.requests, cfg.clients)
	}
	return nil
}
