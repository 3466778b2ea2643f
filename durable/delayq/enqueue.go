package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

func (a *app) enqueueCommand() *cli.Command {
	var m durable.Message
	var text string
	n := 1
	return a.command(command{
		name: "enqueue", usage: "put messages into the queue", need: enqueues,
		flags: append(dueFlags(&m),
			&cli.StringFlag{Name: "id", Usage: "use this `id`; by default the queue generates one", Destination: &m.ID},
			&cli.StringFlag{Name: "body", Usage: "use this `text` as the body; by default the body is read from stdin", Destination: &text},
			number("n", "enqueue `N` copies of the message; with -id X their ids are X-1, X-2 and so on", &n, 1, maxMessages),
			&cli.StringFlag{Name: "repeat", Usage: "make the message due at the times of this `series`: \"@every 10m\" or \"CRON_TZ=Europe/Berlin 0 8 * * *\"", Destination: &m.Repeat},
			instant("expire-at", "do not deliver the message after this `time`", &m.ExpireAt),
			header("add this `header`", &m.Headers),
			number("max-body", "create a new queue that accepts bodies of up to `N` bytes", &a.limits.MaxBody, 1, maxBody),
			flag("replace", "replace a message with the same id that has not begun, or that is a dead letter", &m.Replace),
			number("max-attempts", "make the message a dead letter after `N` failed deliveries; 0 means the queue's number", &m.MaxAttempts, 0, math.MaxInt32)),
		check: func(ctx context.Context, cmd *cli.Command) (err error) {
			switch m.Body = []byte(text); {
			case cmd.IsSet("id") && m.ID == "":
				return usage(cmd, "-id is %q; it must have 1 to %d bytes", m.ID, contract.MaxID)
			case cmd.IsSet("delay") && cmd.IsSet("at"):
				return usage(cmd, "-delay is %v and -at is %s; only one of them may be given", m.Delay, m.At.Format(time.RFC3339))
			case !cmd.IsSet("body"):
				m.Body, err = a.readBody(ctx)
			}
			return err
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.enqueue(ctx, s, m, n) },
	})
}

// readBody reads stdin to its end, before the store is opened, so that a directory is not locked
// while a user types. Options that need no store are checked before. It returns an error for more
// than maxBody bytes.
func (a *app) readBody(ctx context.Context) ([]byte, error) {
	if _, err := a.check(enqueues); err != nil {
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
const enqueueTogether, enqueueMemory = 4096, 64 << 20

// enqueue enqueues n copies of a message. Their ids get a number if there are several.
func (a *app) enqueue(ctx context.Context, s *session, m durable.Message, n int) error {
	step := max(1, min(enqueueTogether, enqueueMemory/max(1, len(m.Body))))
	for first := 1; first <= n; first += step {
		messages := slices.Repeat([]durable.Message{m}, min(step, n-first+1))
		for i := range messages {
			if n > 1 && m.ID != "" { // otherwise the queue generates ids
				messages[i].ID = fmt.Sprintf("%s-%d", m.ID, first+i)
			}
		}
		ids, err := s.EnqueueBatch(ctx, messages)
		if err != nil {
			return err // with the first of many errors
		}
		for _, id := range ids {
			if err := a.result(map[string]string{"id": id}, id); err != nil {
				return err
			}
		}
	}
	return nil
}
