package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// events records the events of a queue.
type events struct {
	mu  sync.Mutex
	all []durable.Event
}

func (es *events) add(e durable.Event) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.all = append(es.all, e)
}

// of returns the events for which ok returns true.
func (es *events) of(ok func(durable.Event) bool) (some []durable.Event) {
	es.mu.Lock()
	defer es.mu.Unlock()
	for _, e := range es.all {
		if ok(e) {
			some = append(some, e)
		}
	}
	return some
}

// kinds returns the names of the events of a message.
func (es *events) kinds(id string) (names []string) {
	for _, e := range es.of(func(e durable.Event) bool { return e.ID == id }) {
		names = append(names, e.Kind.String())
	}
	return names
}

// Each course of a delivery has its events, in order, with the fields of the message.
func TestEachDeliveryHasItsEventsInOrder(t *testing.T) {
	t.Parallel()
	var es events
	bubble(t, durable.Options{Queue: "orders", Partitions: 3, OnEvent: es.add}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		for _, m := range []durable.Message{
			{ID: "acked"}, {ID: "ahead", Delay: 5 * time.Minute}, {ID: "retried", Delay: time.Second}, {ID: "buried", Delay: time.Second},
			{ID: "expired", Delay: time.Second, ExpireAt: start},
		} {
			m.Headers = map[string]string{"of": m.ID}
			_, err := q.Enqueue(t.Context(), m)
			require.NoError(t, err)
		}
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			d.Headers["of"] = "changed by the handler"
			switch {
			case d.ID == "retried" && d.Attempts == 0:
				return errors.New("again")
			case d.ID == "buried":
				return durable.Reject(nil)
			}
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		whole := []string{"Claimed", "Begun", "Delivered"}
		for id, want := range map[string][]string{
			"acked": append(slices.Clone(whole), "Acked"), "ahead": append(slices.Clone(whole), "Acked"),
			"retried": append(append(append(slices.Clone(whole), "Retried"), whole...), "Acked"), "buried": append(slices.Clone(whole), "Buried"),
			"expired": {"Claimed", "Begun", "Expired"},
		} {
			assert.Equal(t, want, es.kinds(id), id)
		}
		part := func(id string) int { return contract.PartitionOf(id, 3) }
		for _, e := range es.of(func(e durable.Event) bool { return e.ID != "" }) {
			assert.Equal(t, "orders", e.Queue)
			assert.Equal(t, part(e.ID), e.Partition)
			assert.Equal(t, map[string]string{"of": e.ID}, e.Headers, e.Kind)
			assert.NotZero(t, e.Token)
			assert.False(t, e.Time.Before(start) || e.Duration < 0)
			assert.Equal(t, e.Kind == durable.EventRetried || e.Kind == durable.EventBuried, e.Err != nil, e.Kind)
		}
		rebalanced := es.of(func(e durable.Event) bool { return e.Kind == durable.EventRebalanced })
		require.Len(t, rebalanced, 2)
		assert.Equal(t, []int{0, 1, 2}, rebalanced[0].Owned)
		assert.Empty(t, rebalanced[1].Owned, "the consumer has left")
	})
	require.Equal(t, "EventKind(0)", durable.EventKind(0).String())
	require.Equal(t, "Error", durable.EventError.String())
	require.Equal(t, "EventKind(14)", (durable.EventError + 1).String())
}

