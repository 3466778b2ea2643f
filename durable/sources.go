package durable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
)

// Source is a queue from which [Consume] delivers messages.
type Source struct {
	Queue   *Queue
	Handler Handler

	// Weight is the queue's relative share of the common handlers while messages from several
	// queues are waiting: a queue with Weight 3 gets three times as many handlers as one with
	// Weight 1. Defaults to 1; must be at most 1,000.
	Weight int

	// MaxRunning is the maximum number of handlers that run at a time for the queue, across all its
	// consumers in all processes: see [Consume]. 0 means no limit. Must be at most 10,000.
	MaxRunning int

	// Rate is the queue's maximum number of deliveries per second, across all its consumers in all
	// processes: see [Consume]. Retries and postponed messages count too. It may be less than 1. 0
	// means no limit.
	Rate float64
}

// Consume is [Queue.Consume] for several queues that share their handlers: at most
// ConsumerOptions.Concurrency handlers run at a time. Every queue can use at least one of them, so
// a queue whose handlers hang does not block the others. Any queue may use the remaining handlers.
// While messages from several queues are waiting, the queue with the fewest handlers relative to
// its weight gets the next free one. The other options apply to each queue, and each queue has
// Concurrency goroutines. If one source ends, for example because its queue is closed, Consume ends
// the others and returns the error of the first to end.
//
// The limits of a source apply to all consumers of its queue together. These consumers must all set
// the same limits and the same ConsumerOptions.Membership. [Queue.Consume] and receivers have no
// limits, but reduce the shares of the others. A message that a limit holds back has not begun. It
// can be cancelled and rescheduled, and counts in Stats.Overdue. A kind of message with its own
// limit needs its own queue, because messages that the limit holds back would delay others that are
// due later.
//
// A consumer's share of a limit depends on the Concurrency of all consumers, as of their last
// heartbeats. A share of MaxRunning may be 0: one of five equal consumers runs nothing if
// MaxRunning is 4. A share that a consumer does not use is not lent to others. A new consumer waits
// for about two thirds of Membership before it uses its share, unless it is alone. The share of a
// consumer that has crashed is unused until its Membership has passed. A tool (see
// ConsumerOptions.Tool) has a share only if all consumers are tools.
//
// Limits, and Concurrency with several sources, are exceeded in these cases:
//
//   - If a consumer joins or ends, running handlers continue in addition to the new ones. After a
//     suspension a process uses its old share until its next heartbeat.
//   - A consumer makes up for deliveries that its share of Rate would have allowed in the last
//     0.1 s. In any time T it delivers at most T × its share plus max(1, 0.1 s × its share).
//   - If the answer to a claim was lost, the claimed messages exceed the limit. The same applies to
//     calls that are answered after more than 0.1 s, except for MaxRunning.
//   - A handler that has not returned after its HandlerTimeout does not count.
//
// A call that the store does not answer may hold a share of MaxRunning until the call fails.
//
// Consume returns [ErrInvalid] if a source is invalid, if two sources have the same queue, or if
// there are no sources or more than ConsumerOptions.Concurrency. Otherwise it returns the same
// errors as [Queue.Consume], with the queue's name if there are several sources.
func Consume(ctx context.Context, sources []Source, options ConsumerOptions) error {
	opts, err := options.withDefaults()
	if err == nil {
		err = checkSources(ctx, sources, opts.Concurrency)
	}
	if err != nil {
		return fmt.Errorf("durable: consume: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &pool{free: opts.Concurrency}
	budgets := make([]budget, len(sources))
	for i, s := range sources {
		budgets[i].source = s
		if len(sources) > 1 {
			budgets[i].pool = &poolMember{pool: p, weight: max(1, s.Weight)}
			p.members = append(p.members, budgets[i].pool)
		}
	}
	var all sync.WaitGroup
	errs := make(chan error, len(sources))
	for _, b := range budgets {
		all.Go(func() {
			end := func(err error) {
				if len(sources) > 1 {
					err = fmt.Errorf("queue %q: %w", b.source.Queue.options.Queue, err)
				}
				cancel(&sourceEnd{err})
			}
			if err := consume(ctx, end, opts, b); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	close(errs)
	err = <-errs
	if first := (*sourceEnd)(nil); errors.As(context.Cause(ctx), &first) {
		err = first.error
	}
	if err != nil {
		return fmt.Errorf("durable: consume: %w", err)
	}
	return nil
}

// sourceEnd is the end of a source, which ends the others.
type sourceEnd struct{ error }

func checkSources(ctx context.Context, sources []Source, most int) error {
	if ctx == nil {
		return fmt.Errorf("%w context: nil", ErrInvalid)
	}
	if len(sources) < 1 || len(sources) > most {
		return fmt.Errorf("%w number of sources %d; it must be from 1 to ConsumerOptions.Concurrency (%d)", ErrInvalid, len(sources), most)
	}
	queues := make(map[*Queue]bool)
	for i, s := range sources {
		switch {
		case s.Queue == nil:
			return fmt.Errorf("%w source %d: Queue is nil", ErrInvalid, i)
		case s.Handler == nil:
			return fmt.Errorf("%w handler of queue %q: nil", ErrInvalid, s.Queue.options.Queue)
		case queues[s.Queue]:
			return fmt.Errorf("%w source %d: there is another source with queue %q", ErrInvalid, i, s.Queue.options.Queue)
		case s.Weight < 0 || s.Weight > 1000:
			return fmt.Errorf("%w source %d (queue %q): Weight %d; it must be from 1 to 1000, or 0 for 1", ErrInvalid, i, s.Queue.options.Queue, s.Weight)
		case s.MaxRunning < 0 || s.MaxRunning > 10_000:
			return fmt.Errorf("%w source %d (queue %q): MaxRunning %d; it must be from 1 to 10000, or 0 for no limit", ErrInvalid, i, s.Queue.options.Queue, s.MaxRunning)
		case !(s.Rate >= 0) || math.IsInf(s.Rate, 1): // or NaN
			return fmt.Errorf("%w source %d (queue %q): Rate %v; it must be positive, or 0 for no limit", ErrInvalid, i, s.Queue.options.Queue, s.Rate)
		}
		queues[s.Queue] = true
	}
	return nil
}
