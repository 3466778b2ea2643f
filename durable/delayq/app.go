package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// app is one run of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	size           func() (columns, rows int) // of stdout in characters; 0 if it is no terminal
	parse          func(url string) (storeurl.Opener, error)
	noticeDelay    time.Duration // from Ctrl-C until the user is told what delays the end
	commandGrace   time.Duration // for the output of a command that has left a process in the background
	signalGrace    time.Duration // how long a failed command waits for the signal that ends delayq: a supervisor may signal the command first
	children       children

	store, queue string
	partitions   int
	limits       durable.Options // of queues set
	json         bool
}

// maxBody is the largest body that any queue accepts.
const maxBody = 64 << 20

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{
		stdin: stdin, stdout: stdout, stderr: stderr, size: func() (int, int) { return sizeOf(stdout) }, parse: storeurl.Parse,
		noticeDelay: time.Second, commandGrace: 5 * time.Second, signalGrace: time.Second,
	}
}

func (a *app) run(ctx context.Context, args []string) error {
	page := bufio.NewWriter(a.stdout) // keeps the first write error, which package cli ignores
	root := &cli.Command{
		Name:            "delayq",
		Usage:           "inspect and operate a durable delay queue",
		UsageText:       "delayq [options] command [options] [arguments]   (one dash or two)",
		Description:     help("root"),
		Flags:           a.globals(),
		Commands:        a.commands(),
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          page,
		ErrWriter:       io.Discard, // errors are returned, and main prints them
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		Action:          noCommand,
		OnUsageError:    usageError,
	}
	err := root.Run(ctx, args)
	if failed := page.Flush(); err == nil && failed != nil && !errors.Is(failed, syscall.EPIPE) { // head closes its input early
		err = fmt.Errorf("print the help: %w", failed)
	}
	return err
}

func (a *app) globals() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "store", Usage: "use the store with this `URL`", Value: "dir:delayq.d",
			Destination: &a.store, Sources: cli.EnvVars("DELAYQ_STORE"),
		},
		&cli.StringFlag{
			Name: "queue", Usage: "use the queue with this `name`", Value: "default",
			Destination: &a.queue, Sources: cli.EnvVars("DELAYQ_QUEUE"),
		},
		number("partitions", "create a new queue with `N` partitions, and reject an existing queue with another number; "+
			"0 accepts any number, and creates a new queue with 8", &a.partitions, 0, contract.MaxPartitions),
		flag("json", "print JSON, one object in each line", &a.json),
	}
}

func (a *app) commands() []*cli.Command {
	return []*cli.Command{
		a.enqueueCommand(), a.takeCommand(), a.consumeCommand(), a.watchCommand(),
		a.command(command{
			name: "inspect", usage: "show all fields of a message", need: reads, run: a.inspect,
			args: "ID", least: 1, most: 1, accepts: "the command takes the id of one message",
		}),
		a.listCommand(), a.cancelCommand(), a.rescheduleCommand(), a.deadCommand(),
		a.command(command{name: "consumers", usage: "list the consumers of the queue", need: reads, run: a.consumers}),
		a.state(command{name: "pause", usage: "stop the delivery of messages", need: changes}, "paused", true, (*durable.Queue).Pause),
		a.state(command{
			name: "resume", usage: "resume the delivery of messages, or of recurring messages that crashes have stopped",
			args: "[ID...]", most: math.MaxInt, need: changes,
		}, "paused", false, (*durable.Queue).Resume),
		// The only command that rejects a server that may lose messages.
		a.state(command{name: "health", usage: "check that the store answers and cannot lose messages", need: checks}, "healthy", true, (*durable.Queue).Healthy),
		a.auditCommand(), a.backupCommand(), a.migrateCommand(), a.queuesCommand(),
	}
}

// session is an open queue.
type session struct {
	*durable.Queue // nil for access.storeOnly
	store          durable.Store
}

// closeTime limits how long a queue may take to close. Before the close, a consumer waits for its
// acknowledgements, for up to durable.Options.RetryFor if the store does not answer.
const closeTime = 10 * time.Second

// access is what a command does with the store.
type access struct {
	storeurl.Use
	only      string     // the form of the URLs of the stores that have the command; empty: all
	storeOnly bool       // it opens no queue
	newQueue  bool       // it creates the queue if there is none
	newStore  bool       // and the directory
	log       slog.Level // the least level of what it logs; math.MaxInt if its output and error say it all
}

