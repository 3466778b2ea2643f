package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// ackTransaction acknowledges a delivery when it commits.
type ackTransaction struct {
	backend driver.Backend
	batch   driver.Batch
}

func prepareAck(t *testing.T, d *durable.Delivery) ackTransaction {
	t.Helper()
	b, batch, err := d.PrepareAck()
	require.NoError(t, err)
	require.Len(t, batch.Changes, 1)
	return ackTransaction{b, batch}
}

// commit acknowledges the message, unless it is no longer firing with the token. It returns the
// status.
func (x ackTransaction) commit() driver.Status {
	ctx, c := context.Background(), x.batch.Changes[0]
	r, err := x.backend.Get(ctx, x.batch.Partition, c.ID)
	if errors.Is(err, durable.ErrNotFound) {
		return driver.StatusNotFound
	}
	if r.State != driver.StateFiring || r.Token != c.Token {
		return driver.StatusLeaseLost
	}
	outcomes, err := x.backend.Apply(ctx, x.batch)
	if err != nil {
		return 0
	}
	return outcomes[0].Status
}

const notCommitted = "has not committed"

// A handler acknowledges its message in a transaction. If that has committed, the message is acked
// with any result of the handler. Otherwise the result of the handler counts, and nil releases the
// message with an error.
func TestHandlerAcknowledgesInATransaction(t *testing.T) {
	t.Parallel()
	failure := errors.New("no connection")
	committed := func(ctx context.Context, x ackTransaction) { assert.Equal(t, driver.StatusDone, x.commit()) }
	rolledBack := func(context.Context, ackTransaction) {}
	for _, c := range []struct {
		name   string
		end    func(ctx context.Context, x ackTransaction)
		result error
		event  string // of the first delivery
		again  bool   // there is a second delivery
	}{
		{"committed", committed, nil, "Acked", false},
		{"committed, error", committed, failure, "Acked", false},
		{"committed, Reject", committed, durable.Reject(failure), "Acked", false},
		{"committed, Postpone", committed, durable.Postpone(time.Minute), "Acked", false},
		{"committed, Again", committed, durable.Again(time.Minute), "Acked", false},
		{"committed, runs on", func(ctx context.Context, x ackTransaction) {
			committed(ctx, x)
			time.Sleep(10 * time.Minute)
			assert.NoError(t, ctx.Err(), "the lease was not lost")
		}, failure, "Acked", false},
		{"committed after extensions", func(ctx context.Context, x ackTransaction) {
			time.Sleep(10 * time.Minute)
			committed(ctx, x)
			assert.NoError(t, ctx.Err())
		}, nil, "Acked", false},
		{"rolled back", rolledBack, nil, "Error", true},
		{"rolled back, error", rolledBack, failure, "Retried", true},
		{"rolled back, Reject", rolledBack, durable.Reject(failure), "Buried", false},
		{"rolled back, Postpone", rolledBack, durable.Postpone(time.Minute), "Postponed", true},
		{"rolled back, Again", rolledBack, durable.Again(time.Minute), "Again", true},
		{"rolled back, runs on", func(context.Context, ackTransaction) { time.Sleep(10 * time.Minute) }, nil, "Error", true},
		{"committed too late", func(_ context.Context, x ackTransaction) {
			time.AfterFunc(time.Second, func() { assert.Equal(t, driver.StatusLeaseLost, x.commit()) })
		}, failure, "Retried", true},
	} {
		for _, repeat := range []string{"", "@every 1h"} {
			t.Run(c.name+repeat, func(t *testing.T) {
				t.Parallel()
				var es events
				var errs reportedErrors
				bubble(t, durable.Options{OnEvent: es.add, OnError: errs.add}, func(t *testing.T, q *durable.Queue) {
					_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Delay: time.Hour, Repeat: repeat})
					require.NoError(t, err)
					var n atomic.Int64
					stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
						x := prepareAck(t, d)
						if n.Add(1) > 1 {
							assert.Equal(t, c.event == "Retried", d.Attempts == 1)
							committed(ctx, x)
							return nil
						}
						c.end(ctx, x)
						return c.result
					}, durable.ConsumerOptions{Visibility: 10 * time.Second, Backoff: fixed(time.Minute)})
					time.Sleep(90 * time.Minute) // before the second run
					want := []string{"Claimed", "Begun", "Delivered", c.event}
					acked := "Acked"
					if repeat != "" {
						acked = "Again"
						want[3] = strings.NewReplacer("Acked", "Again", "Buried", "RunFailed").Replace(c.event)
					}
					if c.again {
						want = append(want, "Claimed", "Begun", "Delivered", acked)
					}
					inOrder := func(kinds []string) []string { // an error may be reported after the next claim
						return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "Error" })
					}
					assert.Equal(t, inOrder(want), inOrder(es.kinds("m")))
					assert.ElementsMatch(t, want, es.kinds("m"))
					stats := counters(t, q)
					assert.Zero(t, stats.Crashed+stats.Cancelled+uint64(stats.InFlight))
					assert.EqualValues(t, len(want)/4, n.Load())
					assert.Equal(t, strings.Count(fmt.Sprint(want), "Error"), strings.Count(errs.text(), notCommitted), errs.text())
					_, err = q.Get(t.Context(), "m")
					assert.Equal(t, repeat == "" && c.event != "Buried", errors.Is(err, durable.ErrNotFound))
					if repeat != "" {
						r, err := q.Get(t.Context(), "m")
						require.NoError(t, err)
						assert.Equal(t, durable.StateScheduled, r.State)
					}
					stop()
				})
			})
		}
	}
}

