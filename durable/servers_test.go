package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// A clock that is set back does not make a consumer call the store in a loop.
func TestClockSetBackDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64
		f := &faulty{Store: memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }})}
		q := open(t, f, durable.Options{Partitions: 1, OnError: func(error) {}})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "m", 13*time.Second)
		time.Sleep(10 * time.Second)
		off.Store(-int64(time.Minute))
		before := f.count("Claim")
		time.Sleep(10 * time.Second)
		assert.LessOrEqual(t, f.count("Claim")-before, int64(40), "claims in ten seconds")
		stop()
		q.Close()
		_ = f.Close()
		synctest.Wait()
	})
}

// skewedStore is a Cluster whose two masters have different clocks.
type skewedStore struct{ a, b *memstore.Store }

func (s skewedStore) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	a, err := s.a.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	b, err := s.b.Open(ctx, c)
	return skewedBackend{a, b}, err
}

func (s skewedStore) Close() error { return errors.Join(s.a.Close(), s.b.Close()) }

type skewedBackend struct {
	driver.Backend
	b driver.Backend
}

func (s skewedBackend) of(part int) driver.Backend {
	if part == 1 {
		return s.b
	}
	return s.Backend
}

func (s skewedBackend) Put(ctx context.Context, p driver.Put) ([]driver.Status, error) {
	return s.of(p.Partition).Put(ctx, p)
}

func (s skewedBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	return s.of(c.Partition).Claim(ctx, c)
}

func (s skewedBackend) Apply(ctx context.Context, b driver.Batch) ([]driver.Outcome, error) {
	return s.of(b.Partition).Apply(ctx, b)
}

func (s skewedBackend) Count(ctx context.Context, p int) (driver.Counts, error) {
	return s.of(p).Count(ctx, p)
}

// The clocks of the masters of a Cluster may differ.
func TestServersWithDifferentClocksDeliverInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: skewedStore{memstore.New(memstore.Options{}), memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(-2 * time.Second) }})}}
		q := open(t, f, durable.Options{Partitions: 2})
		var n atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { n.Add(1); return nil }, durable.ConsumerOptions{Visibility: time.Second})
		for i := range 200 {
			enqueue(t, q, fmt.Sprint(i), 3*time.Second+time.Duration(i)*100*time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		stop()
		s, _ := q.Stats(t.Context())
		t.Logf("%d delivered, %d claims, %d begins, %d extends, lateness %v", n.Load(), f.count("Claim"), f.count("Begin"), f.count("Extend"), s.Lateness)
		assert.EqualValues(t, 200, n.Load())
		assert.LessOrEqual(t, f.count("Begin"), int64(220))
		assert.LessOrEqual(t, f.count("Claim"), int64(700))
		assert.Less(t, s.Lateness.Max, 100*time.Millisecond)
		q.Close()
		_ = f.Close()
		synctest.Wait()
	})
}

// slowClaimsBackend delays the replies to claims. A claim takes effect even if its context ends
// before the reply.
type slowClaimsBackend struct{ driver.Backend }

func (s slowClaimsBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	r, err := s.Backend.Claim(ctx, c)
	select { // like a network client that respects contexts
	case <-time.After(10 * time.Millisecond):
		return r, err
	case <-ctx.Done():
		return driver.Claimed{}, ctx.Err()
	}
}

// A consumer that ends does not abandon its claim in progress.
func TestClaimInProgressIsNotAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Options{})
		q := open(t, wrapped{st, func(b driver.Backend) driver.Backend { return slowClaimsBackend{b} }}, durable.Options{Partitions: 1})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
		time.Sleep(5*time.Second + 500*time.Millisecond)
		enqueue(t, q, "m", 0)
		time.Sleep(5 * time.Millisecond)
		stop()
		s, _ := q.Stats(t.Context())
		assert.Zero(t, s.InFlight, "released when Consume has returned")
		q.Close()
		_ = st.Close()
		synctest.Wait()
	})
}

// far returns a store behind a network with a latency of 0.4 ms in each direction.
func far(s durable.Store) wrapped {
	return wrapped{s, func(b driver.Backend) driver.Backend { return farBackend{b} }}
}

type farBackend struct{ driver.Backend }

func (s farBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	time.Sleep(400 * time.Microsecond)
	defer time.Sleep(400 * time.Microsecond)
	return s.Backend.Claim(ctx, c)
}

func (s farBackend) Apply(ctx context.Context, b driver.Batch) ([]driver.Outcome, error) {
	time.Sleep(400 * time.Microsecond)
	defer time.Sleep(400 * time.Microsecond)
	return s.Backend.Apply(ctx, b)
}

// The clocks of two masters differ by less than the lead of a begin. No message is early on the
// clock of its own server.
func TestNotEarlyOnAnyServersClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func() time.Time { return time.Now().Add(-300 * time.Microsecond) }
		f := far(skewedStore{memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(400 * time.Microsecond) }}), memstore.New(memstore.Options{Now: slow})})
		q := open(t, f, durable.Options{Partitions: 2})
		var early, n atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			n.Add(1)
			if contract.PartitionOf(d.ID, 2) == 1 && slow().Before(d.Due) {
				early.Add(1)
			}
			return nil
		}, durable.ConsumerOptions{})
		for i := range 200 {
			enqueue(t, q, fmt.Sprint(i), 3*time.Second+time.Duration(i)*100*time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		stop()
		assert.EqualValues(t, 200, n.Load())
		assert.Zero(t, early.Load(), "messages that are early on the clock of their server")
		q.Close()
		_ = f.Close()
		synctest.Wait()
	})
}
