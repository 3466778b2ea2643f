package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// app is one run of the program.
type app struct {
	stdin                     io.Reader
	stdout, stderr            io.Writer
	screen                    screen // of stdout
	open                      func(url string, use storeurl.Use) (durable.Store, func() error, error)
	noticeDelay               time.Duration // from Ctrl-C until the user is told what delays the end
	commandGrace, signalGrace time.Duration // see defaultGrace and defaultSignalGrace
	children                  children
	faults                    errorPrinter

	store, queue string
	partitions   int
	json         bool
	trimsDead    bool // drop dead letters beyond the default limits, as a consumer does
}

// maxBody is the largest body that any queue accepts, so delayq accepts every body that a producer
// may enqueue.
const maxBody = 64 << 20

// The limits of dead letters for commands other than consume. These limits drop nothing, because
// the consumers of the queue set its limits.
const (
	keepDead  = 1 << 30
	keepBytes = 1 << 60
	keepAge   = 100 * 365 * day
)

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	a := &app{
		stdin: stdin, stdout: &lockedWriter{w: stdout}, stderr: &lockedWriter{w: stderr},
		screen: screenOf(stdout), open: storeurl.Open, noticeDelay: time.Second, commandGrace: defaultGrace,
		signalGrace: defaultSignalGrace,
	}
	a.faults.w = a.stderr
	return a
}

// run executes a command line.
func (a *app) run(ctx context.Context, args []string) error {
	help := &firstErrorWriter{w: a.stdout}
	root := &cli.Command{
		Name:            "delayq",
		Usage:           "inspect and operate a durable delay queue",
		UsageText:       "delayq [options] command [options] [arguments]   (one dash or two)",
		Description:     rootHelp,
		Flags:           a.globals(),
		Commands:        a.commands(),
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          help,
		ErrWriter:       io.Discard, // errors are returned, and main prints them
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		Action:          noCommand,
	}
	setUsageErrors(root)
	err := root.Run(ctx, args)
	if err == nil && help.failed != nil && !errors.Is(help.failed, syscall.EPIPE) { // head closes its input early
		err = fmt.Errorf("print the help: %w", help.failed)
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
		option("partitions", "create a new queue with `N` partitions, and reject an existing queue with another number; "+
			"0 accepts any number, and creates a new queue with 8", number(&a.partitions, 0, driver.MaxPartitions)),
		flag("json", "print JSON, one object in each line", &a.json),
	}
}

func (a *app) commands() []*cli.Command {
	return []*cli.Command{
		a.enqueueCommand(), a.takeCommand(), a.consumeCommand(), a.watchCommand(), a.inspectCommand(), a.listCommand(),
		a.cancelCommand(), a.rescheduleCommand(), a.deadCommand(),
		a.consumersCommand(), a.pauseCommand(), a.resumeCommand(), a.healthCommand(),
		a.auditCommand(), a.backupCommand(), a.queuesCommand(),
	}
}

// setUsageErrors makes all commands return usage errors that refer to their help.
func setUsageErrors(cmd *cli.Command) {
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error { return usage(cmd, "%v", err) }
	for _, c := range cmd.Commands {
		setUsageErrors(c)
	}
}

// noCommand is the action of a command with subcommands.
func noCommand(_ context.Context, cmd *cli.Command) error {
	switch {
	case !cmd.Args().Present() && cmd == cmd.Root():
		return cli.ShowRootCommandHelp(cmd)
	case !cmd.Args().Present():
		return cli.ShowSubcommandHelp(cmd)
	}
	var names []string
	for _, c := range cmd.Commands {
		names = append(names, c.Name)
	}
	return usage(cmd, "unknown command %q; it must be one of %s", cmd.Args().First(), strings.Join(names, ", "))
}

// session is an open queue.
type session struct {
	*durable.Queue
	store durable.Store
	name  string
}

// closeTime limits how long a queue may take to close. Before the close, a consumer waits for its
// acknowledgements, for up to durable.Options.RetryFor if the store does not answer.
const closeTime = 10 * time.Second

// access is what a command does with the store.
type access struct {
	storeurl.Use
	newQueue bool // it creates the queue if there is none
	newStore bool // and the directory
}