// The methods that settle a delivery find out whether a transaction has acknowledged it.
func TestTakenMessageIsAcknowledgedInATransaction(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(ctx context.Context, d *durable.Delivery) error{
		"Ack":      func(ctx context.Context, d *durable.Delivery) error { return d.Ack(ctx) },
		"Nack":     func(ctx context.Context, d *durable.Delivery) error { return d.Nack(ctx, assert.AnError) },
		"Release":  func(ctx context.Context, d *durable.Delivery) error { return d.Release(ctx) },
		"Postpone": func(ctx context.Context, d *durable.Delivery) error { return d.Postpone(ctx, time.Hour) },
		"Again":    func(ctx context.Context, d *durable.Delivery) error { return d.Again(ctx, time.Hour) },
		"Bury":     func(ctx context.Context, d *durable.Delivery) error { return d.Bury(ctx, "no") },
	} {
		for _, repeat := range []string{"", "@every 1h"} {
			t.Run(name+repeat, func(t *testing.T) {
				t.Parallel()
				var es events
				bubble(t, durable.Options{OnEvent: es.add}, func(t *testing.T, q *durable.Queue) {
					for _, id := range []string{"committed", "rolled back"} {
						_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Repeat: repeat, Delay: 1})
						require.NoError(t, err)
						d := take(t, q)
						x := prepareAck(t, d)
						if id == "committed" {
							require.Equal(t, driver.StatusDone, x.commit())
						}
						err = settle(t.Context(), d)
						if name == "Ack" && id == "rolled back" {
							require.ErrorContains(t, err, notCommitted)
						} else {
							require.NoError(t, err)
						}
						require.ErrorIs(t, settle(t.Context(), d), durable.ErrLeaseLost, "the delivery is over")
						_, _, err = d.PrepareAck()
						require.ErrorIs(t, err, durable.ErrLeaseLost)
						_, err = q.Get(t.Context(), id)
						require.Equal(t, repeat == "" && id == "committed", errors.Is(err, durable.ErrNotFound))
						_, err = q.CancelAll(t.Context())
						require.NoError(t, err)
					}
				})
				begun := []string{"Claimed", "Begun", "Delivered"}
				acked, own := "Acked", map[string]string{"Nack": "Retried", "Postpone": "Postponed", "Again": "Again", "Bury": "Buried"}[name]
				if repeat != "" {
					acked, own = "Again", strings.Replace(own, "Buried", "RunFailed", 1)
				}
				assert.Equal(t, append(begun, acked), es.kinds("committed"))
				if own != "" {
					begun = append(begun, own)
				}
				assert.Equal(t, begun, es.kinds("rolled back")[:len(begun)])
			})
		}
	}
}

