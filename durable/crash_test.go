package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// Tests with suspects are not parallel, because the suspects of a process run one at a time.

// One message ends its process each time, half a minute after it was delivered. It alone becomes a
// dead letter, and the messages that ran beside it crash at most twice. Those that take longer than
// the process lives run one at a time from then on, and one of them takes an hour.
func TestMessageThatEndsItsProcessDiesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		const neighbours = 63
		var handled sync.Map
		left := int64(neighbours)
		for life := 0; left > 0; life++ {
			require.Less(t, life, 20)
			process := &faulty{Store: store}
			q := open(t, process, durable.Options{Partitions: 2, OnError: func(error) {}})
			if life == 0 {
				enqueueAll(t, q, "neighbour", neighbours, 0)
				enqueue(t, q, "killer", 0)
			}
			var most atomic.Int64
			ended := make(chan struct{})
			stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
				n := 0
				_, _ = fmt.Sscanf(d.ID, "neighbour%d", &n)
				work := time.Duration(n) * time.Second
				switch {
				case d.ID == "killer":
					work = 30 * time.Second
				case n == 62:
					work = time.Hour
				}
				select {
				case <-time.After(work):
				case <-ctx.Done():
					return ctx.Err()
				}
				if d.ID == "killer" {
					process.set(func(string) (error, error) { return errDown, nil })
					close(ended)
					return ctx.Err()
				}
				most.Store(max(most.Load(), int64(d.Crashes)))
				handled.Store(d.ID, true)
				return nil
			}, durable.ConsumerOptions{})
			for waiting := true; waiting; {
				select {
				case <-ended:
					waiting = false
				case <-time.After(time.Minute):
					s, err := q.Stats(t.Context())
					require.NoError(t, err)
					left = s.Scheduled + s.InFlight
					waiting = left > 0
				}
			}
			stop()
			q.Close()
			assert.LessOrEqual(t, most.Load(), int64(2), "life %d", life)
		}
		q := open(t, store, durable.Options{Partitions: 2})
		var dead []string
		for r, err := range q.List(t.Context(), durable.StateDead) {
			require.NoError(t, err)
			dead = append(dead, r.ID)
			assert.Equal(t, "the consumer process ended or hung 10 times during delivery, last "+contract.Process(), r.Reason)
		}
		assert.Equal(t, []string{"killer"}, dead)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, neighbours, s.Acked)
		q.Close()
		require.NoError(t, store.Close())
		synctest.Wait()
	})
}

// crash makes messages of a queue with one partition crash a number of times. They are due then.
func crash(t *testing.T, store durable.Store, queue string, times int, ids ...string) {
	t.Helper()
	b, err := store.Open(t.Context(), driver.Config{Queue: queue, Partitions: 1})
	require.NoError(t, err)
	for range times {
		for _, op := range []driver.Op{driver.OpReschedule, driver.OpBegin} {
			claimed, err := b.Claim(t.Context(), driver.Claim{Max: len(ids), MaxBytes: 1 << 20, Visibility: time.Millisecond})
			require.NoError(t, err)
			var changes []driver.Change
			if op == driver.OpReschedule {
				for _, id := range ids {
					changes = append(changes, driver.Change{ID: id})
				}
			}
			for _, r := range claimed.Records {
				if op == driver.OpBegin {
					changes = append(changes, driver.Change{ID: r.ID, Token: r.Token})
				}
			}
			outcomes, err := b.Apply(t.Context(), driver.Batch{Op: op, Visibility: time.Millisecond, Changes: changes})
			require.NoError(t, err)
			require.Len(t, outcomes, len(ids))
		}
		time.Sleep(time.Second)
	}
	_, err = b.Claim(t.Context(), driver.Claim{})
	require.NoError(t, err)
	time.Sleep(time.Minute)
}

// suspects runs a test in a bubble with two queues of one store, each with messages that have
// crashed a number of times.
func suspects(t *testing.T, crashes int, ids []string, body func(t *testing.T, a, b *durable.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		var queues []*durable.Queue
		for _, name := range []string{"a", "b"} {
			q := open(t, store, durable.Options{Queue: name, Partitions: 1, OnError: func(error) {}})
			for _, id := range ids {
				enqueue(t, q, id, 0)
			}
			crash(t, store, name, crashes, ids...)
			queues = append(queues, q)
		}
		body(t, queues[0], queues[1])
		for _, q := range queues {
			q.Close()
		}
		require.NoError(t, store.Close())
		synctest.Wait()
	})
}

