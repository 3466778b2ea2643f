//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// Server and consumers are down for longer than all delays. Then each message is delivered once.
// Messages of a partition are delivered in order of due time, except for messages that
// are claimed together. The consumer stays within its limits.
func TestOverdueMessagesAreDeliveredOnceAfterDowntime(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{AppendOnly: true, AppendFsync: "always"})
			tg := target{Redis: server.Addr()}
			h := New(Options{})
			messages := scaled(400, 20_000)
			enqueueAhead(t, openHere(t, tg), h, messages)
			server.Kill()
			time.Sleep(1200 * time.Millisecond)
			server.Restart()
			q := openHere(t, tg)
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, messages, s.Due, "all messages are overdue")
			b := &bounded{events: h, concurrency: int64(concurrency)}
			b.consume(t, q)
			report := h.Check()
			t.Log(report)
			t.Logf("at most %d concurrent handlers, at most %d messages of a partition claimed ahead, in %d counts", b.most.Load(), b.leased, b.counts)
			require.NoError(t, report.Err())
			assert.Equal(t, messages, report.Handled)
			assert.Equal(t, messages, report.Starts, "each message is delivered once")
			assert.LessOrEqual(t, b.most.Load(), b.concurrency)
			assert.LessOrEqual(t, b.leased, prefetchAfter/partitions)
			most := 0
			for p := range b.order {
				most = max(most, overtaken(b.order[p]))
			}
			t.Logf("at most %d messages were due before a message that began", most)
			if concurrency == 1 {
				assert.Zero(t, most)
			} else { // a handler may be delayed before it records its start
				assert.Less(t, most, concurrency+prefetchAfter/partitions)
			}
		})
	}
}

// prefetchAfter is the number of messages that the consumer may have claimed and not begun.
const prefetchAfter = 128

// enqueueAhead enqueues messages that are due within a second, in random order.
func enqueueAhead(t *testing.T, q *durable.Queue, h *History, n int) {
	t.Helper()
	messages, events := make([]durable.Message, n), make([]Event, n)
	now := driver.InstantOf(time.Now())
	for i := range messages {
		messages[i] = durable.Message{ID: fmt.Sprint("m", i), Delay: time.Duration(i*7919%1000) * time.Millisecond}
		events[i] = Event{Kind: Enqueued, ID: messages[i].ID, Due: int64(now.Add(messages[i].Delay)) - 1}
	}
	_, err := q.EnqueueBatch(t.Context(), messages)
	require.NoError(t, err)
	require.NoError(t, h.Record(events...))
}

// bounded is a consumer that checks its limits.
type bounded struct {
	events      Recorder
	concurrency int64
	running     atomic.Int64
	most        atomic.Int64 // largest value of running
	leased      int          // largest number of messages of a partition that were claimed and not begun
	counts      int

	mu    sync.Mutex
	order [partitions][]time.Time // due times in the order of the calls to handlers
}

// consume consumes until the queue is empty.
func (b *bounded) consume(t *testing.T, q *durable.Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- q.Consume(ctx, b.handle, durable.ConsumerOptions{Concurrency: int(b.concurrency), Prefetch: prefetchAfter})
	}()
	for end := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		b.countClaimed(t, q)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		if s.Scheduled+s.InFlight == 0 {
			break
		}
		require.True(t, time.Now().Before(end), "the queue was not drained: %+v", s.Counts)
	}
	cancel()
	require.NoError(t, <-done)
}

func (b *bounded) handle(_ context.Context, d *durable.Delivery) error {
	running := b.running.Add(1)
	defer b.running.Add(-1)
	for most := b.most.Load(); running > most && !b.most.CompareAndSwap(most, running); {
		most = b.most.Load()
	}
	b.mu.Lock()
	p := contract.PartitionOf(d.ID, partitions)
	b.order[p] = append(b.order[p], d.Due)
	b.mu.Unlock()
	e := Event{Kind: Started, ID: d.ID, Token: d.Token, Attempt: d.Attempts + 1, Clock: time.Now().UnixMilli()}
	if err := b.events.Record(e); err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	e.Kind = Handled
	return b.events.Record(e)
}

// countClaimed counts the messages that are claimed and have not begun. The messages of a partition
// fit into one page, so their count is consistent.
func (b *bounded) countClaimed(t *testing.T, q *durable.Queue) {
	t.Helper()
	var leased [partitions]int
	for r, err := range q.List(t.Context(), durable.StateLeased) {
		require.NoError(t, err)
		if r.State == durable.StateLeased {
			leased[contract.PartitionOf(r.ID, partitions)]++
		}
	}
	b.leased = max(b.leased, slices.Max(leased[:]))
	b.counts++
}

// overtaken returns the largest number of messages that are delivered after a message with a later
// due time. With a strict order the number is less than the number of handlers, because some
// handlers have not yet recorded their start. A message that has begun ahead and is released,
// because handlers have become slower, is delivered after the messages of its partition that are
// claimed by then.
func overtaken(dues []time.Time) (most int) {
	waiting := slices.Clone(dues) // ascending due times of messages that were not delivered yet
	slices.SortFunc(waiting, time.Time.Compare)
	for _, due := range dues {
		i, _ := slices.BinarySearchFunc(waiting, due, func(w, d time.Time) int { return cmp.Compare(w.UnixMilli(), d.UnixMilli()) })
		most = max(most, i)
		waiting = slices.Delete(waiting, i, i+1)
	}
	return most
}

func TestOvertakenCountsMessagesOutOfOrder(t *testing.T) {
	t.Parallel()
	dues := func(ms ...int64) (dues []time.Time) {
		for _, m := range ms {
			dues = append(dues, time.UnixMilli(m))
		}
		return dues
	}
	assert.Zero(t, overtaken(nil))
	assert.Zero(t, overtaken(dues(1, 1, 2, 3, 3)))
	assert.Equal(t, 1, overtaken(dues(2, 1, 3)))
	assert.Equal(t, 3, overtaken(dues(1, 5, 2, 4, 3)))
}
