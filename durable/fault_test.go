package durable_test

import (
	"cmp"
	"context"
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
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// faulty is a store whose calls can be made to fail before or after they take effect. It remembers
// calls and claims, like a store behind a network.
type faulty struct {
	durable.Store
	fault  atomic.Pointer[func(call string) (before, after error)]
	calls  sync.Map // name → *atomic.Int64
	made   sync.Map // partition and caller → *madeCall
	claims sync.Map // partition and consumer → *madeClaim
}

// madeCall is a caller's last call.
type madeCall struct {
	seq    uint64
	result any
}

// once makes a call, or returns the result of the copy that has taken effect.
func once[R any](b *faultyBackend, partition int, c driver.Call, call func() (R, error)) (R, error) {
	key := fmt.Sprint(partition, c.Caller)
	if made, ok := b.f.made.Load(key); ok && made.(*madeCall).seq == c.Seq {
		return made.(*madeCall).result.(R), nil
	}
	r, err := call()
	if err == nil && c.Caller != "" {
		b.f.made.Store(key, &madeCall{c.Seq, r})
	}
	return r, err
}

// madeClaim is a consumer's last claim that returned messages, and the number of its last claim.
type madeClaim struct {
	seq     uint64
	records []driver.Record
}

// claim makes a claim. If the consumer has not seen the messages of its last claim, it returns
// those that are still leased, with new leases, and claims no others.
func (b *faultyBackend) claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	if c.Consumer == "" {
		return b.Backend.Claim(ctx, c)
	}
	last, _ := b.f.claims.LoadOrStore(fmt.Sprint(c.Partition, c.Consumer), new(madeClaim))
	made := last.(*madeClaim)
	if c.Seq < made.seq { // the consumer does not receive the answer
		return driver.Claimed{}, nil
	}
	made.seq = c.Seq
	unseen, err := b.renewUnseen(ctx, c, made.records)
	if err != nil {
		return driver.Claimed{}, err
	}
	if len(unseen) > 0 {
		c.Max = 0
	}
	claimed, err := b.Backend.Claim(ctx, c)
	if len(unseen) > 0 {
		claimed.Records = unseen
	}
	if len(claimed.Records) > 0 {
		made.records = claimed.Records
	}
	return claimed, err
}

// renewUnseen renews the leases of the records that the consumer of a claim has not seen, and
// returns those that it still holds.
func (b *faultyBackend) renewUnseen(ctx context.Context, c driver.Claim, records []driver.Record) (unseen []driver.Record, err error) {
	for _, r := range records {
		if r.Token <= c.Seen {
			continue
		}
		outcomes, err := b.Backend.Apply(ctx, driver.Batch{Partition: c.Partition, Op: driver.OpExtend, Changes: []driver.Change{
			{ID: r.ID, Token: r.Token, Delay: cmp.Or(c.Hold, c.Visibility), Begun: c.Visibility},
		}})
		if err != nil {
			return nil, err
		}
		if outcomes[0].Status != driver.StatusDone {
			continue
		}
		if r, err = b.Backend.Get(ctx, c.Partition, r.ID); err != nil {
			return nil, err
		}
		unseen = append(unseen, r)
	}
	return unseen, nil
}

func (f *faulty) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	b, err := f.Store.Open(ctx, config)
	return &faultyBackend{b, f}, err
}

func (f *faulty) set(fault func(call string) (before, after error)) { f.fault.Store(&fault) }

