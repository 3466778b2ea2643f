// Delayq looks into a durable delay queue and works on it from the command line: it enqueues, takes, consumes, watches, lists,
// cancels, replays and audits messages, in a file, on Redis, or in memory.
//
//	delayq enqueue -id order-42 -body 'cancel the order' -delay 30m
//	delayq watch -interval 2s
//	delayq consume -exec './deliver.sh' -concurrency 8
//	delayq -store redis://localhost:6379/0 -queue orders dead list
//
// Every command has its own help: delayq enqueue -help.
//
// It exits with 0 if it did what was asked for, or was ended by the first Ctrl-C, SIGTERM or SIGHUP where a command runs until then; with 1
// otherwise, and says why on stderr. A second Ctrl-C ends it at once with 130, and the commands that consume runs with it; their
// messages are delivered again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

const (
	exitWrong  = 1
	exitForced = 130 // what shells report for a program that Ctrl-C has ended
)

func main() {
	survivePipes()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancel(context.Background())
	redis.SetLogger(silence{}) // what its log says comes as errors, too
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	go func() {
		<-signals
		cancel()
		for s := range signals {
			if s != syscall.SIGHUP { // which comes twice when a terminal is closed: from the shell and from the system
				a.children.kill()
				os.Exit(exitForced)
			}
		}
	}()
	if err := a.run(ctx, os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "delayq: %v\n", err)
		os.Exit(exitWrong)
	}
}

// silence is a log that nobody reads.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// run is the program without its process. args[0] is its name.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return newApp(stdin, stdout, stderr).run(ctx, args)
}