// A message takes an hour. After its first crash it delays no other message. After its second crash
// it delays only suspects, which do not hold handlers while they wait.
func TestLongMessageThatCrashedHoldsUpNobody(t *testing.T) {
	for crashes := 1; crashes <= 2; crashes++ {
		suspects(t, crashes, []string{"long", "next"}, func(t *testing.T, a, _ *durable.Queue) {
			var short, long, next atomic.Int64
			handler := func(_ context.Context, d *durable.Delivery) error {
				switch d.ID {
				case "long":
					long.Add(1)
					time.Sleep(time.Hour)
				case "next":
					next.Add(1)
				default:
					short.Add(1)
				}
				return nil
			}
			options := durable.ConsumerOptions{Concurrency: 2, Grace: 2 * time.Hour}
			defer consume(t, a, handler, options)()
			time.Sleep(time.Second)
			enqueueAll(t, a, "m", 100, time.Second)
			waitUntil(t, func() bool { return short.Load() == 100 })
			assert.EqualValues(t, 1, long.Load())
			assert.EqualValues(t, map[int]int64{1: 1, 2: 0}[crashes], next.Load())
			if crashes == 2 { // it has not begun
				for range 100 {
					time.Sleep(time.Second)
					r, err := a.Get(t.Context(), "next")
					require.NoError(t, err)
					assert.NotEqual(t, durable.StateFiring, r.State)
				}
				result, err := a.Cancel(t.Context(), "next")
				require.NoError(t, err)
				assert.Equal(t, durable.ResultCancelled, result)
				return
			}
			took := waitUntil(t, func() bool { return next.Load() == 1 })
			assert.Less(t, took, time.Second)
		})
	}
}

// Suspects of two queues run one at a time, beside other messages, and all of them run.
func TestSuspectsOfAProcessRunOneAtATime(t *testing.T) {
	ids := []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"}
	suspects(t, 2, ids, func(t *testing.T, a, b *durable.Queue) {
		var running, most, handled, others atomic.Int64
		handler := func(_ context.Context, d *durable.Delivery) error {
			if d.Crashes < 2 {
				others.Add(1)
				time.Sleep(time.Second)
				return nil
			}
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(10 * time.Second)
			running.Add(-1)
			if handled.Add(1)%3 == 0 {
				return errors.New("failed")
			}
			return nil
		}
		options := durable.ConsumerOptions{Concurrency: 4, Backoff: fixed(time.Second)}
		defer consume(t, a, handler, options)()
		defer consume(t, b, handler, options)()
		for range 100 {
			enqueue(t, a, "", 0)
			enqueue(t, b, "", 0)
			time.Sleep(time.Second / 3)
		}
		waitUntil(t, func() bool { return others.Load() == 200 && handled.Load() >= 16+7 })
		assert.EqualValues(t, 1, most.Load())
		time.Sleep(time.Minute)
		for _, q := range []*durable.Queue{a, b} {
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Zero(t, s.Scheduled+s.InFlight+s.Dead)
		}
	})
}

// The turn of a suspect ends however its delivery ends. Otherwise others would wait forever.
func TestTurnOfSuspectEnds(t *testing.T) {
	const long = 10 * time.Minute
	for name, c := range map[string]struct {
		first   durable.Handler // of one of the two messages
		options durable.ConsumerOptions
		most    time.Duration // until both are handled
	}{
		"panic": {first: func(context.Context, *durable.Delivery) error { panic("a panic") }, most: time.Minute},
		"settled by a handler that goes on": {first: func(ctx context.Context, d *durable.Delivery) error {
			defer time.Sleep(time.Minute)
			return d.Ack(ctx)
		}, most: time.Minute + time.Second},
		"released by a handler that goes on": {first: func(ctx context.Context, d *durable.Delivery) error {
			defer time.Sleep(time.Minute)
			return d.Release(ctx)
		}, most: time.Minute + time.Second},
		"timeout is ignored": {
			first:   func(context.Context, *durable.Delivery) error { time.Sleep(long); return nil },
			options: durable.ConsumerOptions{HandlerTimeout: time.Minute}, most: 3 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			suspects(t, 2, []string{"a", "b"}, func(t *testing.T, q, _ *durable.Queue) {
				var n, handled atomic.Int64
				defer consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					defer handled.Add(1)
					if n.Add(1) == 1 {
						return c.first(ctx, d)
					}
					return nil
				}, c.options)()
				took := waitUntil(t, func() bool {
					s, err := q.Stats(t.Context())
					require.NoError(t, err)
					return s.Acked == 2
				})
				assert.LessOrEqual(t, took, c.most)
				time.Sleep(long)
			})
		})
	}
}

// The turn ends with the lease of a receiver, and with a consumer that does not wait for its
// handler.
func TestTurnOfAbandonedSuspectEnds(t *testing.T) {
	suspects(t, 2, []string{"a", "b", "c"}, func(t *testing.T, q, other *durable.Queue) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Minute})
		first := take(t, r)
		start := time.Now()
		for i := range 3 {
			d := take(t, r)
			require.NoError(t, d.Ack(t.Context()))
			if i == 0 {
				assert.InDelta(t, 60, time.Since(start).Seconds(), 1)
			}
			if d.ID == first.ID {
				assert.Equal(t, 3, d.Crashes)
			}
		}
		r.Close()

		stop := consume(t, other, func(context.Context, *durable.Delivery) error { time.Sleep(time.Hour); return nil },
			durable.ConsumerOptions{Grace: time.Second})
		time.Sleep(time.Minute)
		stop()
		start = time.Now()
		require.NoError(t, take(t, other).Ack(t.Context()))
		assert.Less(t, time.Since(start), 5*time.Second)
		time.Sleep(time.Hour)
	})
}