func (f *faulty) count(call string) int64 {
	n, _ := f.calls.LoadOrStore(call, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

type faultyBackend struct {
	driver.Backend
	f *faulty
}

func during[R any](b *faultyBackend, name string, call func() (R, error)) (r R, err error) {
	n, _ := b.f.calls.LoadOrStore(name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	var before, after error
	if fault := b.f.fault.Load(); fault != nil {
		before, after = (*fault)(name)
	}
	if before != nil {
		return r, before
	}
	r, err = call()
	if after != nil {
		var zero R
		return zero, after
	}
	return r, err
}

func (b *faultyBackend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	return during(b, "Put", func() ([]driver.Status, error) {
		return once(b, put.Partition, put.Call, func() ([]driver.Status, error) { return b.Backend.Put(ctx, put) })
	})
}

func (b *faultyBackend) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	return during(b, "Claim", func() (driver.Claimed, error) { return b.claim(ctx, claim) })
}

func (b *faultyBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	return during(b, opNames[batch.Op], func() ([]driver.Outcome, error) {
		return once(b, batch.Partition, batch.Call, func() ([]driver.Outcome, error) { return b.Backend.Apply(ctx, batch) })
	})
}

func (b *faultyBackend) Pause(ctx context.Context, pause driver.Pause) error {
	_, err := during(b, "Pause", func() (struct{}, error) {
		return once(b, pause.Partition, pause.Call, func() (struct{}, error) { return struct{}{}, b.Backend.Pause(ctx, pause) })
	})
	return err
}

func (b *faultyBackend) Get(ctx context.Context, partition int, id string) (driver.Record, error) {
	return during(b, "Get", func() (driver.Record, error) { return b.Backend.Get(ctx, partition, id) })
}

func (b *faultyBackend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]driver.Member, error) {
	return during(b, "Heartbeat", func() ([]driver.Member, error) { return b.Backend.Heartbeat(ctx, member, ttl) })
}

func (b *faultyBackend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	return during(b, "Watch", func() (<-chan driver.Hint, error) { return b.Backend.Watch(ctx) })
}

var opNames = map[driver.Op]string{
	driver.OpBegin: "Begin", driver.OpAck: "Ack", driver.OpRetry: "Retry", driver.OpBury: "Bury", driver.OpRelease: "Release",
	driver.OpExtend: "Extend", driver.OpCancel: "Cancel", driver.OpReschedule: "Reschedule", driver.OpReplay: "Replay", driver.OpPurge: "Purge",
	driver.OpExpire: "Expire", driver.OpRepeat: "Repeat",
}

// faultyBubble is bubble with a faulty store.
func faultyBubble(t *testing.T, options durable.Options, body func(t *testing.T, q *durable.Queue, f *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New(memstore.Options{})}
		if options.OnError == nil {
			options.OnError = func(error) {}
		}
		q := open(t, f, options)
		body(t, q, f)
		q.Close()
		require.NoError(t, f.Close())
		synctest.Wait()
	})
}

// fixed returns a constant backoff.
func fixed(pause time.Duration) func(*durable.Delivery, error) time.Duration {
	return func(*durable.Delivery, error) time.Duration { return pause }
}

var errDown = fmt.Errorf("connection refused: %w", durable.ErrUnavailable)

// twoOfThree makes two of three calls with a name fail, half of them after they have taken effect.
func twoOfThree(name string) func(string) (before, after error) {
	var n atomic.Int64
	return func(call string) (before, after error) {
		if call != name {
			return nil, nil
		}
		switch n.Add(1) % 3 {
		case 1:
			return errDown, nil
		case 2:
			return nil, errDown
		}
		return nil, nil
	}
}

// Two of three calls fail, half of them after they have taken effect. No message is lost and none
// is delivered twice.
func TestLostRepliesNeitherLoseNorRepeatMessages(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Put", "Begin", "Ack", "Retry", "Bury", "Extend", "Heartbeat", "Watch"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{MaxAttempts: 3}, func(t *testing.T, q *durable.Queue, f *faulty) {
				f.set(twoOfThree(call))
				var got deliveries
				start := time.Now()
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					got.add(start, d)
					switch {
					case d.ID[0] == 'r' && d.Attempts < 1, d.ID[0] == 'd':
						return assert.AnError
					case d.ID[0] == 'l':
						time.Sleep(5 * time.Second)
					}
					return nil
				}, durable.ConsumerOptions{Visibility: 3 * time.Second, Backoff: fixed(time.Second)})
				for i := range 30 {
					id := string("ardl"[i%4]) + fmt.Sprint(i)
					_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Duration(i) * 100 * time.Millisecond})
					require.NoError(t, err)
				}
				time.Sleep(3 * time.Minute)
				stop()
				want := make(map[string]int)
				for i := range 30 {
					want[string("ardl"[i%4])+fmt.Sprint(i)] = []int{1, 2, 3, 1}[i%4]
				}
				times := make(map[string]int)
				for _, d := range got.list() {
					times[d.id]++
					assert.GreaterOrEqual(t, d.at, d.due)
				}
				assert.Equal(t, want, times)
				assert.Positive(t, f.count(call), "the call was made")
				f.set(func(string) (error, error) { return nil, nil })
				stats, err := q.Stats(t.Context())
				require.NoError(t, err)
				assert.EqualValues(t, 30, stats.Enqueued)
				assert.EqualValues(t, 7, stats.Dead)
				assert.Zero(t, stats.Scheduled+stats.InFlight)
			})
		})
	}
}