// OnEvent takes a second, and the consumer ends in the meantime. Consume and Close return after it.
func TestNoEventFollowsTheEndOfItsConsumer(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken permanently")
	nothing := func(context.Context, *durable.Delivery) error { return nil }
	consumeOne := func(t *testing.T, q *durable.Queue, _ *faulty, begun <-chan struct{}) {
		stop := consume(t, q, nothing, durable.ConsumerOptions{})
		enqueue(t, q, "m", 0)
		<-begun
		stop()
	}
	for name, c := range map[string]struct {
		last durable.EventKind
		end  func(t *testing.T, q *durable.Queue, f *faulty, begun <-chan struct{})
	}{
		"acknowledged by a worker": {durable.EventAcked, consumeOne},
		"not acknowledged by a worker": {durable.EventError, func(t *testing.T, q *durable.Queue, f *faulty, begun <-chan struct{}) {
			f.set(failing("Ack", errBroken))
			consumeOne(t, q, f, begun)
		}},
		"not released": {durable.EventError, func(t *testing.T, q *durable.Queue, f *faulty, _ <-chan struct{}) {
			f.set(failing("Release", errBroken))
			enqueue(t, q, "m", time.Hour)
			stop := consume(t, q, nothing, durable.ConsumerOptions{Horizon: 2 * time.Hour})
			time.Sleep(13 * time.Minute) // the second claim is after a tenth of the horizon
			stop()
		}},
		"acknowledged by a receiver that does not wait": {durable.EventAcked, func(t *testing.T, q *durable.Queue, f *faulty, _ <-chan struct{}) {
			enqueue(t, q, "m", 0)
			d, err := q.Take(t.Context())
			require.NoError(t, err)
			f.set(func(call string) (error, error) {
				if call == "Ack" {
					time.Sleep(time.Second)
				}
				return nil, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.ErrorIs(t, d.Ack(ctx), context.DeadlineExceeded)
			q.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun chan struct{} // of the bubble
			var ended atomic.Bool
			options := durable.Options{Partitions: 1, OnError: func(error) {}, OnEvent: func(e durable.Event) {
				if e.Kind == c.last && e.ID == "m" {
					begun <- struct{}{}
					time.Sleep(time.Second)
					ended.Store(true)
				}
			}}
			faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
				begun = make(chan struct{}, 1)
				c.end(t, q, f, begun)
				assert.True(t, ended.Load(), "the event was not over")
			})
		})
	}
}

// logged collects log records as JSON.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func (l *logged) records(t *testing.T) (records []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := json.NewDecoder(bytes.NewReader(l.buf.Bytes())); d.More(); {
		var r map[string]any
		require.NoError(t, d.Decode(&r))
		records = append(records, r)
	}
	return records
}

// A fault is logged with its queue, partition and message, and OnError and OnEvent receive the same
// error. An unreachable store, or claims that fail, are logged once a second.
func TestFaultsAreLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		only  string // this call fails, or all if it is empty
		level string
	}{
		"the store is down": {errDown, "", "WARN"},
		"claims fail":       {errors.New("no permission"), "Claim", "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var es events
			var log logged
			var mu sync.Mutex
			var errs []error
			options := durable.Options{
				Queue: "orders", Partitions: 16, OnEvent: es.add, Logger: log.logger(), OnError: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				},
			}
			faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
				stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
				time.Sleep(time.Minute)
				require.Empty(t, log.records(t))
				f.set(func(call string) (error, error) {
					if c.only != "" && c.only != call {
						return nil, nil
					}
					return c.err, nil
				})
				time.Sleep(10 * time.Second)
				f.set(func(string) (error, error) { return nil, nil })
				time.Sleep(time.Minute)
				stop()
			})
			records := log.records(t)
			require.Greater(t, len(errs), 100)
			require.LessOrEqual(t, len(records), 12)
			require.GreaterOrEqual(t, len(records), 9)
			skipped := 0.0
			for _, r := range records {
				assert.Equal(t, c.level, r["level"])
				assert.Equal(t, "durable: background call failed", r["msg"])
				assert.Equal(t, "orders", r["queue"])
				assert.Contains(t, r["err"], c.err.Error())
				assert.LessOrEqual(t, strings.Count(fmt.Sprint(r), "cannot be reached"), 1, r)
				skipped += r["skipped"].(float64)
			}
			require.InDelta(t, len(errs), int(skipped)+len(records), 200, "the errors after the last record are counted in no record")
			faults := es.of(func(e durable.Event) bool { return e.Kind == durable.EventError })
			require.Len(t, faults, len(errs))
			for _, e := range faults {
				require.ErrorIs(t, e.Err, c.err)
				require.ErrorContains(t, e.Err, `durable: queue "orders": `)
			}
		})
	}
}

