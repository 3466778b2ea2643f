package durable_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// While a queue is paused, no handler is called, no message is held and all other calls work. A
// running handler continues. After Resume each message is delivered once, without an attempt or a
// crash.
func TestPauseStopsDeliveryAndResumeContinuesIt(t *testing.T) {
	t.Parallel()
	for _, handlers := range []struct {
		name  string
		takes time.Duration
		trip  time.Duration // of calls to the store
	}{{"instant", 0, 0}, {"fast", 10 * time.Microsecond, time.Millisecond}, {"slow", 50 * time.Millisecond, 2 * time.Millisecond}} {
		t.Run(handlers.name, func(t *testing.T) {
			t.Parallel()
			calls := &watchedCalls{trip: handlers.trip}
			watch(t, calls, 4, func(t *testing.T, q *durable.Queue) {
				overdue := testscale.Size(5000)
				messages := make([]durable.Message, overdue+200)
				for i := range messages {
					messages[i].ID = fmt.Sprint(i)
					if i >= overdue { // prefetched at the time of the pause
						messages[i].Delay = 400 * time.Millisecond
					}
				}
				_, err := q.EnqueueBatch(t.Context(), messages)
				require.NoError(t, err)
				var mu sync.Mutex
				got := make(map[string]int)
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					mu.Lock()
					got[d.ID]++
					mu.Unlock()
					assert.Zero(t, d.Attempts+d.Crashes, d.ID)
					time.Sleep(handlers.takes)
					return nil
				}, durable.ConsumerOptions{Concurrency: 8})
				time.Sleep(20 * time.Millisecond)
				require.NoError(t, q.Pause(t.Context()))
				time.Sleep(100 * time.Millisecond) // the consumer notices the pause
				mu.Lock()
				before := len(got)
				mu.Unlock()
				t.Logf("%d of %d messages were delivered before", before, len(messages))
				require.Less(t, before, len(messages))
				stats, err := q.Stats(t.Context())
				require.NoError(t, err)
				assert.Zero(t, stats.Prefetched, "messages that are not due yet were released as well")
				_, err = q.Enqueue(t.Context(), durable.Message{ID: "new"})
				require.NoError(t, err)
				_, err = q.Enqueue(t.Context(), durable.Message{ID: "gone"})
				require.NoError(t, err)
				result, err := q.Cancel(t.Context(), "gone")
				require.NoError(t, err)
				require.Equal(t, durable.ResultCancelled, result)
				time.Sleep(time.Minute)
				mu.Lock()
				assert.Len(t, got, before, "no handler is called while the queue is paused")
				mu.Unlock()
				stats, err = q.Stats(t.Context())
				require.NoError(t, err)
				assert.True(t, stats.Paused)
				assert.Zero(t, stats.InFlight, "messages without a handler were released")
				assert.Zero(t, stats.Prefetched+stats.Firing)
				assert.Equal(t, int64(len(messages)+1-before), stats.Scheduled)
				assert.Zero(t, stats.Crashed+stats.Retried)

				require.NoError(t, q.Resume(t.Context()))
				time.Sleep(time.Minute)
				stats, err = q.Stats(t.Context())
				require.NoError(t, err)
				assert.False(t, stats.Paused)
				assert.Equal(t, uint64(len(messages)+1), stats.Acked)
				assert.Zero(t, stats.Crashed+stats.Retried)
				stop()
				for id, n := range got {
					assert.Equal(t, 1, n, id)
				}
			})
		})
	}
}

// A handler that runs during a pause keeps its lease and acknowledges, and may pause the queue
// itself.
func TestHandlerContinuesDuringAPause(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "first", 0)
		var calls atomic.Int64
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			if calls.Add(1) > 1 {
				return nil
			}
			assert.NoError(t, q.Pause(ctx))
			enqueue(t, q, "second", 0)
			time.Sleep(10 * time.Minute) // many leases
			return ctx.Err()
		}, durable.ConsumerOptions{Visibility: time.Second})
		time.Sleep(15 * time.Minute)
		assert.EqualValues(t, 1, calls.Load())
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Acked)
		assert.Zero(t, stats.Crashed+stats.Retried)
		require.NoError(t, q.Resume(t.Context()))
		synctest.Wait()
		assert.EqualValues(t, 2, calls.Load(), "delivered immediately")
		stop()
	})
}

