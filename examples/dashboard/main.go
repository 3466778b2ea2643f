// Dashboard is a process under a realistic load, with the page of package debug to look at it:
//
//	go run ./examples/dashboard
//
// and then http://localhost:8080/debug/timingwheel/ in a browser. Three wheels turn: one for the
// connections of a server, with an idle timeout that each heartbeat postpones and a timeout for
// each request, most of which are answered in time; one for jobs, with retries that back off and
// plans written as cron expressions; and one for the entries of a cache.
//
// With -for it ends by itself, with Ctrl-C at once. In the end it asks its own page for the JSON
// and compares that with what it has done: it exits with 1 where the page was wrong, and with 2 for
// options it does not accept.
//
// Read serve.go for how the page is mounted, and the file of each load for how it uses its wheel.
package main

import (
	"context"
	"io"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

func main() { program.Main(dashboard) }

// dashboard is the program without its process: it returns the exit code.
func dashboard(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "dashboard",
		Usage: "timing wheels under a realistic load, and a page to look at them",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, func() error { return cfg.validate() }, func() error { return run(ctx, cfg, stdout) })
}