// A lost lease, and a call that fails permanently, are logged with the message.
func TestFaultsOfMessagesAreLogged(t *testing.T) {
	t.Parallel()
	var es events
	var log logged
	errBroken := errors.New("broken permanently")
	faultyBubble(t, durable.Options{Partitions: 4, OnEvent: es.add, OnError: func(error) {}, Logger: log.logger()},
		func(t *testing.T, q *durable.Queue, f *faulty) {
			enqueue(t, q, "m", 0)
			stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
				if d.Crashes == 0 {
					f.set(failing("Extend", errBroken))
					<-ctx.Done()
					f.set(func(string) (error, error) { return nil, nil })
					time.Sleep(10 * time.Second) // until another handler has the message
					return nil
				}
				f.set(func(call string) (error, error) {
					if call == "Ack" {
						f.set(func(string) (error, error) { return nil, nil })
						return errBroken, nil
					}
					return nil, nil
				})
				return nil
			}, durable.ConsumerOptions{Visibility: time.Second, MaxCrashes: 2})
			time.Sleep(time.Minute)
			stop()
		})
	var seen []string
	for _, r := range log.records(t) {
		require.Equal(t, "m", r["id"], r)
		require.EqualValues(t, contract.PartitionOf("m", 4), r["partition"])
		seen = append(seen, fmt.Sprint(r["level"], " ", r["msg"]))
	}
	require.Contains(t, seen, "WARN durable: lease lost")
	require.Contains(t, seen, "ERROR durable: background call failed")
	kinds := es.kinds("m")
	require.Contains(t, kinds, "LeaseLost")
	require.Contains(t, kinds, "Error")
}

// Each of two consumers reports the partitions that it owns. Together they own all partitions.
func TestRebalancedEventsNameAllPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Options{})
		var es [2]events
		var stops []func()
		var owned [2][]int
		for i := range es {
			q := open(t, wrapped{st, func(b driver.Backend) driver.Backend { return b }}, durable.Options{Partitions: 8, OnEvent: es[i].add})
			defer q.Close()
			stops = append(stops, consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{}))
			time.Sleep(time.Minute)
		}
		for i := range es {
			rebalanced := es[i].of(func(e durable.Event) bool { return e.Kind == durable.EventRebalanced })
			owned[i] = rebalanced[len(rebalanced)-1].Owned
			require.NotEmpty(t, owned[i])
		}
		all := append(slices.Clone(owned[0]), owned[1]...)
		slices.Sort(all)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, all)
		for _, stop := range stops {
			stop()
		}
	})
}

