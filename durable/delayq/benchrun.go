package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// benchRun sends messages through a queue.
type benchRun struct {
	s       *session
	o       benchOptions
	prefix  string // of this run's ids
	body    []byte
	seen    []atomic.Bool // by number: a message may come twice
	missing atomic.Int64
}

// benchPrefix is what the ids of all runs begin with. Other messages are left alone.
const benchPrefix = "delayq-bench-"

func newBench(s *session, o benchOptions) *benchRun {
	b := &benchRun{s: s, o: o, prefix: fmt.Sprintf("%s%d-", benchPrefix, time.Now().UnixNano())}
	b.body = []byte(strings.Repeat("x", o.size))
	b.seen = make([]atomic.Bool, o.n)
	b.missing.Store(int64(o.n))
	return b
}

// rates measures enqueueing and delivery one after the other.
func (b *benchRun) rates(ctx context.Context, r *benchResult) (err error) {
	if err := b.clear(ctx, benchPrefix); err != nil {
		return err
	}
	defer b.tidy(ctx, &err)
	begin := time.Now()
	if err := b.enqueue(ctx, func() time.Duration { return 0 }); err != nil {
		return err
	}
	r.enqueue = max(time.Since(begin), 1)
	begin = time.Now()
	err = b.consume(ctx)
	r.consume = max(time.Since(begin), 1)
	return err
}

// benchLead is how long after its enqueueing a message is due at the earliest, so that a consumer can have claimed it.
const benchLead = 500 * time.Millisecond

// lateness enqueues messages that are due over a time, while they are consumed.
func (b *benchRun) lateness(ctx context.Context, r *benchResult) (err error) {
	defer b.tidy(ctx, &err)
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return b.consume(both) })
	g.Go(func() error {
		return b.enqueue(both, func() time.Duration { return benchLead + rand.N(b.o.spread) })
	})
	if err := g.Wait(); err != nil {
		return err
	}
	stats, err := b.s.Stats(ctx)
	r.lateness = stats.Lateness
	return err
}

// enqueue lets all producers enqueue their share.
func (b *benchRun) enqueue(ctx context.Context, delay func() time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	step := atOnce(driver.MaxBatch, b.o.size, b.o.producers)
	for range b.o.producers {
		g.Go(func() error {
			for ctx.Err() == nil {
				first := int(next.Add(int64(step))) - step
				if first >= b.o.n {
					return nil
				}
				messages := make([]durable.Message, min(step, b.o.n-first))
				for i := range messages {
					messages[i] = durable.Message{ID: b.prefix + strconv.Itoa(first+i), Body: b.body, Delay: delay()}
				}
				if _, err := b.s.EnqueueBatch(ctx, messages); err != nil {
					return shorten(err)
				}
			}
			return context.Cause(ctx)
		})
	}
	return g.Wait()
}

// consume ends when all messages have come, or ctx does.
func (b *benchRun) consume(ctx context.Context) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := b.s.Consume(running, func(_ context.Context, d *durable.Delivery) error {
		switch number, ok := strings.CutPrefix(d.ID, b.prefix); {
		case ok:
			i, err := strconv.Atoi(number)
			if err == nil && i < len(b.seen) && !b.seen[i].Swap(true) && b.missing.Add(-1) == 0 {
				stop(errAllCame)
			}
		case !strings.HasPrefix(d.ID, benchPrefix):
			err := foreign(b.s.name, d.ID)
			stop(err)
			return durable.RetryAfter(time.Minute, err)
		}
		return nil
	}, durable.ConsumerOptions{Concurrency: b.o.concurrency})
	if cause := context.Cause(running); err == nil && cause != errAllCame {
		err = cause
	}
	return err
}

var errAllCame = errors.New("all messages have come")

func foreign(queue, id string) error {
	return fmt.Errorf("%w queue %q for bench: message %q is none of its own, and bench would consume it", durable.ErrInvalid, queue, id)
}

// tidy takes out what is left of this run where it fails.
func (b *benchRun) tidy(ctx context.Context, err *error) {
	if *err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	*err = errors.Join(*err, b.clear(ctx, b.prefix))
}

// clear takes out messages with this beginning of their ids. It refuses a queue that holds any of others than bench.
func (b *benchRun) clear(ctx context.Context, prefix string) error {
	var left []string
	for _, state := range []durable.State{durable.StateScheduled, durable.StateLeased} {
		for r, err := range b.s.List(ctx, state) {
			switch {
			case err != nil:
				return err
			case !strings.HasPrefix(r.ID, benchPrefix):
				return foreign(b.s.name, r.ID)
			case strings.HasPrefix(r.ID, prefix) && r.ID != benchMark:
				left = append(left, r.ID)
			}
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(settleAtOnce)
	for _, id := range left {
		g.Go(func() error {
			_, err := b.s.Cancel(ctx, id) // what is being delivered is acked by whoever does it
			return err
		})
	}
	return g.Wait()
}
