//go:build unix

package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// serverClock computes the time of the server's clock from the clock of this process.
type serverClock struct {
	clock *redistest.Clock

	mu     sync.RWMutex
	offset time.Duration
	back   time.Time     // when the server's clock was set back, on the clock of this process
	before time.Duration // the offset before that
}

func (c *serverClock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.Set(offset)
	if offset < c.offset {
		c.back, c.before = time.Now(), c.offset
	}
	c.offset = offset
}

// early returns how much too early a message is delivered on the clock of the server. A message
// that had begun before that clock was set back is not early: it was due on the clock as it was
// then, or began at most the few milliseconds ahead that are allowed.
func (c *serverClock) early(due time.Time, enqueuedBefore bool) time.Duration {
	const ahead = 5 * time.Millisecond
	c.mu.RLock()
	defer c.mu.RUnlock()
	if enqueuedBefore && !c.back.IsZero() && !due.After(c.back.Add(c.before+ahead)) {
		return 0
	}
	return max(0, due.Sub(time.Now().Add(c.offset)))
}

// The server's clock differs from the clock of this process, or is set while messages are enqueued
// and delivered.
func TestNoMessageIsEarlyIfServerClockIsSet(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	back := scaled(5*time.Second, time.Minute)
	for name, c := range map[string]struct{ first, then time.Duration }{
		"5 minutes ahead":     {5 * time.Minute, 5 * time.Minute},
		"5 minutes behind":    {-5 * time.Minute, -5 * time.Minute},
		"set back":            {0, -back},
		"set ahead":           {0, time.Minute},
		"set back by seconds": {time.Hour, time.Hour - 1500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := &serverClock{clock: redistest.NewClock(t), offset: c.first}
			clock.set(c.first)
			server := redistest.Start(t, redistest.Options{Clock: clock.clock})
			underSteps(t, openHere(t, target{Redis: server.Addr()}), clock, func() { clock.set(c.then) })
		})
	}
}

// The server's clock is set ahead past the end of a lease, which has not ended on the clock of its
// holder. Another consumer takes the message and acknowledges it. The acknowledgement of the holder
// is rejected.
func TestAckIsRejectedIfServerClockEndsTheLease(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	clock := redistest.NewClock(t)
	tg := target{Redis: redistest.Start(t, redistest.Options{Clock: clock}).Addr()}
	take := func(q *durable.Queue) *durable.Delivery {
		r, err := q.Receiver(durable.ConsumerOptions{Visibility: time.Minute, Membership: 500 * time.Millisecond})
		require.NoError(t, err)
		defer r.Close()
		d, err := r.Take(t.Context())
		require.NoError(t, err)
		return d
	}
	holder, other := openHere(t, tg), openHere(t, tg)
	_, err := holder.Enqueue(t.Context(), durable.Message{ID: "m"})
	require.NoError(t, err)
	late := take(holder)
	clock.Set(10 * time.Minute)
	d := take(other)
	require.Equal(t, "m", d.ID)
	require.NoError(t, d.Ack(t.Context()))
	require.ErrorIs(t, late.Ack(t.Context()), durable.ErrLeaseLost)
}

// underSteps enqueues and delivers messages, and sets the clock meanwhile.
func underSteps(t *testing.T, q *durable.Queue, clock *serverClock, step func()) {
	t.Helper()
	const batch, batches, pace = 20, 200, 20 * time.Millisecond
	h := New(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	consumed := make(chan error, 1)
	go func() {
		consumed <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			var batchNumber int
			_, err := fmt.Sscanf(d.ID, "%d-", &batchNumber)
			assert.NoError(t, err)
			assert.Zero(t, clock.early(d.Due, batchNumber < batches/2), "message %s is early", d.ID)
			started := Event{Kind: Started, ID: d.ID, Token: d.Token, Attempt: d.Attempts + 1}
			handled := started
			handled.Kind = Handled
			return h.Record(started, handled)
		}, durable.ConsumerOptions{Visibility: 20 * time.Second})
	}()
	for i := range batches {
		if i == batches/2 {
			step()
		}
		var messages []durable.Message
		for k := range batch {
			m := durable.Message{ID: fmt.Sprint(i, "-", k), Delay: time.Duration(k) * 100 * time.Millisecond}
			require.NoError(t, h.Record(Event{Kind: Enqueued, ID: m.ID}))
			messages = append(messages, m)
		}
		_, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		time.Sleep(pace)
	}
	waitUntilEmpty(t, q)
	cancel()
	require.NoError(t, <-consumed)
	report := h.Check()
	t.Log(report)
	require.NoError(t, report.Err())
	assert.Equal(t, batches*batch, report.Enqueued)
}