// brokenError is an error whose method panics if it is a nil pointer.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// The error of a failed delivery reaches OnEvent and, in one record, the log. An error that was
// reported before is not logged again. OnError is not called.
func TestFailedDeliveriesAreLoggedWithTheirErrors(t *testing.T) {
	t.Parallel()
	returns := func(err error) durable.Handler {
		return func(context.Context, *durable.Delivery) error { return err }
	}
	minutes := func(*durable.Delivery, error) time.Duration { return 7 * time.Minute }
	for name, c := range map[string]struct {
		handler durable.Handler
		backoff func(*durable.Delivery, error) time.Duration
		kind    durable.EventKind
		delay   time.Duration
		text    string // of the error, which otherwise wraps assert.AnError
		silent  bool
	}{
		"error":       {returns(assert.AnError), minutes, durable.EventRetried, 7 * time.Minute, "", false},
		"retry after": {returns(durable.Fail(assert.AnError, time.Hour)), minutes, durable.EventRetried, time.Hour, "", false},
		"reject":      {returns(durable.Reject(assert.AnError)), minutes, durable.EventBuried, 0, "", false},
		"nack": {func(ctx context.Context, d *durable.Delivery) error {
			return d.Nack(ctx, assert.AnError)
		}, minutes, durable.EventRetried, 7 * time.Minute, "", false},
		"nack after": {func(ctx context.Context, d *durable.Delivery) error {
			return d.NackAfter(ctx, time.Minute, assert.AnError)
		}, minutes, durable.EventRetried, time.Minute, "", false},
		"bury": {func(ctx context.Context, d *durable.Delivery) error {
			return d.Bury(ctx, "no such user")
		}, minutes, durable.EventBuried, 0, "no such user", false},
		"bury without a reason": {func(ctx context.Context, d *durable.Delivery) error {
			return d.Bury(ctx, "")
		}, minutes, durable.EventBuried, 0, "rejected", false},
		"nil pointer": {returns((*brokenError)(nil)), minutes, durable.EventRetried, 7 * time.Minute, "panic in the error's method", false},
		"panic in Backoff": {returns(assert.AnError), func(*durable.Delivery, error) time.Duration { panic("no delay") },
			durable.EventRetried, time.Second, "no delay; the error: " + assert.AnError.Error(), false},
		"panic": {func(context.Context, *durable.Delivery) error { panic("broken") }, minutes, durable.EventRetried, 7 * time.Minute, "broken", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var es events
			var log logged
			options := durable.Options{Queue: "orders", Partitions: 4, OnEvent: es.add, Logger: log.logger(), OnError: func(err error) {
				assert.True(t, c.silent, err)
			}}
			bubble(t, options, func(t *testing.T, q *durable.Queue) {
				enqueue(t, q, "m", 0)
				stop := consume(t, q, c.handler, durable.ConsumerOptions{Backoff: c.backoff})
				time.Sleep(time.Second / 2)
				stop()
			})
			ended := es.of(func(e durable.Event) bool { return e.Kind == durable.EventRetried || e.Kind == durable.EventBuried })
			require.Len(t, ended, 1)
			require.Equal(t, c.kind, ended[0].Kind)
			require.Equal(t, c.delay, ended[0].Delay)
			if c.text == "" {
				require.ErrorIs(t, ended[0].Err, assert.AnError)
			}
			require.ErrorContains(t, ended[0].Err, c.text)
			var records []map[string]any
			for _, r := range log.records(t) {
				if r["msg"] == "durable: delivery failed" {
					records = append(records, r)
				}
			}
			if c.silent {
				require.Empty(t, records)
				return
			}
			require.Len(t, records, 1)
			delete(records[0], "time")
			require.Equal(t, map[string]any{
				"level": "WARN", "msg": "durable: delivery failed", "queue": "orders", "partition": float64(contract.PartitionOf("m", 4)),
				"id": "m", "attempt": 1.0, "delay": float64(c.delay), "err": ended[0].Err.Error(), "skipped": 0.0,
			}, records[0])
		})
	}
}

// Many failures in a second are one or two records.
func TestFailedDeliveriesAreLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	var log logged
	bubble(t, durable.Options{Logger: log.logger()}, func(t *testing.T, q *durable.Queue) {
		messages := make([]durable.Message, 1000)
		for i := range messages {
			messages[i].Delay = time.Duration(i) * time.Millisecond
		}
		_, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return durable.Fail(assert.AnError, time.Hour) }, durable.ConsumerOptions{})
		time.Sleep(time.Minute)
		enqueue(t, q, "later", 0)
		time.Sleep(time.Second)
		stop()
	})
	records := log.records(t)
	require.GreaterOrEqual(t, len(records), 2)
	require.LessOrEqual(t, len(records), 3)
	skipped := 0.0
	for _, r := range records {
		require.Equal(t, "durable: delivery failed", r["msg"])
		skipped += r["skipped"].(float64)
	}
	require.EqualValues(t, 1001, int(skipped)+len(records), "each failure is logged or counted")
}

// A released message, whose delivery has neither succeeded nor failed, has no event.
func TestReleaseHasNoEvent(t *testing.T) {
	t.Parallel()
	var es events
	bubble(t, durable.Options{OnEvent: es.add}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "m", 0)
		require.NoError(t, take(t, q).Release(t.Context()))
		time.Sleep(time.Millisecond)
		require.Empty(t, es.of(func(e durable.Event) bool { return e.Kind == 0 }))
	})
}
