package durable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
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

// Get, List, each delivery and the dead letter return the headers and ExpireAt.
func TestHeadersAreReturnedWithTheMessage(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1, MaxBody: 4}, func(t *testing.T, q *durable.Queue) {
		headers := map[string]string{"traceparent": "00-01", "ключ": "", "long": strings.Repeat("x", 4000)}
		expire := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		m := durable.Message{ID: "m", Body: []byte("body"), Headers: headers, ExpireAt: expire.Add(time.Microsecond), MaxAttempts: 2, Delay: time.Second}
		_, err := q.EnqueueBatch(t.Context(), []durable.Message{m, {ID: "plain", Delay: 2 * time.Hour}})
		require.NoError(t, err)
		want := map[string]string{"traceparent": "00-01", "ключ": "", "long": strings.Repeat("x", 4000)}
		headers["traceparent"] = "changed after the call"
		check := func(r durable.Record) {
			t.Helper()
			require.NoError(t, r.Err)
			assert.Equal(t, want, r.Headers)
			assert.Equal(t, "body", string(r.Body))
			assert.True(t, expire.Equal(r.ExpireAt), "%v, %v", expire, r.ExpireAt)
		}
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		check(r)
		r, err = q.Get(t.Context(), "plain")
		require.NoError(t, err)
		assert.Empty(t, r.Headers)
		assert.Empty(t, r.Body)
		assert.Zero(t, r.ExpireAt)
		for r, err := range q.List(t.Context(), durable.StateScheduled) {
			require.NoError(t, err)
			if r.ID == "m" {
				check(r)
			}
		}
		for range 2 {
			d := take(t, q)
			assert.Equal(t, want, d.Headers)
			assert.Equal(t, "body", string(d.Body))
			assert.True(t, expire.Equal(d.ExpireAt))
			d.Headers["added"] = "by the receiver"
			require.NoError(t, d.NackAfter(t.Context(), 0, nil))
		}
		for r, err := range q.List(t.Context(), durable.StateDead) {
			require.NoError(t, err)
			check(r)
		}
		require.NoError(t, q.Replay(t.Context(), "m", 0))
		d := take(t, q)
		assert.Equal(t, want, d.Headers)
		require.NoError(t, d.Ack(t.Context()))
	})
}

func TestBadHeadersAndExpiryAreRefused(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range contract.MaxHeaders + 1 {
		many[fmt.Sprint(i)] = ""
	}
	at := time.UnixMilli(2_000_000_000_000)
	for name, c := range map[string]struct {
		m    durable.Message
		want []string // in the error
	}{
		"too many":       {durable.Message{Headers: many}, []string{"65", "at most 64"}},
		"too long":       {durable.Message{Headers: map[string]string{"k": strings.Repeat("x", contract.MaxHeaderBytes)}}, []string{"8193 bytes", "at most 8192"}},
		"no key":         {durable.Message{Headers: map[string]string{"": "x"}}, []string{"empty"}},
		"key no UTF-8":   {durable.Message{Headers: map[string]string{"a\xff": "x"}}, []string{`"a\xff"`, "UTF-8"}},
		"value no UTF-8": {durable.Message{Headers: map[string]string{"a": "x\xff"}}, []string{`"a"`, `"x\xff"`, "UTF-8"}},
		"never valid":    {durable.Message{At: at, ExpireAt: at}, []string{"ExpireAt", "At"}},
		"no millisecond": {durable.Message{At: at.Add(1), ExpireAt: at.Add(time.Millisecond)}, []string{"ExpireAt", "At"}},
		"expired before": {durable.Message{At: at, ExpireAt: at.Add(-time.Hour)}, []string{"ExpireAt", "At"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := open(t, memstore.New(memstore.Options{}), durable.Options{})
			defer q.Close()
			c.m.ID = "m"
			_, err := q.Enqueue(t.Context(), c.m)
			require.ErrorIs(t, err, durable.ErrInvalid)
			for _, want := range append(c.want, `"m"`) {
				assert.ErrorContains(t, err, want)
			}
		})
	}
	q := open(t, memstore.New(memstore.Options{}), durable.Options{MaxBody: 1})
	defer q.Close()
	most := maps.Clone(many)
	delete(most, "0")
	_, err := q.Enqueue(t.Context(), durable.Message{Headers: most, Body: []byte("b"), At: at, ExpireAt: at.Add(time.Millisecond)})
	assert.NoError(t, err, "the accepted maximum; MaxBody limits only the body")
}

