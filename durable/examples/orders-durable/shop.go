package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"golang.org/x/sync/errgroup"
)

// shop is what the customers see. It keeps in memory what it has told them, to be compared with the journal at the end.
type shop struct {
	cfg      config
	journal  *journal
	timeouts timeouts

	mu      sync.Mutex
	answers map[string]bool // to those who paid: whether it was in time
}

// customer places an order, and pays or does not.
type customer struct {
	order  string
	comes  time.Duration // after the beginning
	paysAt time.Duration // after the order; 0: never
}

// draw makes the customers. Of 100 about 40 pay in time, 15 at the last moment, 5 too late, and 40 never.
func draw(rng *rand.Rand, cfg config) []customer {
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	all := make([]customer, cfg.orders)
	for i := range all {
		c := customer{order: fmt.Sprintf("order-%05d", i+1), comes: time.Duration(float64(cfg.over) * float64(i) / float64(cfg.orders))}
		switch n := rng.IntN(100); {
		case n < 40:
			c.paysAt = between(1, cfg.timeout*8/10)
		case n < 55:
			c.paysAt = between(cfg.timeout-lastMoment, cfg.timeout+lastMoment)
		case n < 60:
			c.paysAt = between(cfg.timeout+lastMoment, cfg.timeout+5*lastMoment)
		}
		all[i] = c
	}
	return all
}

// lastMoment is about as long as it takes to cancel an order, so that payments come before, during and after it.
const lastMoment = 2 * mostWork

// trade serves all customers and waits until what they have left behind is settled.
func (s *shop) trade(ctx context.Context, customers []customer, quiet <-chan struct{}) error {
	g, served := errgroup.WithContext(ctx)
	begin := time.Now()
	for _, c := range customers {
		g.Go(func() error {
			if err := sleep(served, time.Until(begin.Add(c.comes))); err != nil {
				return err
			}
			return s.serve(served, c)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	select {
	case <-quiet:
		return s.settle(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *shop) serve(ctx context.Context, c customer) error {
	o, err := s.journal.write(placed, c.order, 0)
	if err != nil {
		return err
	}
	if err := s.timeouts.enqueue(ctx, c.order, o.placed.Add(s.cfg.timeout)); err != nil || c.paysAt == 0 {
		return err
	}
	if err := sleep(ctx, time.Until(o.placed.Add(c.paysAt))); err != nil {
		return err
	}
	inTime, err := s.pay(ctx, c.order)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[c.order] = inTime
	return nil
}

// pay reports whether the payment is accepted: the order will not be cancelled any more. Otherwise it is cancelled, or will be.
func (s *shop) pay(ctx context.Context, id string) (inTime bool, err error) {
	result, err := s.timeouts.cancel(ctx, id)
	if err != nil {
		return false, err
	}
	switch result {
	case durable.Firing:
		// A handler has the message: it is cancelling the order, or will do so when the message comes again.
		return false, nil
	case durable.Cancelled:
		// No handler will be called any more. But one may have been, in a consumer that was killed before it could acknowledge: if
		// that got as far as cancelling the order, the journal knows.
	case durable.NotFound:
		// The message was delivered and acknowledged, so that the journal says cancelled. Or a consumer was killed after it had taken the message
		// back for this very payment and before it could answer, so that the journal says nothing yet.
	default:
		return false, fmt.Errorf("cancel %q: unknown result %d", id, result)
	}
	o, err := s.journal.write(paid, id, 0)
	return o.decision == paid, err
}

// settle waits until each order is paid or cancelled and the queue is empty, or for as long as the patience lasts.
func (s *shop) settle(ctx context.Context) error {
	for begin := time.Now(); time.Since(begin) < s.cfg.patience+s.cfg.timeout; {
		open, err := s.journal.undecided()
		if err != nil {
			return err
		}
		if open == 0 {
			left, err := s.timeouts.left(ctx)
			if err != nil || left == 0 {
				return err
			}
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