var (
	changes  = access{}
	enqueues = access{newQueue: true, newStore: true}
	reads    = access{Use: storeurl.Use{Read: true}}
	watches  = access{Use: storeurl.Use{Read: true}, newQueue: true}
	consumes = access{Use: storeurl.Use{Consume: true}, newQueue: true}
	audits   = access{Use: storeurl.Use{Read: true, All: true}}
	takes    = access{Use: storeurl.Use{Consume: true}, newQueue: true, log: math.MaxInt}
	checks   = access{Use: storeurl.Use{Read: true, Safe: true}, log: math.MaxInt}
)

// limited returns a context that limits how long the store may take to answer.
func (n access) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Minute
	if n.Safe { // a health probe needs an answer
		limit = 5 * time.Second
	}
	return context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%w within %v; a Redis server that loads its data set answers later", durable.ErrUnavailable, limit))
}

// with opens the queue, calls f and closes the queue. Closing releases messages that were claimed
// and have not begun.
func (a *app) with(ctx context.Context, need access, f func(s *session) error) (err error) {
	open, err := a.check(need)
	if err != nil {
		return err
	}
	defer a.reportWaiting(ctx)()
	defer func() { err = withRemedy(err) }()
	store, err := open(need.Use)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if need.storeOnly {
		return f(&session{store: store})
	}
	o := a.limits
	o.Queue, o.Partitions, o.Existing = a.queue, a.partitions, !need.newQueue
	o.Logger = slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: need.log}))
	opening, cancel := need.limited(ctx)
	defer cancel()
	q, err := durable.Open(opening, store, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, settle(ctx, q.Shutdown)) }()
	return f(&session{q, store})
}

// check rejects an unsuitable store, invalid names, an empty queue name, which durable.Open would
// replace, and a missing directory, which would be created and look like an empty queue.
func (a *app) check(need access) (storeurl.Opener, error) {
	open, err := a.parse(a.store)
	if err != nil {
		return nil, err
	}
	if scheme, _, _ := strings.Cut(need.only, ":"); !strings.HasPrefix(strings.ToLower(a.store), scheme) {
		return nil, fmt.Errorf("store is %q; it must be %s", storeurl.Redact(a.store), need.only)
	}
	path, ok := storeurl.Path(a.store)
	if _, err := os.Stat(path); ok && !need.newStore && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store %q: there is no such directory; only delayq enqueue creates one", a.store)
	}
	return open, contract.CheckConfig(driver.Config{Queue: a.queue})
}

// reportWaiting tells the user what delays the end if Ctrl-C does not end the program within
// noticeDelay. The returned function ends the report, and waits for it.
func (a *app) reportWaiting(ctx context.Context) (end func()) {
	return background(func(running context.Context) {
		select {
		case <-running.Done():
			return
		case <-ctx.Done():
		}
		select {
		case <-running.Done():
		case <-time.After(a.noticeDelay):
			if n := a.children.count(); n > 0 {
				a.note("waiting for %s; Ctrl-C again ends all, and the messages are delivered again", count(n, "running command"))
			} else {
				a.note("waiting for the store, up to a minute if it does not answer; Ctrl-C again ends immediately")
			}
		}
	})
}

// background runs f in a goroutine. The returned function ends the context of f and waits for f.
func background(f func(ctx context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { f(ctx) })
	return func() {
		cancel()
		g.Wait()
	}
}

// remedies are what a user can do about errors.
var remedies = []struct {
	err  error
	text string
}{
	{durable.ErrLocked, "Only the process that has a directory open can consume. Others can do everything else if it was opened " +
		"with pebblestore.Options.Socket. Many processes can share a queue on Redis or PostgreSQL"},
	{durable.ErrPartitions, "Leave out -partitions to accept the number of the queue"},
	{durable.ErrOptions, "delayq queues set changes the limits of a queue"},
	{durable.ErrDead, "Use delayq dead replay to deliver the dead letter, or enqueue -replace to replace it"},
	{durable.ErrNoQueue, "Check -queue and -store; only enqueue, consume and take create one, and on a server watch does too. It may have been deleted"},
	{durable.ErrInUse, "Stop its consumers, or give -force to delete it although it has some"},
	{errors.ErrUnsupported, "Directories and Redis have an audit; delayq health checks any store"},
	{durable.ErrUnsafe, "Remove the cause first. If keys were lost, run delayq audit -repair then"},
}

// withRemedy adds a remedy to an error.
func withRemedy(err error) error {
	for _, r := range remedies {
		if errors.Is(err, r.err) {
			return fmt.Errorf("%w\n%s", err, r.text)
		}
	}
	return err
}

func (a *app) print(line string) error {
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "delayq: "+format+"\n", args...)
}
