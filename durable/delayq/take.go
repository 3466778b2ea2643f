package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

type takeOptions struct {
	n               int
	ack, nack, keep bool
	delay, wait     time.Duration // delay < 0: that of the backoff
}

func (a *app) takeCommand() *cli.Command {
	o := takeOptions{n: 1, wait: 2 * time.Second}
	return &cli.Command{
		Name: "take", Usage: "take due messages and print their bodies", Description: takeHelp,
		Flags: []cli.Flag{
			option("n", "take up to `N` messages", number(&o.n, 1, maxTake)),
			flag("ack", "acknowledge each message after printing it, which removes it from the queue", &o.ack),
			flag("nack", "release messages as failed, which counts as an attempt", &o.nack),
			flag("keep", "release messages unchanged; the default", &o.keep),
			option("delay", "with -nack, make messages due again after this `duration`", duration(&o.delay, 0)),
			option("wait", "wait up to this `duration` for each message; 0 waits without a limit", duration(&o.wait, 0)),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			switch {
			case o.ack && o.nack, o.ack && o.keep, o.nack && o.keep:
				return usage(cmd, "-ack, -nack and -keep exclude each other; there must be at most one of them")
			case cmd.IsSet("delay") && !o.nack:
				return usage(cmd, "-delay is %v; it must come with -nack", o.delay)
			case !cmd.IsSet("delay"):
				o.delay = -1
			}
			return a.with(ctx, consumes, func(s *session) error { return a.take(ctx, s, o) })
		},
	}
}

// maxTake is the largest number of messages that one command takes. Messages that are not
// acknowledged stay in memory.
const maxTake = 1_000_000

// settleAtOnce is how many messages are settled concurrently.
const settleAtOnce = 256

// take prints messages. It acknowledges each message after printing it, so a message that cannot be
// printed is not lost. The other messages are released at the end: released earlier, they would be
// taken again.
func (a *app) take(ctx context.Context, s *session, o takeOptions) (err error) {
	r, err := s.Receiver(durable.ConsumerOptions{Visibility: takeVisibility, Prefetch: o.n, Tool: true})
	if err != nil {
		return err
	}
	defer r.Close()
	h := newHeld()
	defer h.end()
	acks := newTasks()
	taken := 0
	for ; taken < o.n; taken++ {
		d, failure := next(ctx, r, o.wait)
		if failure != nil {
			err = a.takeError(ctx, failure, taken, o)
			break
		}
		h.add(d)
		if err = a.printBody(d); err != nil {
			err = fmt.Errorf("message %q was released because it could not be printed: %w", d.ID, err)
			break
		}
		if o.ack {
			acks.Go(func() error { return h.settle(ctx, d, d.Ack) })
		}
	}
	err = errors.Join(err, acks.Wait())
	o.nack = o.nack && err == nil
	return errors.Join(err, h.releaseAll(ctx, o))
}

// next waits for a message, for at most wait unless wait is 0.
func next(ctx context.Context, r *durable.Receiver, wait time.Duration) (*durable.Delivery, error) {
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	return r.Take(ctx)
}

// takeError returns the error of a Take that returned no message. It returns nil after Ctrl-C, and
// if the wait has ended after other messages were taken.
func (a *app) takeError(ctx context.Context, err error, taken int, o takeOptions) error {
	switch {
	case ctx.Err() != nil: // Ctrl-C
		return nil
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case taken == 0:
		return fmt.Errorf("no message was due within %v: %w", o.wait, err)
	}
	fmt.Fprintf(a.stderr, "delayq: took %d of %d messages; no other was due within %v\n", taken, o.n, o.wait)
	return nil
}

// printBody prints a body, and a newline unless the body ends with one.
func (a *app) printBody(d *durable.Delivery) error {
	if a.json {
		return a.printJSON(deliveryJSON(d))
	}
	body := d.Body
	if !bytes.HasSuffix(body, []byte("\n")) {
		body = append(bytes.Clone(body), '\n')
	}
	_, err := a.stdout.Write(body)
	return err
}
