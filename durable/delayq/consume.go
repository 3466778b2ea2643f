package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

func (a *app) consumeCommand() *cli.Command {
	var line string
	o := durable.ConsumerOptions{
		Concurrency: 1, Visibility: 30 * time.Second,
		Grace: math.MaxInt64, // Consume waits for running commands, until a second Ctrl-C
	}
	return a.command(command{
		name: "consume", usage: "run a command for each due message, until Ctrl-C", need: consumes,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "exec", Usage: "run this `command` in the shell, with the body on stdin", Destination: &line},
			number("concurrency", "run up to `N` commands concurrently", &o.Concurrency, 1, 4096),
			duration("visibility", "deliver a message again this `duration` after a crash of this process", &o.Visibility, 100*time.Millisecond),
		},
		check: func(_ context.Context, cmd *cli.Command) error {
			if line == "" {
				return usage(cmd, "-exec is missing; it must be a shell command, such as -exec './deliver.sh'")
			}
			return nil
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.consume(ctx, s, line, o) },
	})
}

// consume runs the command for messages. It returns when ctx ends, if the command cannot be run, or
// if its output cannot be printed.
func (a *app) consume(ctx context.Context, s *session, line string, o durable.ConsumerOptions) error {
	if err := lookUp(line); err != nil {
		return err
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &runner{app: a, line: line, stop: stop, ending: running.Done()}
	err := s.Consume(running, r.handle, o)
	if cause := context.Cause(running); err == nil && ctx.Err() == nil {
		err = cause // the runner has stopped Consume
	}
	a.note("%s delivered, %d failed", count(r.succeeded.Load(), "message"), r.failed.Load())
	return err
}

// runner runs the command for each message.
type runner struct {
	app               *app
	line              string // the command
	stop              context.CancelCauseFunc
	ending            <-chan struct{} // closed when Consume begins to end
	succeeded, failed atomic.Int64
}

var errNoCommand = errors.New("the command cannot be run")

// handle acknowledges the message if the command exits with 0. It releases the message after a
// failure that is not the message's fault: if delayq is ending, or cannot start the shell or print.
func (r *runner) handle(ctx context.Context, d *durable.Delivery) error {
	argv := shell(r.line)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	stdout, stderr := &lineWriter{to: r.app.stdout}, &lineWriter{to: r.app.stderr, lossy: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(d.Body), stdout, stderr
	cmd.Env, cmd.WaitDelay = environment(d), r.app.commandGrace
	err := r.app.children.run(cmd)
	stdout.close()
	stderr.close()
	switch code := cmd.ProcessState.ExitCode(); {
	case stdout.failed != nil:
		err = fmt.Errorf("its output cannot be printed: %w", stdout.failed)
	case cmd.ProcessState == nil:
		err = fmt.Errorf("%w: %w", errNoCommand, err)
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // the command has exited with 0
		r.succeeded.Add(1)
		return nil
	case (code == 126 || code == 127) && lookUp(r.line) != nil: // exit codes of shells
		err = fmt.Errorf("%w: -exec %q: %w: %s", errNoCommand, r.line, err, preview(stderr.last, contract.MaxReason/2))
	case !r.ends(code):
		if stderr.last != "" {
			err = fmt.Errorf("%w: %s", err, preview(stderr.last, contract.MaxReason/2))
		}
		r.failed.Add(1)
		return err
	}
	if stdout.failed != nil || errors.Is(err, errNoCommand) && ctx.Err() == nil { // as for other messages
		r.stop(fmt.Errorf("%w; message %q is delivered again later", err, d.ID))
	}
	return errors.Join(err, d.Release(ctx)) // if Release fails, the error is a failed attempt
}

// lookUp returns an error if a shell command is the name of a command that cannot be started, with
// or without arguments. Only the shell knows about other forms.
func lookUp(line string) error {
	name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	_, err := exec.LookPath(name)
	if err == nil || strings.ContainsAny(line, ";&|<>(){}`\n") || strings.ContainsAny(name, "'\"\\$=*?[]~!#") {
		return nil
	}
	shell := exec.Command("sh", "-c", `command -v "$0"`, name).Run()
	if !strings.Contains(name, "/") && !errors.As(shell, new(*exec.ExitError)) { // it is built in, or there is no shell
		return nil
	}
	return fmt.Errorf("%w: -exec %q: %w", errNoCommand, line, err)
}

// ends reports whether delayq begins to end soon after a command has failed with an exit code.
func (r *runner) ends(code int) bool {
	wait := r.app.signalGrace
	if 0 < code && code <= 128 { // otherwise a signal has ended the command
		wait /= 20 // commands fail often, and the wait delays the next message
	}
	select {
	case <-r.ending:
		return true
	case <-time.After(wait):
		return false
	}
}

// otherCharacters matches the characters that the name of a variable cannot have.
var otherCharacters = regexp.MustCompile(`[^A-Za-z0-9]`)

// environment returns the environment of the command: without the store, whose URL may have a
// password, and with the variables that describe the message.
func environment(d *durable.Delivery) []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "DELAYQ_STORE=") })
	headers, _ := json.Marshal(maps.Collect(maps.All(d.Headers))) // {} if there are none
	expireAt := ""
	if !d.ExpireAt.IsZero() {
		expireAt = d.ExpireAt.Format(time.RFC3339Nano)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Headers)) {
		if value := d.Headers[key]; !strings.ContainsRune(value, 0) { // which no variable can have
			own = append(own, "DELAYQ_HEADER_"+strings.ToUpper(otherCharacters.ReplaceAllString(key, "_"))+"="+value)
		}
	}
	return append(own,
		"DELAYQ_ID="+d.ID,
		"DELAYQ_DUE="+d.Due.Format(time.RFC3339Nano),
		"DELAYQ_EXPIRE_AT="+expireAt,
		"DELAYQ_HEADERS="+string(headers),
		"DELAYQ_ATTEMPTS="+strconv.Itoa(d.Attempts),
		"DELAYQ_CRASHES="+strconv.Itoa(d.Crashes),
		"DELAYQ_TOKEN="+strconv.FormatUint(d.Token, 10),
	)
}

// children are the running commands. The commands do not receive the signals of the terminal, so
// the first Ctrl-C does not end them.
type children struct {
	mu  sync.Mutex
	all []*exec.Cmd
}

// run starts a command, which was created with a context, and waits for it. After kill, run does
// not return.
func (c *children) run(cmd *exec.Cmd) error {
	setProcessGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	c.mu.Lock()
	err := cmd.Start()
	if err == nil {
		c.all = append(c.all, cmd)
	}
	c.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(other *exec.Cmd) bool { return other == cmd })
	return err
}

func (c *children) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// kill ends all commands. The process must exit then: the mutex stays locked, so that no command
// begins, and no message counts as failed.
func (c *children) kill() {
	c.mu.Lock()
	for _, cmd := range c.all {
		_ = killGroup(cmd) // the command may have ended by itself
	}
}