// An expired message is counted and not delivered, neither for the first time nor as a retry. Other
// messages are delivered.
func TestExpiredMessagesAreCountedAndNotDelivered(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue) {
		start := time.Now()
		for _, m := range []durable.Message{
			{ID: "past", ExpireAt: start.Add(-time.Hour)},
			{ID: "zero expiry"},
			{ID: "at its last moment", Delay: time.Minute, ExpireAt: start.Add(time.Minute)},
			{ID: "before it is due", Delay: time.Minute, ExpireAt: start.Add(time.Minute - time.Millisecond)},
			{ID: "retried too late", ExpireAt: start.Add(2 * time.Minute)},
			{ID: "retried in time", ExpireAt: start.Add(4 * time.Minute)},
		} {
			_, err := q.Enqueue(t.Context(), m)
			require.NoError(t, err, m.ID)
		}
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			if strings.HasPrefix(d.ID, "retried") && d.Attempts == 0 {
				return durable.Fail(errors.New("not yet"), 3*time.Minute)
			}
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		assert.ElementsMatch(t, []string{"zero expiry", "at its last moment", "retried too late", "retried in time", "retried in time"}, got.ids())
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, [5]uint64{6, 3, 2, 3, 0}, [5]uint64{stats.Enqueued, stats.Acked, stats.Retried, stats.Expired, stats.Buried})
		assert.Zero(t, stats.Scheduled+stats.InFlight+stats.Dead)
		assert.EqualValues(t, 5, stats.Lateness.Histogram.Count(), "delivered messages")
	})
}

// Take skips expired messages.
func TestTakeSkipsExpiredMessages(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		for i := range 10 {
			m := durable.Message{ID: fmt.Sprint(i)}
			if i != 7 {
				m.ExpireAt = time.Now().Add(-time.Second)
			}
			_, err := q.Enqueue(t.Context(), m)
			require.NoError(t, err)
		}
		d := take(t, q)
		assert.Equal(t, "7", d.ID)
		require.NoError(t, d.Ack(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, [2]uint64{1, 9}, [2]uint64{stats.Acked, stats.Expired})
	})
}

// A message whose envelope this version cannot read is kept for a newer consumer, even if it has
// only one attempt. It is redelivered after a minute, which counts no attempt. Other messages are
// delivered in the meantime.
func TestContentOfNewerVersionIsNotLost(t *testing.T) {
	t.Parallel()
	for name, receive := range map[string]func(t *testing.T, q *durable.Queue) (ids []string){
		"Consume": func(t *testing.T, q *durable.Queue) []string {
			var got deliveries
			stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(time.Now(), d); return nil },
				durable.ConsumerOptions{})
			time.Sleep(5*time.Minute + 30*time.Second) // between two deliveries of it
			stop()
			return got.ids()
		},
		"Take": func(t *testing.T, q *durable.Queue) (ids []string) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+30*time.Second)
			defer cancel()
			for {
				d, err := q.Take(ctx)
				if err != nil {
					return ids
				}
				require.NoError(t, d.Ack(ctx))
				ids = append(ids, d.ID)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var backend driver.Backend
				var mu sync.Mutex
				var reported []error
				store := wrapped{memstore.New(memstore.Options{}), func(b driver.Backend) driver.Backend { backend = b; return b }}
				q := open(t, store, durable.Options{Partitions: 1, OnError: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					reported = append(reported, err)
				}})
				defer q.Close()
				newer := "\x20 of a newer version"
				_, err := backend.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "newer", Body: []byte(newer), MaxAttempts: 1}}})
				require.NoError(t, err)
				enqueue(t, q, "known", 0)
				r, err := q.Get(t.Context(), "newer")
				require.NoError(t, err)
				require.ErrorIs(t, r.Err, durable.ErrVersion)
				require.ErrorContains(t, r.Err, `"newer"`)
				require.Nil(t, r.Body)
				n := 0
				for _, err := range q.List(t.Context(), durable.StateScheduled) {
					require.NoError(t, err)
					n++
				}
				require.Equal(t, 2, n, "the list continues after the message")

				require.Equal(t, []string{"known"}, receive(t, q))
				raw, err := backend.Get(t.Context(), 0, "newer")
				require.NoError(t, err)
				assert.Equal(t, newer, string(raw.Body), "unchanged")
				assert.Equal(t, driver.StateScheduled, raw.State)
				assert.Zero(t, raw.Attempts+raw.Crashes)
				assert.WithinDuration(t, time.Now(), raw.Due.Time(), time.Minute)
				assert.Contains(t, raw.Reason, "version 2")
				mu.Lock()
				defer mu.Unlock()
				assert.InDelta(t, 6, len(reported), 1, "once a minute")
				for _, err := range reported {
					require.ErrorIs(t, err, durable.ErrVersion)
					require.ErrorContains(t, err, `"newer"`)
				}
			})
		})
	}
}
