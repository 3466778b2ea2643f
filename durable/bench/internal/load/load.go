package load

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
	Callers    = 64             // goroutines that enqueue, and handlers
	Partitions = 4              // of a queue
	Far        = 24 * time.Hour // delay of messages that are not delivered during a measurement
	bodySize   = 128
)

// Queue is a queue that a load runs on: one of package durable, or another one.
type Queue interface {
	Enqueue(ctx context.Context, delay time.Duration) error

	// Consume calls handle for each message, and returns nil when ctx has ended and all messages
	// that were handled are acknowledged.
	Consume(ctx context.Context, handle func(due time.Time)) error
}

// Ours returns a queue of package durable as a Queue.
func Ours(q *durable.Queue) Queue { return ours{q} }

type ours struct{ q *durable.Queue }

func (o ours) Enqueue(ctx context.Context, delay time.Duration) error {
	due := time.Now().Add(delay)
	_, err := o.q.Enqueue(ctx, durable.Message{Body: BodyDue(due), At: due})
	return err
}

func (o ours) Consume(ctx context.Context, handle func(due time.Time)) error {
	return o.q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		handle(d.Due)
		return nil
	}, durable.ConsumerOptions{Concurrency: Callers})
}

// BodyDue returns a body of random bytes that begins with a due time.
func BodyDue(due time.Time) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, bodySize), uint64(due.UnixNano()))
	for len(b) < bodySize {
		b = binary.BigEndian.AppendUint64(b, rand.Uint64())
	}
	return b
}

// DueOf returns the due time in a body of BodyDue.
func DueOf(body []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(body))) }

// WithQueue runs f with a queue in a store.
func WithQueue(ctx context.Context, store durable.Store, name string, f func(q *durable.Queue) error) error {
	q, err := durable.Open(ctx, store, durable.Options{Queue: name, Partitions: Partitions})
	if err != nil {
		return err
	}
	defer q.Close()
	return f(q)
}

// Rate returns how many messages per second f handles.
func Rate(n int, f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return float64(n) / time.Since(start).Seconds(), err
}

// EnqueueBatches enqueues n messages, 1,000 in each call, in two goroutines.
func EnqueueBatches(ctx context.Context, q *durable.Queue, n int, delay time.Duration) error {
	return inBatches(n, 2, func(n int) error {
		messages := make([]durable.Message, n)
		for i := range messages {
			messages[i] = durable.Message{Body: BodyDue(time.Time{}), Delay: delay}
		}
		_, err := q.EnqueueBatch(ctx, messages)
		return err
	})
}

// inBatches calls f with at most 1,000 of n messages per call, in many goroutines.
func inBatches(n, goroutines int, f func(n int) error) error {
	return InParallel(goroutines, func(k int) error {
		for done := k * 1000; done < n; done += goroutines * 1000 {
			if err := f(min(1000, n-done)); err != nil {
				return err
			}
		}
		return nil
	})
}

// EnqueueEach enqueues n messages one by one in many goroutines.
func EnqueueEach(ctx context.Context, enqueue func(context.Context, time.Duration) error, n, goroutines int, delay time.Duration) error {
	var next atomic.Int64
	return InParallel(goroutines, func(int) error {
		for next.Add(1) <= int64(n) {
			if err := enqueue(ctx, delay); err != nil {
				return err
			}
		}
		return nil
	})
}

// InParallel calls f in n goroutines, with the numbers from 0.
func InParallel(n int, f func(k int) error) error {
	var all errgroup.Group
	for k := range n {
		all.Go(func() error { return f(k) })
	}
	return all.Wait()
}

