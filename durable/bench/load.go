package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
)

const (
	bodySize   = 128
	callers    = 64
	partitions = 4
)

// far is the delay of messages that are not delivered during a measurement.
const far = 24 * time.Hour

// queue is a queue that a load runs on: one of this module, or another one.
type queue interface {
	enqueue(ctx context.Context, delay time.Duration) error

	// consume calls handle for each message, and returns nil when ctx has ended and all messages
	// that were handled are acknowledged.
	consume(ctx context.Context, handle func(due time.Time)) error
}

// ours is a queue of this module.
type ours struct{ q *durable.Queue }

func (o ours) enqueue(ctx context.Context, delay time.Duration) error {
	due := time.Now().Add(delay)
	_, err := o.q.Enqueue(ctx, durable.Message{Body: bodyDue(due), At: due})
	return err
}

func (o ours) consume(ctx context.Context, handle func(due time.Time)) error {
	return o.q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		handle(d.Due)
		return nil
	}, durable.ConsumerOptions{Concurrency: callers})
}

// bodyDue returns a body of random bytes that begins with a due time.
func bodyDue(due time.Time) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, bodySize), uint64(due.UnixNano()))
	for len(b) < bodySize {
		b = binary.BigEndian.AppendUint64(b, rand.Uint64())
	}
	return b
}

// dueOf returns the due time in a body of bodyDue.
func dueOf(body []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(body))) }

// withQueue runs f with a queue in a store.
func withQueue(ctx context.Context, store durable.Store, name string, f func(q *durable.Queue) error) error {
	q, err := durable.Open(ctx, store, durable.Options{Queue: name, Partitions: partitions})
	if err != nil {
		return err
	}
	defer q.Close()
	return f(q)
}

// rate returns how many messages per second f handles.
func rate(n int, f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return float64(n) / time.Since(start).Seconds(), err
}

// enqueueBatches enqueues n messages, 1,000 in each call, in two goroutines.
func enqueueBatches(ctx context.Context, q *durable.Queue, n int, delay time.Duration) error {
	return inParallel(2, func(k int) error {
		messages := make([]durable.Message, 1000)
		for done := k * 1000; done < n; done += 2000 {
			for i := range messages {
				messages[i] = durable.Message{Body: bodyDue(time.Time{}), Delay: delay}
			}
			if _, err := q.EnqueueBatch(ctx, messages[:min(1000, n-done)]); err != nil {
				return err
			}
		}
		return nil
	})
}

// enqueueEach enqueues n messages one by one in many goroutines.
func enqueueEach(ctx context.Context, q queue, n, goroutines int, delay time.Duration) error {
	var next atomic.Int64
	return inParallel(goroutines, func(int) error {
		for next.Add(1) <= int64(n) {
			if err := q.enqueue(ctx, delay); err != nil {
				return err
			}
		}
		return nil
	})
}

func inParallel(n int, f func(k int) error) error {
	var all errgroup.Group
	for k := range n {
		all.Go(func() error { return f(k) })
	}
	return all.Wait()
}

// drain consumes until n messages have been handled.
func drain(ctx context.Context, q queue, n int, handle func(due time.Time)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(n))
	err := q.consume(ctx, func(due time.Time) {
		if handle != nil {
			handle(due)
		}
		if left.Add(-1) == 0 {
			cancel()
		}
	})
	if err == nil && left.Load() > 0 {
		err = fmt.Errorf("%d of %d messages were not delivered: %w", left.Load(), n, context.Cause(ctx))
	}
	return err
}

// rateOf adds the row name: how many messages per second f handles with a queue in a store.
func rateOf(ctx context.Context, s settings, r *results, name string, store durable.Store, target float64, f func(q *durable.Queue) error) (speed float64, err error) {
	err = withQueue(ctx, store, "rate", func(q *durable.Queue) (err error) {
		speed, err = rate(s.messages, func() error { return f(q) })
		return err
	})
	if err == nil {
		r.add(name, speed, target, false, perSecond)
	}
	return speed, err
}

// batchRate is rateOf for enqueuing in batches.
func batchRate(ctx context.Context, s settings, r *results, name string, store durable.Store, target float64) (float64, error) {
	return rateOf(ctx, s, r, name, store, target, func(q *durable.Queue) error { return enqueueBatches(ctx, q, s.messages, far) })
}

// eachRate is rateOf for enqueuing one by one in many goroutines.
func eachRate(ctx context.Context, s settings, r *results, name string, store durable.Store, target float64, goroutines int) (float64, error) {
	return rateOf(ctx, s, r, name, store, target, func(q *durable.Queue) error {
		return enqueueEach(ctx, ours{q}, s.messages, goroutines, far)
	})
}

// deliverRate is rateOf for delivering and acknowledging messages that are all due.
func deliverRate(ctx context.Context, s settings, r *results, name string, store durable.Store, target float64) (float64, error) {
	if err := withQueue(ctx, store, "rate", func(q *durable.Queue) error { return enqueueBatches(ctx, q, s.messages, 0) }); err != nil {
		return 0, err
	}
	return rateOf(ctx, s, r, name, store, target, func(q *durable.Queue) error { return drain(ctx, ours{q}, s.messages, nil) })
}

// latenessOf adds rows with the lateness of a queue in a store, in milliseconds.
func latenessOf(ctx context.Context, s settings, r *results, name string, store durable.Store, p99, p999 float64) error {
	return withQueue(ctx, store, "late", func(q *durable.Queue) error {
		l, err := steadyLateness(ctx, ours{q}, 10_000, s.seconds)
		if err == nil {
			r.add(name+": lateness at 10k/s, p50", l.ms(0.5), 1, true, millis)
			r.add(name+": lateness at 10k/s, p99", l.ms(0.99), p99, true, millis)
			r.add(name+": lateness at 10k/s, p99.9", l.ms(0.999), p999, true, millis)
			r.add(name+": early", float64(l.early), 0, true, plain)
		}
		return err
	})
}

// lateness collects the lateness of deliveries.
type lateness struct {
	mu    sync.Mutex
	all   []time.Duration
	early int
	worst time.Duration // how early the earliest delivery was
}

func (l *lateness) add(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late < 0 {
		l.early++
		l.worst = max(l.worst, -late)
		late = 0
	}
	l.all = append(l.all, late)
}

// ms returns a percentile of the lateness in milliseconds, or 0 if there was no delivery. share is
// from 0 to 1.
func (l *lateness) ms(share float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0
	}
	slices.Sort(l.all)
	rank := int(math.Ceil(share * float64(len(l.all))))
	return float64(l.all[max(rank, 1)-1]) / float64(time.Millisecond)
}

// steadyLateness measures the lateness of perSec messages per second that are due a second after
// they are enqueued, on the clock of this machine.
func steadyLateness(ctx context.Context, q queue, perSec, seconds int) (*lateness, error) {
	l := new(lateness)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return drain(ctx, q, perSec*seconds, func(due time.Time) { l.add(time.Since(due)) })
	})
	both.Go(func() error {
		if err := sleep(ctx, time.Second); err != nil { // until the consumer is ready
			return err
		}
		start := time.Now()
		return inParallel(callers, func(k int) error {
			for i := k; i < perSec*seconds; i += callers {
				at := start.Add(time.Duration(i) * time.Second / time.Duration(perSec))
				if err := sleep(ctx, time.Until(at)); err != nil {
					return err
				}
				if err := q.enqueue(ctx, time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return l, both.Wait()
}

// sleep waits for d, and returns an error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