var (
	changes  = access{}
	enqueues = access{newQueue: true, newStore: true}
	reads    = access{Use: storeurl.Use{Read: true}}
	watches  = access{Use: storeurl.Use{Read: true}, newQueue: true}
	consumes = access{Use: storeurl.Use{Consume: true}, newQueue: true}
	audits   = access{Use: storeurl.Use{Read: true, All: true}}
	checks   = access{Use: storeurl.Use{Read: true, Safe: true}}
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
	if err := a.check(); err != nil {
		return err
	}
	if !need.newStore {
		if err := a.checkDirectory(); err != nil {
			return err
		}
	}
	return a.withStore(ctx, need.Use, func(store durable.Store) error { return a.withQueue(ctx, need, store, f) })
}

// onStore is with for a command that needs no queue.
func (a *app) onStore(ctx context.Context, use storeurl.Use, f func(durable.Store) error) error {
	if err := cmp.Or(a.check(), a.checkDirectory()); err != nil {
		return err
	}
	return a.withStore(ctx, use, f)
}

// withStore opens the store, calls f and closes the store.
func (a *app) withStore(ctx context.Context, use storeurl.Use, f func(durable.Store) error) (err error) {
	defer a.reportWaiting(ctx)()
	store, closeStore, err := a.open(a.store, use)
	if err != nil {
		return withRemedy(err)
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	return withRemedy(f(store))
}

func (a *app) withQueue(ctx context.Context, need access, store durable.Store, f func(s *session) error) (err error) {
	o := durable.Options{
		Queue: a.queue, Partitions: a.partitions, Existing: !need.newQueue, MaxBody: maxBody,
		OnError: a.faults.add, Logger: slog.New(slog.DiscardHandler),
	}
	if !a.trimsDead {
		o.DeadLimit, o.DeadBytes, o.DeadAge = keepDead, keepBytes, keepAge
	}
	opening, cancel := need.limited(ctx)
	defer cancel()
	q, err := durable.Open(opening, store, o)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		err = errors.Join(err, q.Shutdown(ctx))
	}()
	return f(&session{q, store, a.queue})
}

// check rejects invalid names before a store is opened. It also rejects an empty queue name, which
// durable.Open would replace by the default name.
func (a *app) check() error {
	if err := storeurl.Check(a.store); err != nil {
		return err
	}
	return driver.Config{Queue: a.queue, DeadLimit: keepDead, DeadBytes: keepBytes, DeadAge: keepAge}.Check()
}

// reportWaiting tells the user that the store delays the end if Ctrl-C does not end the program
// within noticeDelay. The returned function ends the report. While commands run, consume reports
// them instead.
func (a *app) reportWaiting(ctx context.Context) (end func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		for told := false; !told; {
			select {
			case <-time.After(a.noticeDelay):
			case <-ended:
				return
			}
			if told = a.children.count() == 0; told {
				fmt.Fprintln(a.stderr, "delayq: waiting for the store, up to a minute if it does not answer; Ctrl-C again ends at once")
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// checkDirectory returns an error if the store is a directory that does not exist. Opening the
// store would create it, and a wrong path would look like an empty queue.
func (a *app) checkDirectory() error {
	path, ok := storeurl.Path(a.store)
	if !ok {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store %q: there is no such directory; only delayq enqueue creates one: %w", a.store, err)
	}
	return nil
}

// withRemedy adds a remedy to an error.
func withRemedy(err error) error {
	hint := ""
	switch {
	case errors.Is(err, durable.ErrLocked):
		hint = "only the process that has a directory open can consume. Others can do everything else if it was opened " +
			"with pebblestore.Options.Socket. Many processes can share a queue on Redis"
	case errors.Is(err, durable.ErrPartitions):
		hint = "leave out -partitions to accept the number of the queue"
	case errors.Is(err, durable.ErrDead):
		hint = "use delayq dead replay to deliver the dead letter, or enqueue -replace to replace it"
	case errors.Is(err, durable.ErrNoQueue):
		hint = "check -queue and -store; only enqueue, consume, take and watch create a queue"
	case errors.Is(err, durable.ErrUnsafe):
		hint = "messages could be lost, so delayq does not use the queue"
	default:
		return err
	}
	return fmt.Errorf("%w\n%s%s", err, strings.ToUpper(hint[:1]), hint[1:])
}
