package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

const (
	bodySize   = 128
	callers    = 64
	partitions = 4
)

// far is the delay of messages that are not delivered during a measurement.
const far = 24 * time.Hour

func body() []byte { return make([]byte, bodySize) }

func openQueue(ctx context.Context, store durable.Store, name string) (*durable.Queue, error) {
	return durable.Open(ctx, store, durable.Options{Queue: name, Partitions: partitions})
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
				messages[i] = durable.Message{Body: body(), Delay: delay}
			}
			if _, err := q.EnqueueBatch(ctx, messages[:min(1000, n-done)]); err != nil {
				return err
			}
		}
		return nil
	})
}

// enqueueOne enqueues n messages one by one in many goroutines.
func enqueueOne(ctx context.Context, q *durable.Queue, n, goroutines int) error {
	var next atomic.Int64
	return inParallel(goroutines, func(int) error {
		for next.Add(1) <= int64(n) {
			if _, err := q.Enqueue(ctx, durable.Message{Body: body(), Delay: far}); err != nil {
				return err
			}
		}
		return nil
	})
}

func inParallel(n int, f func(k int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for k := range n {
		all.Go(func() { errs[k] = f(k) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// drain consumes until n messages have been handled.
func drain(ctx context.Context, q *durable.Queue, n int, handle func(d *durable.Delivery)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(n))
	err := q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		if handle != nil {
			handle(d)
		}
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}, durable.ConsumerOptions{Concurrency: callers})
	if err == nil && left.Load() > 0 {
		err = fmt.Errorf("%d of %d messages were not delivered: %w", left.Load(), n, context.Cause(ctx))
	}
	return err
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

// steady calls enqueue rate times per second, with a due time one second ahead.
func steady(ctx context.Context, rate, seconds int, enqueue func(at time.Time) error) error {
	start := time.Now()
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for k := range callers {
		all.Go(func() {
			for i := k; i < rate*seconds; i += callers {
				at := start.Add(time.Duration(i) * time.Second / time.Duration(rate))
				if wait := time.Until(at); wait > 0 {
					time.Sleep(wait)
				}
				if err := enqueue(time.Now().Add(time.Second)); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// sleep waits for d, and returns an error if ctx ends first.
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

// concurrently runs f and work, and returns when both have returned. If one of them fails, the
// context of the other ends.
func concurrently(ctx context.Context, work, f func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := work(ctx); err != nil {
			fail(err)
		}
	}()
	if err := f(ctx); err != nil {
		fail(err)
	}
	<-done
	return context.Cause(ctx)
}
