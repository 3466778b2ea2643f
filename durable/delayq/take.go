package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
)

type takeOptions struct {
	n               int
	ack, nack, keep bool
	delay, wait     time.Duration // delay < 0: as the backoff says
}

func (a *app) takeCommand() *cli.Command {
	o := takeOptions{n: 1, wait: 2 * time.Second}
	return a.command(command{
		name: "take", usage: "take due messages and print their bodies", need: takes,
		flags: []cli.Flag{
			number("n", "take up to `N` messages", &o.n, 1, maxTake),
			flag("ack", "acknowledge each message after printing it, which removes it from the queue", &o.ack),
			flag("nack", "release messages as failed, which counts as an attempt", &o.nack),
			flag("keep", "release messages unchanged; the default", &o.keep),
			duration("delay", "with -nack, make messages due again after this `duration`", &o.delay, 0),
			duration("wait", "wait up to this `duration` for each message; 0 waits without a limit", &o.wait, 0),
		},
		check: func(_ context.Context, cmd *cli.Command) error {
			switch {
			case o.ack && o.nack, o.ack && o.keep, o.nack && o.keep:
				return usage(cmd, "-ack, -nack and -keep exclude each other; there must be at most one of them")
			case cmd.IsSet("delay") && !o.nack:
				return usage(cmd, "-delay is %v; it must come with -nack", o.delay)
			case !cmd.IsSet("delay"):
				o.delay = -1
			}
			return nil
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.take(ctx, s, o) },
	})
}

// maxTake is the largest number of messages that one command takes. Messages that are not
// acknowledged stay in memory.
const maxTake = 1_000_000

// takeVisibility is the lease of taken messages. It is extended while they are held.
const takeVisibility = 30 * time.Second

// take prints messages. It acknowledges each message after printing it, so a message that cannot be
// printed is not lost. The other messages are released at the end: released earlier, they would be
// taken again.
func (a *app) take(ctx context.Context, s *session, o takeOptions) (err error) {
	r, err := s.Receiver(durable.ConsumerOptions{Visibility: takeVisibility, Prefetch: o.n, Tool: true})
	if err != nil {
		return err
	}
	defer r.Close()
	h := new(held)
	defer background(h.extend)()
	acks := newTasks()
	taken := 0
	for ; taken < o.n; taken++ {
		waiting, cancel := context.WithTimeout(ctx, cmp.Or(o.wait, math.MaxInt64))
		d, failure := r.Take(waiting)
		cancel()
		if failure != nil {
			err = a.takeError(ctx, failure, taken, o)
			break
		}
		h.Store(d, nil)
		if err = a.printBody(d); err != nil {
			err = fmt.Errorf("message %q was released because it could not be printed: %w", d.ID, err)
			break
		}
		if o.ack {
			h.Delete(d)
			acks.Go(func() error { return settle(ctx, d.Ack) })
		}
	}
	err = errors.Join(err, acks.Wait())
	o.nack = o.nack && err == nil
	return errors.Join(err, h.each(func(d *durable.Delivery) error {
		return settle(ctx, func(ctx context.Context) error {
			switch {
			case !o.nack:
				return d.Release(ctx)
			case o.delay < 0:
				return d.Nack(ctx, nil)
			}
			return d.NackAfter(ctx, o.delay, nil)
		})
	}))
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
	a.note("took %d of %d messages; no other was due within %v", taken, o.n, o.wait)
	return nil
}

// printBody prints a body, and a newline unless the body ends with one.
func (a *app) printBody(d *durable.Delivery) error {
	return a.result(messageJSON(*d, d.Body), strings.TrimSuffix(string(d.Body), "\n"))
}

// held are messages that were taken and are not to be acknowledged yet, as keys.
type held struct{ sync.Map }

// each calls f for all messages concurrently.
func (h *held) each(f func(*durable.Delivery) error) error {
	g := newTasks()
	for d := range h.Range {
		g.Go(func() error { return f(d.(*durable.Delivery)) }) //nolint:errcheck,forcetypeassert // see above
	}
	return g.Wait()
}

// extend extends the leases until ctx ends, because the output may be slow.
func (h *held) extend(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(takeVisibility / 3): // a lost lease is reported when the message is settled
			_ = h.each(func(d *durable.Delivery) error { return d.Extend(ctx, takeVisibility) })
		}
	}
}

// settle calls f, which settles a message or closes the queue, for up to closeTime even after
// Ctrl-C.
func settle(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, durable.ErrLeaseLost) {
		err = fmt.Errorf("%w; it may be delivered again", err)
	}
	return err
}

// newTasks returns a group that runs up to 256 functions concurrently.
func newTasks() *errgroup.Group {
	g := new(errgroup.Group)
	g.SetLimit(256)
	return g
}