// Drain consumes until n messages have been handled. handle may be nil.
func Drain(ctx context.Context, q Queue, n int, handle func(due time.Time)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(n))
	err := q.Consume(ctx, func(due time.Time) {
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

// Rate adds the row name: how many messages per second f handles with a queue in a store.
func (b *Bench) Rate(ctx context.Context, name string, store durable.Store, target float64, f func(q *durable.Queue) error) (speed float64, err error) {
	err = WithQueue(ctx, store, "rate", func(q *durable.Queue) (err error) {
		speed, err = Rate(b.Messages, func() error { return f(q) })
		return err
	})
	if err == nil {
		b.Add(name, speed, target, false, PerSecond)
	}
	return speed, err
}

// BatchRate is Rate for enqueuing in batches.
func (b *Bench) BatchRate(ctx context.Context, name string, store durable.Store, target float64) (float64, error) {
	return b.Rate(ctx, name, store, target, func(q *durable.Queue) error { return EnqueueBatches(ctx, q, b.Messages, Far) })
}

// EachRate is Rate for enqueuing one by one in many goroutines.
func (b *Bench) EachRate(ctx context.Context, name string, store durable.Store, target float64, goroutines int) (float64, error) {
	return b.Rate(ctx, name, store, target, func(q *durable.Queue) error {
		return EnqueueEach(ctx, ours{q}.Enqueue, b.Messages, goroutines, Far)
	})
}

// DeliverRate is Rate for delivering and acknowledging messages that are all due.
func (b *Bench) DeliverRate(ctx context.Context, name string, store durable.Store, target float64) (float64, error) {
	if err := WithQueue(ctx, store, "rate", func(q *durable.Queue) error { return EnqueueBatches(ctx, q, b.Messages, 0) }); err != nil {
		return 0, err
	}
	return b.Rate(ctx, name, store, target, func(q *durable.Queue) error { return Drain(ctx, ours{q}, b.Messages, nil) })
}

// Lateness adds rows with the lateness of a queue in a store, in milliseconds, at perSec messages
// per second. targets are the targets for p50, p99 and p99.9.
func (b *Bench) Lateness(ctx context.Context, name string, store durable.Store, perSec int, targets [3]float64) error {
	return WithQueue(ctx, store, "late", func(q *durable.Queue) error {
		l, err := steadyLateness(ctx, ours{q}, perSec, b.Seconds)
		if err != nil {
			return err
		}
		for i, share := range []float64{0.5, 0.99, 0.999} {
			b.Add(fmt.Sprintf("%s: lateness at %dk/s, p%.4g", name, perSec/1000, 100*share), l.ms(share), targets[i], true, Millis)
		}
		b.Add(name+": early", float64(l.early), 0, true, Plain)
		return nil
	})
}

// Peer measures another queue. It returns how many tasks per second are enqueued and delivered. The
// other queue should keep up with perSec.
func (b *Bench) Peer(ctx context.Context, name string, q Queue, n, goroutines, perSec int) (enqueue, deliver float64, err error) {
	enqueue, err = Rate(n, func() error { return EnqueueEach(ctx, q.Enqueue, n, goroutines, 0) })
	if err == nil {
		deliver, err = Rate(n, func() error { return Drain(ctx, q, n, nil) })
	}
	if err != nil {
		return 0, 0, err
	}
	b.Note(fmt.Sprintf("%s: enqueue, %d callers, one by one", name, goroutines), PerSecond(enqueue))
	b.Note(name+": deliver and acknowledge", PerSecond(deliver))
	return enqueue, deliver, b.PeerLateness(ctx, name, q, perSec)
}

// PeerLateness adds rows with the lateness of another queue at perSec tasks per second.
func (b *Bench) PeerLateness(ctx context.Context, name string, q Queue, perSec int) error {
	l, err := steadyLateness(ctx, q, perSec, b.Seconds)
	if err != nil {
		return err
	}
	b.Note(fmt.Sprintf("%s: lateness at %.4gk/s, p50, p99, p99.9", name, float64(perSec)/1000),
		fmt.Sprintf("%.0f, %.0f, %.0f ms", l.ms(0.5), l.ms(0.99), l.ms(0.999)))
	b.Note(name+": early, and by how much", fmt.Sprintf("%d, %v", l.early, l.worst.Round(time.Millisecond)))
	return nil
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
func steadyLateness(ctx context.Context, q Queue, perSec, seconds int) (*lateness, error) {
	l := new(lateness)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return Drain(ctx, q, perSec*seconds, func(due time.Time) { l.add(time.Since(due)) })
	})
	both.Go(func() error {
		if err := Sleep(ctx, time.Second); err != nil { // until the consumer is ready
			return err
		}
		start := time.Now()
		return InParallel(Callers, func(k int) error {
			for i := k; i < perSec*seconds; i += Callers {
				at := start.Add(time.Duration(i) * time.Second / time.Duration(perSec))
				if err := Sleep(ctx, time.Until(at)); err != nil {
					return err
				}
				if err := q.Enqueue(ctx, time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return l, both.Wait()
}

// Sleep waits for d, and returns an error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
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