// Without hints a consumer notices a pause when the store refuses to begin a message, and its end
// after Fallback.
func TestPauseIsNoticedWithoutHints(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(failing("Watch", errDown))
		var calls atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error {
			calls.Add(1)
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(10 * time.Second)
		for i := range 50 {
			enqueue(t, q, fmt.Sprint(i), 1500*time.Millisecond+time.Duration(i)*time.Millisecond)
		}
		time.Sleep(1400 * time.Millisecond)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Positive(t, stats.Prefetched)
		require.NoError(t, q.Pause(t.Context()))
		time.Sleep(200 * time.Millisecond)
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, stats.Prefetched, "all messages are released when the first is refused")
		assert.Zero(t, stats.InFlight)
		time.Sleep(time.Minute)
		assert.Zero(t, calls.Load())
		require.NoError(t, q.Resume(t.Context()))
		time.Sleep(time.Second + 10*time.Millisecond)
		assert.EqualValues(t, 50, calls.Load())
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, stats.Crashed+stats.Retried)
		stop()
	})
}

// A consumer of a paused queue calls the store no more often than an idle one, although messages
// are overdue.
func TestConsumerOfAPausedQueueMakesFewCalls(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 4}, func(t *testing.T, q *durable.Queue, f *faulty) {
		require.NoError(t, q.Pause(t.Context()))
		for i := range 1000 {
			enqueue(t, q, fmt.Sprint(i), time.Duration(i)*10*time.Millisecond)
		}
		stop := consume(t, q, func(context.Context, *durable.Delivery) error {
			t.Error("a handler was called")
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(10 * time.Second)
		before := f.count("Claim") + f.count("Heartbeat")
		time.Sleep(100 * time.Second)
		assert.LessOrEqual(t, f.count("Claim")+f.count("Heartbeat")-before, int64(4*101+100))
		assert.Zero(t, f.count("Begin")+f.count("Release"))
		stop()
	})
}

// Take waits while the queue is paused, until its context ends or the queue is resumed.
func TestTakeWaitsWhileTheQueueIsPaused(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		require.NoError(t, q.Pause(t.Context()))
		enqueue(t, q, "m", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var resume sync.WaitGroup
		resume.Go(func() {
			time.Sleep(time.Minute)
			assert.NoError(t, q.Resume(t.Context()))
		})
		defer resume.Wait() // must end before the queue is closed
		begun := time.Now()
		d, err := q.Take(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "m", d.ID)
		assert.Zero(t, d.Crashes+d.Attempts)
		assert.Equal(t, time.Minute, time.Since(begun).Truncate(time.Millisecond))
		require.NoError(t, d.Ack(t.Context()))
	})
}

// The replies to Pause and Resume are lost. Each call takes effect once, in order.
func TestPauseTakesEffectOnceIfItsReplyIsLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 3}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var n atomic.Int64
		f.set(func(call string) (before, after error) {
			if call != "Pause" {
				return nil, nil
			}
			switch n.Add(1) % 3 {
			case 1:
				return errDown, nil
			case 2:
				return nil, errDown
			}
			return nil, nil
		})
		for i := range 20 {
			if i%2 == 0 {
				require.NoError(t, q.Pause(t.Context()))
			} else {
				require.NoError(t, q.Resume(t.Context()))
			}
			stats, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Equal(t, i%2 == 0, stats.Paused)
			for _, p := range stats.Partitions {
				assert.Equal(t, i%2 == 0, p.Paused)
			}
		}
		assert.Greater(t, f.count("Pause"), int64(60))
	})
}

func TestFailedPauseNamesThePartitions(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 3, RetryFor: time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(failing("Pause", errDown))
		err := q.Pause(t.Context())
		require.ErrorIs(t, err, durable.ErrUnavailable)
		require.ErrorContains(t, err, "durable: pause: 3 of 3 partitions failed: partition 0: ")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, q.Resume(ctx), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		f.set(func(string) (before, after error) { return nil, nil })
		require.NoError(t, q.Pause(t.Context()))
		q.Close()
		require.ErrorIs(t, q.Pause(t.Context()), durable.ErrClosed)
		require.ErrorIs(t, q.Resume(t.Context()), durable.ErrClosed)
	})
}

// pausedBackend counts the messages that begin in a call that was made after Pause had returned.
type pausedBackend struct {
	driver.Backend
	paused *atomic.Bool
	late   *atomic.Int64
}

