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

// consumeHere consumes in this process until the returned function is called. The leases are long,
// because messages are delivered again if leases end.
func consumeHere(t *testing.T, q *durable.Queue, events Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&role{Visibility: 30 * time.Second}).consume(ctx, q, events) }()
	return func() {
		t.Helper()
		cancel()
		assert.NoError(t, <-done)
	}
}

// waitUntilEmpty waits until the queue has no messages to deliver.
func waitUntilEmpty(t *testing.T, q *durable.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	require.NoError(t, pollUntilEmpty(ctx, q, nil))
}

// openHere opens the queue in this process until the test ends.
func openHere(t *testing.T, tg target) *durable.Queue {
	t.Helper()
	q, store, err := tg.openQueue(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		q.Close()
		assert.NoError(t, store.Close())
	})
	return q
}

// The server is paused several times for longer than the timeout of the client. After each pause
// the server executes the claims that were sent meanwhile, although their connections are closed.
// No message counts a crash, and all messages are delivered soon.
func TestServerPausesCountNoCrash(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	tg := target{Redis: server.Addr(), ReadTimeout: scaled(200*time.Millisecond, 3*time.Second)}
	pause, pauses := scaled(1500*time.Millisecond, 12*time.Second), scaled(2, 10)
	const visibility = 30 * time.Second
	q := openHere(t, tg)
	var mu sync.Mutex
	handled := map[string]int{} // with its crashes
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			handled[d.ID] = d.Crashes
			return nil
		}, durable.ConsumerOptions{Visibility: visibility, Prefetch: 64}) // so that most claims begin some messages
	}()
	reached := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(handled) >= n
		}
	}
	total := 0
	for i := range pauses {
		var batch []durable.Message
		for n := range 5000 { // a tenth becomes due during the pause; the others are being handled
			m := durable.Message{ID: fmt.Sprintf("%d-%d", i, n)}
			if n%10 == 0 {
				m.Delay = time.Duration(n) * pause / 5000
			}
			batch = append(batch, m)
		}
		_, err := q.EnqueueBatch(t.Context(), batch)
		require.NoError(t, err)
		require.Eventually(t, reached(total+500), waitLimit, time.Millisecond)
		total += len(batch)
		server.Pause()
		time.Sleep(pause)
		server.Continue()
		continued := time.Now()
		require.Eventually(t, reached(total), waitLimit, 5*time.Millisecond)
		took := time.Since(continued)
		t.Logf("all messages were delivered %v after the pause", took)
		assert.Less(t, took, visibility*2/3, "messages must be delivered before any lease ends")
	}
	cancel()
	require.NoError(t, <-ended)
	crashed := 0
	for _, crashes := range handled {
		crashed += crashes
	}
	assert.Zero(t, crashed, "crashes of all messages")
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, s.Crashed)
	assert.Zero(t, s.Scheduled+s.InFlight+s.Dead)
}

// The consumer ends while the server is paused, and another consumer takes over its partitions.
// After the pause the server executes the unanswered claims of the first consumer. No message
// counts a crash.
func TestConsumerEndDuringServerPauseCountsNoCrash(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	tg := target{Redis: server.Addr(), ReadTimeout: scaled(500*time.Millisecond, 3*time.Second)}
	pause, rounds, visibility := scaled(3*time.Second, 12*time.Second), scaled(2, 10), scaled(8*time.Second, 30*time.Second)
	var mu sync.Mutex
	handled := map[string]int{} // with its crashes
	reached := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(handled) >= n
		}
	}
	consume := func(q *durable.Queue) (end context.CancelFunc, ended <-chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
				time.Sleep(2 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				handled[d.ID] = d.Crashes
				return nil
			}, durable.ConsumerOptions{Visibility: visibility, Prefetch: 64}) // so that most claims begin messages
		}()
		return cancel, done
	}
	queues := []*durable.Queue{openHere(t, tg), openHere(t, tg)}
	end, ended := consume(queues[0])
	for i := range rounds {
		var batch []durable.Message
		for n := range 3000 {
			batch = append(batch, durable.Message{ID: fmt.Sprintf("%d-%d", i, n)})
		}
		_, err := queues[0].EnqueueBatch(t.Context(), batch)
		require.NoError(t, err)
		require.Eventually(t, reached(i*len(batch)+300), waitLimit, time.Millisecond)
		server.Pause()
		time.Sleep(pause / 20) // so that claims under way have no answer
		end()
		nextEnd, nextEnded := consume(queues[(i+1)%2])
		time.Sleep(pause)
		server.Continue()
		require.NoError(t, <-ended)
		require.Eventually(t, reached((i+1)*len(batch)), waitLimit, 5*time.Millisecond)
		end, ended = nextEnd, nextEnded
	}
	waitUntilEmpty(t, queues[0])
	end()
	require.NoError(t, <-ended)
	crashed := 0
	for _, crashes := range handled {
		crashed += crashes
	}
	assert.Zero(t, crashed, "crashes of all messages")
	s, err := queues[0].Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, s.Crashed)
}

// The memory of the server is full. Enqueues return ErrFull and deliveries continue, after which
// there is room again.
func TestFullMemoryRejectsEnqueuesAndDelivers(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{MaxMemory: 6 << 20})
	q := openHere(t, target{Redis: server.Addr()})
	h := New(Options{})
	body := make([]byte, 10_000)
	enqueue := func(id string) error {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Body: body})
		if err == nil {
			err = h.Record(Event{Kind: Enqueued, ID: id})
		}
		return err
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = enqueue(fmt.Sprint("m", n))
	}
	require.ErrorIs(t, err, durable.ErrFull)
	require.ErrorIs(t, enqueue("another"), durable.ErrFull)
	stop := consumeHere(t, q, h)
	waitUntilEmpty(t, q)
	require.NoError(t, enqueue("later"))
	waitUntilEmpty(t, q)
	stop()
	report := h.Check()
	t.Log(report)
	require.NoError(t, report.Err())
	assert.Equal(t, n, report.Enqueued, "all messages except two rejected ones, and a later one")
	assert.Equal(t, n, report.Handled)
	assert.Zero(t, report.Duplicates)
}
