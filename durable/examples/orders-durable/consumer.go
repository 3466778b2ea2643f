package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

// job is what a consumer is told by the process that starts it, in an environment variable: the URL of a store may have a password,
// and arguments can be read by all users of a machine.
type job struct {
	Store, Queue, Journal string
}

const jobVariable = "ORDERS_DURABLE_CONSUMER"

// isConsumer reports whether this process was started to be one.
func isConsumer() bool { return os.Getenv(jobVariable) != "" }

func consumerMain() int {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the shop says when to end
	var j job
	err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &j)
	if err == nil {
		err = j.consume()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "consumer %d: %v\n", os.Getpid(), err)
		return exitWrong
	}
	return exitRight
}

// consume cancels orders until the shop closes its end of the pipe, be it that the shop was killed.
func (j job) consume() (err error) {
	book, err := openJournal(j.Journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q, closeQueue, err := openQueue(ctx, j.Store, j.Queue, func(err error) {
		fmt.Fprintf(os.Stderr, "consumer %d: %v\n", os.Getpid(), err)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeQueue()) }()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- serve(ctx, q, os.Stdin, os.Stdout)
	}()
	if err := q.Consume(ctx, (&canceller{book}).handle, j.options()); err != nil {
		return err
	}
	return <-served
}

func (j job) options() durable.ConsumerOptions {
	visibility := 2 * time.Second // on Redis what a killed consumer had begun comes again after this
	if isFile(j.Store) {
		visibility = 30 * time.Second // on a file with the next start: so it may be long, and a machine that stands still loses nothing
	}
	return durable.ConsumerOptions{
		Concurrency: 16,
		Visibility:  visibility,
		Membership:  time.Second, // on Redis the partitions of a killed consumer are taken over after this
		MaxCrashes:  1000,        // the message is not to blame for the kills
		Backoff:     durable.Exponential(100*time.Millisecond, time.Second),
	}
}

// canceller cancels the orders whose time to pay is over.
type canceller struct{ journal *journal }

// handle may be called for the same order again, at any time: a consumer that is killed after the effect and before the
// acknowledgement, which follows when handle has returned, leaves the message in the queue. It is idempotent by the rule of the
// journal, and asks it first, so as not to work in vain.
func (c *canceller) handle(ctx context.Context, d *durable.Delivery) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // this process stood still and has lost the message; the order may have been paid since
	}
	o, err := c.journal.write(delivered, d.ID, d.Token)
	if err != nil {
		return err
	}
	if o.decision != "" {
		return nil // done before: nil acknowledges what was not acknowledged then
	}
	if err := work(ctx); err != nil {
		return err
	}
	// This line is the effect. It counts once, and only with the token of the latest delivery.
	if o, err = c.journal.write(cancelled, d.ID, d.Token); err != nil {
		return err
	}
	if o.decision == "" {
		return fmt.Errorf("order %q: token %d: %w, token %d was seen", d.ID, d.Token, durable.ErrLeaseLost, o.token)
	}
	return work(ctx) // such as a mail to the customer, who may get it twice
}

// mostWork is the time for which either half of the work takes at most.
const mostWork = 40 * time.Millisecond

// work takes some time, so that there is something to kill. It ends early where somebody else gets the message.
func work(ctx context.Context) error { return sleep(ctx, rand.N(mostWork)) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