// A delivery can be prepared for another attempt of its transaction, but not after it was settled
// or has lost its lease, nor while it is being settled.
func TestSettledDeliveryCannotBePrepared(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{RetryFor: time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Minute})
		refused := func(d *durable.Delivery) {
			t.Helper()
			_, _, err := d.PrepareAck()
			require.ErrorIs(t, err, durable.ErrLeaseLost)
		}
		enqueue(t, q, "m", 0)
		d := take(t, r)
		first, second := prepareAck(t, d), prepareAck(t, d)
		require.Equal(t, first.batch, second.batch)
		require.Equal(t, driver.StatusDone, second.commit())
		require.Equal(t, driver.StatusNotFound, prepareAck(t, d).commit(), "the store refuses it")
		require.NoError(t, d.Ack(t.Context()))
		refused(d)

		enqueue(t, q, "m", 0)
		d = take(t, r)
		require.NoError(t, d.Ack(t.Context()))
		refused(d)

		enqueue(t, q, "m", 0)
		d = take(t, r)
		f.set(failing("Ack", errDown))
		done := make(chan error)
		go func() { done <- d.Ack(context.Background()) }()
		synctest.Wait()
		refused(d)
		require.Error(t, <-done)
		refused(d) // the Ack may have taken effect
		f.set(working)
		require.NoError(t, d.Ack(t.Context()))

		enqueue(t, q, "m", 0)
		d = take(t, r)
		time.Sleep(2 * time.Minute)
		refused(d)
	})
}

// The lease expires while the transaction is open, because the store does not answer.
func TestLeaseExpiresDuringATransaction(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"nil": nil, "error": errors.New("too late")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var es events
			var errs reportedErrors
			options := durable.Options{OnEvent: es.add, OnError: errs.add, RetryFor: time.Second}
			faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
				enqueue(t, q, "m", 0)
				var n atomic.Int64
				stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					x := prepareAck(t, d)
					if n.Add(1) > 1 {
						assert.Equal(t, driver.StatusDone, x.commit())
						return nil
					}
					f.set(down)
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), durable.ErrLeaseLost)
					time.Sleep(time.Minute)
					f.set(working)
					time.Sleep(time.Minute)
					assert.NotEqual(t, driver.StatusDone, x.commit())
					return result
				}, durable.ConsumerOptions{Visibility: 10 * time.Second})
				time.Sleep(10 * time.Minute)
				assert.EqualValues(t, 2, n.Load())
				assert.EqualValues(t, 1, counters(t, q).Acked)
				stop()
			})
			assert.Len(t, es.of(func(e durable.Event) bool { return e.Kind == durable.EventAcked }), 1)
			assert.NotContains(t, errs.text(), notCommitted)
			assert.Contains(t, errs.text(), durable.ErrLeaseLost.Error())
		})
	}
}

// The store cannot be asked whether the transaction has committed. The question is repeated, and
// the lease ends when it has no answer.
func TestStoreFailsAfterATransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		commit bool
		outage time.Duration
		runs   int64
	}{
		{"committed, short", true, time.Second, 1},
		{"committed, long", true, 5 * time.Minute, 1},
		{"rolled back, short", false, time.Second, 2},
		{"rolled back, long", false, 5 * time.Minute, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var es events
			var errs reportedErrors
			options := durable.Options{OnEvent: es.add, OnError: errs.add, RetryFor: 5 * time.Second}
			faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
				enqueue(t, q, "m", 0)
				var n atomic.Int64
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					x := prepareAck(t, d)
					if first := n.Add(1) == 1; !first || c.commit {
						assert.Equal(t, driver.StatusDone, x.commit())
						if !first {
							return nil
						}
					}
					f.set(down)
					time.AfterFunc(c.outage, func() { f.set(working) })
					return nil
				}, durable.ConsumerOptions{Visibility: 30 * time.Second})
				time.Sleep(20 * time.Minute)
				assert.Equal(t, c.runs, n.Load())
				s := counters(t, q)
				assert.EqualValues(t, 1, s.Acked)
				assert.EqualValues(t, 0, s.InFlight)
				assert.Equal(t, !c.commit && c.outage > time.Minute, s.Crashed == 1)
				stop()
			})
			acked := es.of(func(e durable.Event) bool { return e.Kind == durable.EventAcked })
			assert.Equal(t, !c.commit || c.outage < time.Minute, len(acked) == 1)
			assert.Equal(t, !c.commit && c.outage < time.Minute, strings.Contains(errs.text(), notCommitted))
		})
	}
}