// If a lease cannot be extended, the handler's context ends before another consumer can get the
// message.
func TestContextEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var cancelled atomic.Pointer[time.Time]
		var again atomic.Pointer[time.Time]
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			now := time.Now()
			if d.Crashes > 0 {
				again.Store(&now)
				return nil
			}
			f.set(failing("Extend", errDown))
			<-ctx.Done()
			now = time.Now()
			cancelled.Store(&now)
			assert.ErrorIs(t, context.Cause(ctx), durable.ErrLeaseLost)
			time.Sleep(time.Minute)
			return nil
		}, durable.ConsumerOptions{Visibility: 8 * time.Second})
		start := time.Now()
		enqueue(t, q, "m", 0)
		time.Sleep(30 * time.Second)
		require.NotNil(t, cancelled.Load())
		require.NotNil(t, again.Load())
		assert.Less(t, cancelled.Load().Sub(start), 8*time.Second)
		assert.GreaterOrEqual(t, again.Load().Sub(start), 8*time.Second)
		assert.Less(t, again.Load().Sub(start), 9100*time.Millisecond, "at most a second after the end of the lease")
		time.Sleep(time.Minute)
		stop()
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Acked)
		assert.EqualValues(t, 1, stats.Crashed)
	})
}

// While the store is unreachable, no message is lost. When it is reachable again, all messages are
// delivered.
func TestOutageLosesNothing(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{RetryFor: time.Hour}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var got deliveries
		start := time.Now()
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			return nil
		}, durable.ConsumerOptions{})
		for i := range 20 {
			enqueue(t, q, fmt.Sprint("before", i), time.Duration(i)*time.Second)
		}
		time.Sleep(5 * time.Second)
		f.set(func(string) (before, after error) { return errDown, nil })
		enqueued := make(chan error)
		go func() {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: "meanwhile"})
			enqueued <- err
		}()
		time.Sleep(2 * time.Minute)
		f.set(func(string) (before, after error) { return nil, nil })
		require.NoError(t, <-enqueued)
		time.Sleep(10 * time.Second)
		stop()
		ids := make(map[string]bool)
		for _, id := range got.ids() {
			ids[id] = true
		}
		assert.Len(t, ids, 21)
	})
}

// If the store stays unreachable, a call fails after RetryFor with ErrUnavailable.
func TestCallFailsAfterRetryFor(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{RetryFor: time.Minute}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(string) (before, after error) { return errDown, nil })
		start := time.Now()
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m"})
		require.ErrorIs(t, err, durable.ErrUnavailable)
		require.ErrorIs(t, err, durable.ErrOutcomeUnknown)
		assert.ErrorContains(t, err, "connection refused")
		assert.InDelta(t, 60, time.Since(start).Seconds(), 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = q.Enqueue(ctx, durable.Message{ID: "m"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, durable.ErrOutcomeUnknown)
	})
}

// The store stops answering while one call is sent and another waits. RetryFor ends, or the queue
// is closed.
func TestErrorsTellWhetherACallWasSent(t *testing.T) {
	t.Parallel()
	for _, want := range []error{durable.ErrUnavailable, durable.ErrClosed} {
		faultyBubble(t, durable.Options{Partitions: 1, RetryFor: 10 * time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
			f.set(func(string) (before, after error) { time.Sleep(time.Second); return nil, errDown })
			sent, waiting := make(chan error), make(chan error)
			go func() { _, err := q.Enqueue(t.Context(), durable.Message{ID: "sent"}); sent <- err }()
			synctest.Wait()
			go func() { _, err := q.Enqueue(t.Context(), durable.Message{ID: "waiting"}); waiting <- err }()
			synctest.Wait()
			if want == durable.ErrClosed { //nolint:errorlint // one of two values
				q.Close()
			}
			err := <-sent
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, durable.ErrOutcomeUnknown)
			err = <-waiting
			require.ErrorIs(t, err, want)
			assert.NotErrorIs(t, err, durable.ErrOutcomeUnknown)
		})
	}
}

