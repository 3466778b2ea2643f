// Delayq inspects and operates a durable delay queue from the command line: it enqueues, takes,
// consumes, watches, lists, cancels, replays and audits messages, in a directory, on Redis or
// PostgreSQL, or in memory.
//
//	delayq enqueue -id order-42 -body 'cancel the order' -delay 30m
//	delayq consume -exec './deliver.sh' -concurrency 8
//	delayq -store redis://localhost:6379/0 -queue orders dead list
//
// # Exit codes
//
// The exit code is 0 on success, and when the first Ctrl-C, SIGTERM or SIGHUP ends a command that
// runs until interrupted. Otherwise the exit code is 1, and stderr has the error. A second Ctrl-C
// immediately ends delayq and the commands that consume runs, with exit code 130; their messages
// are delivered again.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

const exitForced = 130 // as shells report a program ended by Ctrl-C

func main() {
	handleSIGPIPE()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancel(context.Background())
	logging.Disable() // the calls also return the logged errors
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	go func() {
		<-signals
		cancel()
		for s := range signals {
			if s != syscall.SIGHUP { // a closed terminal sends it twice: by the shell and by the system
				a.children.kill()
				os.Exit(exitForced)
			}
		}
	}()
	if err := a.run(ctx, os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "delayq: %v\n", err)
		os.Exit(1)
	}
}