// After an error without an answer, the call can be repeated. A message that an unanswered call may
// have released does not count as acknowledged.
func TestFailedCallAfterATransactionCanBeRepeated(t *testing.T) {
	t.Parallel()
	var es events
	faultyBubble(t, durable.Options{RetryFor: time.Second, OnEvent: es.add}, func(t *testing.T, q *durable.Queue, f *faulty) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Hour})
		enqueue(t, q, "committed", 0)
		d := take(t, r)
		x := prepareAck(t, d)
		require.Equal(t, driver.StatusDone, x.commit())
		f.set(failing("Get", errDown))
		require.ErrorIs(t, d.Ack(t.Context()), durable.ErrUnavailable)
		require.ErrorIs(t, d.Nack(t.Context(), nil), durable.ErrUnavailable)
		f.set(working)
		require.NoError(t, d.Ack(t.Context()))
		synctest.Wait() // Ack may return before OnEvent is called
		require.Equal(t, []string{"Claimed", "Begun", "Delivered", "Acked"}, es.kinds("committed"))

		for name, call := range map[string]func(d *durable.Delivery) error{
			"Ack":     func(d *durable.Delivery) error { return d.Ack(t.Context()) },
			"Nack":    func(d *durable.Delivery) error { return d.Nack(t.Context(), nil) },
			"Release": func(d *durable.Delivery) error { return d.Release(t.Context()) },
		} {
			enqueue(t, q, name, 0)
			d = take(t, r)
			_ = prepareAck(t, d)
			f.set(func(call string) (before, after error) {
				if call == "Release" || call == "Retry" {
					return nil, errDown
				}
				return nil, nil
			})
			require.ErrorIs(t, call(d), durable.ErrUnavailable)
			f.set(working)
			require.ErrorIs(t, d.Ack(t.Context()), durable.ErrOutcomeUnknown)
			_, err := q.Get(t.Context(), name)
			require.NoError(t, err, "it was not acknowledged")
			synctest.Wait()
			require.NotContains(t, es.kinds(name), "Acked")
			_, err = q.CancelAll(t.Context())
			require.NoError(t, err)
		}
	})
}

// A transaction whose reply was lost commits after the store was asked about it.
func TestTransactionCommitsWhileTheResultIsOnItsWay(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"Release": nil, "Retry": assert.AnError, "Bury": durable.Reject(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var es events
			options := durable.Options{OnEvent: es.add, OnError: func(err error) { t.Error(err) }}
			faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					x := prepareAck(t, d)
					f.set(func(call string) (before, after error) {
						if call == name {
							assert.Equal(t, driver.StatusDone, x.commit())
						}
						return nil, nil
					})
					return result
				}, durable.ConsumerOptions{})
				enqueue(t, q, "m", 0)
				time.Sleep(time.Minute)
				stop()
			})
			assert.Equal(t, []string{"Claimed", "Begun", "Delivered", "Acked"}, es.kinds("m"))
		})
	}
}

// A consumer ends while a handler has an open transaction.
func TestConsumerEndsDuringATransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		takes          time.Duration
		commit         bool
		end            func(q *durable.Queue, stop func())
		acked, crashed uint64
	}{
		{"stop, committed", time.Second, true, func(_ *durable.Queue, stop func()) { stop() }, 1, 0},
		{"stop, rolled back", time.Second, false, func(_ *durable.Queue, stop func()) { stop() }, 0, 0},
		{"stop, too late", time.Minute, false, func(_ *durable.Queue, stop func()) { stop() }, 0, 0},
		{"Shutdown, committed", time.Second, true, func(q *durable.Queue, _ func()) { _ = q.Shutdown(context.Background()) }, 1, 0},
		{"Close, too late", time.Minute, false, func(q *durable.Queue, _ func()) { q.Close() }, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var es events
			options := durable.Options{OnEvent: es.add, OnError: func(error) {}}
			faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
				enqueue(t, q, "m", 0)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				returned := make(chan struct{})
				go func() {
					ended <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
						defer close(returned)
						x := prepareAck(t, d)
						time.Sleep(c.takes)
						if c.commit || c.takes == time.Minute {
							assert.Equal(t, c.commit, x.commit() == driver.StatusDone)
						}
						return nil
					}, durable.ConsumerOptions{Grace: 10 * time.Second})
				}()
				time.Sleep(time.Second / 2)
				c.end(q, cancel)
				<-ended
				<-returned
				synctest.Wait()
				other := open(t, f, options)
				defer other.Close()
				s := counters(t, other)
				assert.Equal(t, c.acked, s.Acked)
				assert.Equal(t, c.crashed, s.Crashed)
				assert.EqualValues(t, 1-c.acked, s.Scheduled)
				assert.Zero(t, s.InFlight)
				cancel()
			})
			assert.Len(t, es.of(func(e durable.Event) bool { return e.Kind == durable.EventAcked }), int(c.acked))
		})
	}
}

