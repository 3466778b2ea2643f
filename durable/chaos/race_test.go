//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// Cancel and Reschedule race with the start of a message. A cancelled message does not run, and a
// rescheduled message does not run before its new time.
func TestCancelledMessageNeverRuns(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		// With a long timeout each call has a reply, so it is known whether the message was
		// cancelled.
		raceAgainstFire(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr(), ReadTimeout: time.Minute})
	})
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		raceAgainstFire(t, target{Dir: filepath.Join(t.TempDir(), "queue")})
	})
}

func raceAgainstFire(t *testing.T, tg target) {
	t.Helper()
	q, store, err := tg.openQueue(t.Context(), nil)
	require.NoError(t, err)
	defer store.Close()
	defer q.Close()
	h := New(Options{})
	ctx, stop := context.WithCancel(t.Context())
	consumed := make(chan error, 1)
	go func() { consumed <- (&role{Visibility: 30 * time.Second}).consume(ctx, q, h) }()
	var racers sync.WaitGroup
	const racing = 32
	for g := range racing {
		racers.Go(func() {
			r := racer{q: q, history: h}
			for i := range scaled(40, 100_000/racing) {
				if err := r.race(t.Context(), fmt.Sprintf("m-%d-%d", g, i)); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	racers.Wait()
	require.NoError(t, pollUntilEmpty(t.Context(), q, nil))
	stop()
	require.NoError(t, <-consumed)
	report := h.Check()
	t.Log(report)
	require.NoError(t, report.Err())
	assert.Positive(t, report.Cancelled)
	assert.Positive(t, report.Handled)
	assert.Equal(t, report.Enqueued, report.Cancelled+report.Handled)
}

// racer cancels and reschedules messages at about the times when they are due.
type racer struct {
	q       *durable.Queue
	history *History
	// enqueueTook is how long the last Enqueue took. Messages are due after twice as long,
	// so that a call on a slow disk returns before its message is due.
	enqueueTook time.Duration
}

// race enqueues a message, and reschedules or cancels it at about its due time.
func (r *racer) race(ctx context.Context, id string) error {
	due := func(d time.Duration) int64 { return int64(driver.InstantOf(time.Now()).Add(d)) - 1 }
	delay := 2*r.enqueueTook + time.Duration(rand.IntN(20))*time.Millisecond
	start := time.Now()
	enqueued := Event{Kind: Enqueued, ID: id, Due: due(delay)}
	if _, err := r.q.Enqueue(ctx, durable.Message{ID: id, Delay: delay}); err != nil {
		return err
	}
	r.enqueueTook = time.Since(start)
	if err := r.history.Record(enqueued); err != nil {
		return err
	}
	// The next call takes about as long: it starts at any time from that much before the message
	// is due.
	early := 2*time.Millisecond + rand.N(r.enqueueTook+1)
	time.Sleep(time.Until(start.Add(delay - early + rand.N(4*time.Millisecond))))
	if rand.IntN(2) == 0 {
		again := time.Duration(rand.IntN(20)) * time.Millisecond
		moved := Event{Kind: Rescheduled, ID: id, Due: due(again)}
		result, err := r.q.Reschedule(ctx, id, again)
		if err != nil || result != durable.ResultRescheduled {
			return err
		}
		return r.history.Record(moved)
	}
	result, err := r.q.Cancel(ctx, id)
	if err != nil || result != durable.ResultCancelled {
		return err
	}
	return r.history.Record(Event{Kind: Cancelled, ID: id})
}
