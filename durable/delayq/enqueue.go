package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

type enqueueOptions struct {
	id, text    string
	body        []byte // text, or stdin
	due         due
	expireAt    time.Time
	n           int
	replace     bool
	maxAttempts int
	headers     map[string]string
}

func (a *app) enqueueCommand() *cli.Command {
	o := enqueueOptions{n: 1}
	return a.command(command{
		name: "enqueue", usage: "put messages into the queue", need: enqueues,
		flags: append(o.due.flags(),
			&cli.StringFlag{Name: "id", Usage: "use this `id`; by default the queue generates one", Destination: &o.id},
			&cli.StringFlag{Name: "body", Usage: "use this `text` as the body; by default the body is read from stdin", Destination: &o.text},
			number("n", "enqueue `N` copies of the message; with -id X their ids are X-1, X-2 and so on", &o.n, 1, maxMessages),
			futureTime("expire-at", "do not deliver the message after this `time`", &o.expireAt),
			header("add this `header`", &o.headers),
			flag("replace", "replace a message with the same id that has not begun, or that is a dead letter", &o.replace),
			number("max-attempts", "make the message a dead letter after `N` failed deliveries; 0 means 25", &o.maxAttempts, 0, math.MaxInt32)),
		check: func(ctx context.Context, cmd *cli.Command) (err error) {
			if err := o.due.check(ctx, cmd); err != nil {
				return err
			}
			if cmd.IsSet("id") && o.id == "" {
				return usage(cmd, "-id is %q; it must have 1 to %d bytes", o.id, durable.MaxID)
			}
			if o.body = []byte(o.text); !cmd.IsSet("body") {
				o.body, err = a.readBody(ctx)
			}
			return err
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.enqueue(ctx, s, o) },
	})
}

// readBody reads stdin to its end, before the store is opened, so that a directory is not locked
// while a user types. Options that need no store are checked before. It returns an error for more
// than maxBody bytes.
func (a *app) readBody(ctx context.Context) ([]byte, error) {
	if err := a.check(enqueues); err != nil {
		return nil, err
	}
	if isTerminal(a.stdin) {
		a.note("type the body, and end it with Ctrl-D on a line of its own")
	}
	var body []byte
	err := until(ctx, func() (err error) {
		body, err = io.ReadAll(io.LimitReader(a.stdin, maxBody+1))
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the body from stdin: %w", err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("%w body: more than %[2]d bytes; there must be at most %[2]d", durable.ErrInvalid, maxBody)
	}
	return body, nil
}

// maxMessages is the largest number of messages that one command enqueues.
const maxMessages = 100_000_000

// Limits of the messages that are enqueued together: their number, and the bytes of their bodies,
// which the queue copies.
const (
	enqueueAtOnce = 4096
	enqueueMemory = 64 << 20
)

func (a *app) enqueue(ctx context.Context, s *session, o enqueueOptions) error {
	step := max(1, min(enqueueAtOnce, enqueueMemory/max(1, len(o.body))))
	for first := 1; first <= o.n; first += step {
		messages := make([]durable.Message, min(step, o.n-first+1))
		for i := range messages {
			messages[i] = durable.Message{
				ID: o.idOf(first + i), Body: o.body, Delay: o.due.delay, At: o.due.at, MaxAttempts: o.maxAttempts, Replace: o.replace,
				Headers: o.headers, ExpireAt: o.expireAt,
			}
		}
		ids, err := s.EnqueueBatch(ctx, messages)
		if err != nil {
			return err // with the first of many errors
		}
		if err := a.printIDs(ids); err != nil {
			return err
		}
	}
	return nil
}

// idOf returns the id of the message with this number, or "" if the queue generates one.
func (o *enqueueOptions) idOf(number int) string {
	if o.id == "" || o.n == 1 {
		return o.id
	}
	return fmt.Sprintf("%s-%d", o.id, number)
}

func (a *app) printIDs(ids []string) error {
	if !a.json {
		return a.print(strings.Join(ids, "\n"))
	}
	for _, id := range ids {
		if err := a.printJSON(map[string]string{"id": id}); err != nil {
			return err
		}
	}
	return nil
}