// Close returns while suspects wait for their turn, and they count nothing.
func TestCloseReleasesWaitingSuspects(t *testing.T) {
	ids := []string{"s0", "s1", "s2", "s3"}
	suspects(t, 2, ids, func(t *testing.T, q, _ *durable.Queue) {
		stop := consume(t, q, func(ctx context.Context, _ *durable.Delivery) error { <-ctx.Done(); return ctx.Err() },
			durable.ConsumerOptions{Grace: time.Second})
		time.Sleep(time.Minute)
		start := time.Now()
		stop()
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
		for _, id := range ids {
			r, err := q.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, []any{durable.StateScheduled, 2, 0}, []any{r.State, r.Crashes, r.Attempts})
		}
	})
}

// A suspect that waits for a handler goes to another consumer, like any other message.
func TestSuspectWaitsForNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		q := open(t, store, durable.Options{Partitions: 1})
		enqueue(t, q, "suspect", 0)
		crash(t, store, "default", 2, "suspect")
		_, err := q.Reschedule(t.Context(), "suspect", 20*time.Second)
		require.NoError(t, err)
		end := make(chan struct{})
		handler := func(_ context.Context, d *durable.Delivery) error {
			if d.ID == "long" {
				<-end
			}
			return nil
		}
		var stops []func()
		for range 2 { // the first one owns the partition
			stops = append(stops, consume(t, q, handler, durable.ConsumerOptions{Concurrency: 1}))
			time.Sleep(4 * time.Second)
		}
		enqueue(t, q, "long", 0)
		time.Sleep(11 * time.Second)
		r, err := q.Get(t.Context(), "suspect")
		require.NoError(t, err)
		require.Equal(t, 2, r.Crashes)
		waitUntil(t, func() bool {
			_, err := q.Get(t.Context(), "suspect")
			return errors.Is(err, durable.ErrNotFound)
		})
		assert.LessOrEqual(t, time.Since(r.Due), 2*time.Second)
		close(end)
		stopAll(stops)
		q.Close()
		require.NoError(t, store.Close())
	})
}

// otherProcess is a backend of a consumer in another process.
type otherProcess struct{ driver.Backend }

func (b otherProcess) Heartbeat(ctx context.Context, m driver.Member, ttl time.Duration) ([]driver.Member, error) {
	m.PID++
	return b.Backend.Heartbeat(ctx, m, ttl)
}

// While a suspect runs for an hour, another process claims those that wait in this one. Otherwise
// they stay where they are. Other messages are not late.
func TestWaitingSuspectsAreLeftToOtherProcesses(t *testing.T) {
	for _, other := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			q := open(t, store, durable.Options{Partitions: 1})
			enqueueAll(t, q, "suspect", 3, 0)
			crash(t, store, "default", 2, "suspect0", "suspect1", "suspect2")
			wrap := func(b driver.Backend) driver.Backend {
				if other {
					return otherProcess{b}
				}
				return b
			}
			var claimed, short, releases atomic.Int64
			second := open(t, wrapped{store, wrap}, durable.Options{Partitions: 1, OnEvent: func(e durable.Event) {
				if e.Kind == durable.EventClaimed && strings.HasPrefix(e.ID, "suspect") {
					claimed.Add(1)
				}
			}})
			var most atomic.Int64
			handler := func(_ context.Context, d *durable.Delivery) error {
				if d.Crashes > 0 {
					time.Sleep(time.Hour)
					return nil
				}
				most.Store(max(most.Load(), int64(time.Since(d.Due))))
				short.Add(1)
				return nil
			}
			first := open(t, wrapped{store, func(b driver.Backend) driver.Backend { return releaseBackend{b, &releases} }}, durable.Options{Partitions: 1})
			stops := []func(){consume(t, first, handler, durable.ConsumerOptions{Grace: 2 * time.Hour, SlowHandler: 2 * time.Hour})}
			time.Sleep(10 * time.Second)
			stops = append(stops, consume(t, second, handler, durable.ConsumerOptions{Concurrency: 1, SlowHandler: 2 * time.Hour}))
			for range 600 {
				enqueue(t, first, "", time.Second)
				time.Sleep(100 * time.Millisecond)
			}
			if other {
				waitUntil(t, func() bool { return claimed.Load() > 0 })
			} else {
				assert.Zero(t, claimed.Load()+releases.Load())
			}
			t.Logf("%d claims of suspects by the other one, %d releases, at most %v late", claimed.Load(), releases.Load(), time.Duration(most.Load()))
			assert.LessOrEqual(t, releases.Load(), int64(100))
			assert.Less(t, time.Duration(most.Load()), 1500*time.Millisecond)
			waitUntil(t, func() bool { return short.Load() == 600 })
			stopAll(stops)
			for _, q := range []*durable.Queue{q, first, second} {
				q.Close()
			}
			require.NoError(t, store.Close())
			synctest.Wait()
		})
	}
}