// A reply is lost, and the next copy of the call gets another error, or the context ends. The call
// has taken effect.
func TestErrorsTellThatACallMayHaveTakenEffect(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(q *durable.Queue, d *durable.Delivery, ctx context.Context) error{
		"Put": func(q *durable.Queue, _ *durable.Delivery, ctx context.Context) error {
			_, err := q.Enqueue(ctx, durable.Message{ID: "new"})
			return err
		},
		"Cancel": func(q *durable.Queue, _ *durable.Delivery, ctx context.Context) error {
			_, err := q.Cancel(ctx, "later")
			return err
		},
		"Ack":     func(_ *durable.Queue, d *durable.Delivery, ctx context.Context) error { return d.Ack(ctx) },
		"Retry":   func(_ *durable.Queue, d *durable.Delivery, ctx context.Context) error { return d.Nack(ctx, nil) },
		"Release": func(_ *durable.Queue, d *durable.Delivery, ctx context.Context) error { return d.Release(ctx) },
		"Extend": func(_ *durable.Queue, d *durable.Delivery, ctx context.Context) error {
			return d.Extend(ctx, time.Hour)
		},
	} {
		for want, then := range map[error]func(attempt int) error{
			durable.ErrBroken:        func(int) error { return durable.ErrBroken },
			durable.ErrClosed:        func(int) error { return durable.ErrClosed },
			context.DeadlineExceeded: func(int) error { time.Sleep(time.Minute); return errDown },
		} {
			faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
				enqueue(t, q, "later", time.Hour)
				enqueue(t, q, "now", 0)
				d := take(t, q)
				attempts := 0
				f.set(func(call string) (before, after error) {
					if call != name {
						return nil, nil
					}
					if attempts++; attempts == 1 {
						return nil, errDown
					}
					return then(attempts), nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := call(q, d, ctx)
				assert.ErrorIs(t, err, want, name)
				assert.ErrorIs(t, err, durable.ErrOutcomeUnknown, name)
				f.set(working)
				time.Sleep(2 * time.Minute) // until the call is over
			})
		}
	}
}

// An idle consumer makes at most two calls per second and partition.
func TestIdleConsumerMakesFewCalls(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 4}, func(t *testing.T, q *durable.Queue, f *faulty) {
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "far", time.Hour)
		time.Sleep(10 * time.Second)
		before := f.count("Claim") + f.count("Heartbeat")
		time.Sleep(100 * time.Second)
		assert.LessOrEqual(t, f.count("Claim")+f.count("Heartbeat")-before, int64(2*4*100))
		assert.LessOrEqual(t, f.count("Claim")+f.count("Heartbeat")-before, int64(4*101+100))
		stop()
	})
}

// A process is suspended for longer than the lease after it has taken a message, and the message is
// cancelled in the meantime. When the process continues, no handler is called for the message.
func TestHandlerIsNotCalledAfterItsLease(t *testing.T) {
	t.Parallel()
	var reported reportedErrors
	var calls atomic.Int64
	var cut atomic.Bool
	options := durable.Options{Partitions: 1, OnError: reported.add, OnEvent: func(e durable.Event) {
		if e.Kind == durable.EventDelivered && e.ID == "m" {
			cut.Store(true)
			time.Sleep(30 * time.Second) // between taking the message and calling the handler
		}
	}}
	faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(name string) (before, after error) {
			if name == "Extend" && cut.Load() {
				return errDown, nil
			}
			return nil, nil
		})
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			if d.ID == "m" {
				calls.Add(1)
			}
			return nil
		}, durable.ConsumerOptions{Concurrency: 1, Visibility: 8 * time.Second, Backoff: fixed(time.Hour)})
		enqueue(t, q, "m", 0)
		time.Sleep(20 * time.Second)
		r, err := q.Cancel(t.Context(), "m")
		require.NoError(t, err)
		require.Equal(t, durable.ResultCancelled, r)
		enqueue(t, q, "next", 0)
		time.Sleep(time.Minute)
		stop()
		assert.Zero(t, calls.Load(), "calls to the handler after ResultCancelled")
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Acked, "the worker handles the next message")
		assert.Equal(t, 1, strings.Count(reported.text(), durable.ErrLeaseLost.Error()), reported.text())
	})
}
