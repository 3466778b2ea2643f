// Dashboard is a process under a realistic load, with the page of package wheeldebug:
//
//	go run ./examples/dashboard
//
// Open http://localhost:8080/debug/timingwheel/ in a browser. There are three wheels. The first has
// the timers of a server: idle timeouts of connections, which heartbeats postpone, and timeouts of
// requests, most of which are answered in time. The second has jobs: retries with backoff, and
// plans from cron expressions. The third has the entries of a cache.
//
// The program ends after -for, or at Ctrl-C. It then fetches its own page as JSON and compares the
// figures with its counters. The exit code is 1 if the page is wrong, and 2 for invalid options.
//
// Read serve.go for mounting the page, and the file of each load for the use of its wheel.
package main

import (
	"context"
	"io"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

func main() { program.Main(dashboard) }

// dashboard runs the program and returns its exit code.
func dashboard(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "dashboard",
		Usage: "timing wheels under a realistic load, with a page that shows them",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, func() error { return cfg.validate() }, func() error { return run(ctx, cfg, stdout) })
}