// An interrupted message is removed if its transaction rolls back, and acked if it commits.
func TestInterruptDuringATransaction(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]bool{"committed": true, "rolled back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
				stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					x := prepareAck(t, d)
					interrupt(t, q, "m")
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), durable.ErrInterrupted)
					if commit {
						assert.Equal(t, driver.StatusDone, x.commit())
					}
					return ctx.Err()
				}, durable.ConsumerOptions{})
				enqueue(t, q, "m", 0)
				time.Sleep(time.Minute)
				stop()
				s := counters(t, q)
				assert.Equal(t, commit, s.Acked == 1)
				assert.Equal(t, !commit, s.Cancelled == 1)
				_, err := q.Get(t.Context(), "m")
				assert.ErrorIs(t, err, durable.ErrNotFound)
			})
		})
	}
}

// Prepared messages are grouped by partition and Replace, in an order in which they can be stored.
func TestPreparedMessagesAreThoseOfEnqueue(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 3}, func(t *testing.T, q *durable.Queue) {
		b, puts, err := q.Prepare(t.Context())
		require.NoError(t, err)
		require.Empty(t, puts)
		require.Equal(t, 3, b.Config().Partitions)

		var messages []durable.Message
		const ids = 4 * driver.MaxBatch // of which a third are in each partition
		for i := range 6 * driver.MaxBatch {
			messages = append(messages, durable.Message{
				ID: fmt.Sprint("m", i%ids), Body: fmt.Append(nil, i), Replace: i >= ids, Headers: map[string]string{"n": fmt.Sprint(i)},
			})
		}
		messages = append(messages, durable.Message{Delay: time.Hour, MaxAttempts: 3}, durable.Message{ID: "r", Repeat: "@every 1h", Replace: true},
			durable.Message{ID: "r", Repeat: "@every 2h", Replace: true})
		_, puts, err = q.Prepare(t.Context(), messages...)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(puts), 3*6)
		n := 0
		for _, put := range puts {
			assert.LessOrEqual(t, len(put.Items), driver.MaxBatch)
			assert.Zero(t, put.Call)
			ids := map[string]bool{}
			for _, item := range put.Items {
				assert.Equal(t, contract.PartitionOf(item.ID, 3), put.Partition)
				assert.False(t, ids[item.ID], "an id twice in a put")
				ids[item.ID] = true
				n++
			}
			statuses, err := b.Put(t.Context(), put)
			require.NoError(t, err)
			for _, s := range statuses {
				assert.Equal(t, driver.StatusDone, s)
			}
		}
		assert.Len(t, messages, n)
		for i := range ids {
			r, err := q.Get(t.Context(), fmt.Sprint("m", i))
			require.NoError(t, err)
			want := i
			if i+ids < 6*driver.MaxBatch {
				want += ids // replaced
			}
			assert.Equal(t, fmt.Sprint(want), string(r.Body))
			assert.Equal(t, fmt.Sprint(want), r.Headers["n"])
			assert.Equal(t, q.Options().MaxAttempts, r.MaxAttempts)
		}
		r, err := q.Get(t.Context(), "r")
		require.NoError(t, err)
		assert.Equal(t, "@every 2h", r.Repeat)

		_, _, err = q.Prepare(t.Context(), durable.Message{}, durable.Message{ID: "x\n"})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, "message 1")
		var none context.Context
		_, _, err = q.Prepare(none)
		require.ErrorIs(t, err, durable.ErrInvalid)
		q.Close()
		_, _, err = q.Prepare(t.Context())
		require.ErrorIs(t, err, durable.ErrClosed)
	})
}