func (b pausedBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	paused := b.paused.Load()
	claimed, err := b.Backend.Claim(ctx, c)
	for _, r := range claimed.Records {
		if paused && r.State == durable.StateFiring {
			b.late.Add(1)
		}
	}
	return claimed, err
}

func (b pausedBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	paused := b.paused.Load()
	outcomes, err := b.Backend.Apply(ctx, batch)
	for _, o := range outcomes {
		if paused && batch.Op == driver.OpBegin && o.Status == driver.StatusDone {
			b.late.Add(1)
		}
	}
	return outcomes, err
}

// Pauses race with messages that begin, on several consumers. No message begins after Pause has
// returned, and each message is delivered once in the end.
func TestPauseRacesWithBegin(t *testing.T) {
	t.Parallel()
	var paused atomic.Bool
	var late, delivered atomic.Int64
	wrap := func(b driver.Backend) driver.Backend { return pausedBackend{b, &paused, &late} }
	bubbleOf(t, wrap, durable.Options{Partitions: 4}, func(t *testing.T, q *durable.Queue) {
		rounds, n := max(12, testscale.Size(40)), 300
		handler := func(_ context.Context, d *durable.Delivery) error {
			delivered.Add(1)
			assert.Zero(t, d.Crashes+d.Attempts)
			return nil
		}
		stops := []func(){consume(t, q, handler, durable.ConsumerOptions{}), consume(t, q, handler, durable.ConsumerOptions{Concurrency: 2})}
		for round := range rounds {
			messages := make([]durable.Message, n)
			for i := range messages {
				messages[i].ID, messages[i].Delay = fmt.Sprint(round, "-", i), time.Duration(i*round)*10*time.Microsecond
			}
			_, err := q.EnqueueBatch(t.Context(), messages)
			require.NoError(t, err)
			time.Sleep(time.Duration(round) * 50 * time.Microsecond)
			require.NoError(t, q.Pause(t.Context()))
			paused.Store(true)
			time.Sleep(time.Duration(round%3) * 10 * time.Millisecond)
			paused.Store(false)
			require.NoError(t, q.Resume(t.Context()))
		}
		time.Sleep(time.Minute)
		for _, stop := range stops {
			stop()
		}
		assert.Zero(t, late.Load(), "messages that began after Pause had returned")
		assert.EqualValues(t, rounds*n, delivered.Load())
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, rounds*n, stats.Acked)
		assert.Zero(t, stats.Crashed+stats.Retried)
	})
}

// Messages begin ahead of fast handlers, which then block. The consumer releases these messages
// when it notices a pause. The handlers get no further messages.
func TestPauseReleasesBegunMessagesWithoutHandler(t *testing.T) {
	t.Parallel()
	watch(t, &watchedCalls{trip: time.Millisecond}, 1, func(t *testing.T, q *durable.Queue) {
		n, concurrency := testscale.Size(20_000), 8
		_, err := q.EnqueueBatch(t.Context(), make([]durable.Message, n))
		require.NoError(t, err)
		var delivered atomic.Int64
		var blocked atomic.Bool
		goOn := make(chan struct{})
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			assert.Zero(t, d.Attempts+d.Crashes)
			delivered.Add(1)
			if blocked.Load() {
				<-goOn
			}
			time.Sleep(10 * time.Microsecond)
			return nil
		}, durable.ConsumerOptions{Concurrency: concurrency})
		stats := func() durable.Stats {
			t.Helper()
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			return s
		}
		time.Sleep(30 * time.Millisecond)
		blocked.Store(true)
		time.Sleep(50 * time.Millisecond)
		require.Greater(t, stats().Firing, concurrency, "some begun messages wait for a handler")
		require.NoError(t, q.Pause(t.Context()))
		time.Sleep(100 * time.Millisecond)
		s := stats()
		assert.Equal(t, concurrency, s.Firing, "messages of running handlers")
		assert.Zero(t, s.Prefetched)
		assert.EqualValues(t, concurrency, s.InFlight)
		before := delivered.Load()
		close(goOn)
		time.Sleep(time.Minute)
		assert.Equal(t, before, delivered.Load())
		require.NoError(t, q.Resume(t.Context()))
		time.Sleep(time.Minute)
		assert.EqualValues(t, n, delivered.Load())
		s = stats()
		assert.Zero(t, s.Crashed+s.Retried)
		stop()
	})
}
