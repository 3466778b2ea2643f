//go:build unix

package chaos

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// Consumers are killed one after the other while messages are enqueued, delivered, interrupted and
// cancelled, among them recurring ones.
// Each message is delivered or cancelled, and the messages of a killed consumer are delivered again
// soon.
func TestMessagesOfKilledConsumersAreRedelivered(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
	consumer := role{Consume: true, Visibility: time.Second, Handle: 2 * time.Millisecond, FailEvery: 50}
	consumers := make([]*child, 4)
	for i := range consumers {
		consumers[i] = r.start(consumer)
	}
	messages := scaled(3000, 100_000)
	producer := r.start(role{
		Messages: messages, Batch: 100, MaxDelay: scaled(2*time.Second, 20*time.Second), CancelEvery: 4, Visibility: consumer.Visibility,
		Series: scaled(10, 50),
	})
	for i := range scaled(4, 10) {
		time.Sleep(scaled(500*time.Millisecond, 2*time.Second))
		consumers[i%4].kill()
		consumers[i%4] = r.start(consumer)
	}
	producer.wait()
	r.waitUntilDrained()
	for _, c := range consumers {
		c.stop()
	}
	report := r.check(Options{Crashes: true}, nil)
	assert.Equal(t, messages, report.Enqueued)
	assert.GreaterOrEqual(t, report.Handled, messages*3/4)
	assert.Positive(t, report.Cancelled)
	assert.Positive(t, report.Runs)
	// Other consumers own the partitions after half the visibility, and the leases end after all of
	// it. A busy machine may take longer, so the limit is higher by default; the log has the time.
	assert.LessOrEqual(t, report.SlowestRedelivery, (consumer.Visibility + scaled(29*time.Second, 2*time.Second)).Milliseconds(),
		"the messages of a killed consumer are delivered again soon")
}

// A consumer kills itself at the worst points: after it has received a message, and between the
// work and the acknowledgement.
func TestCrashDuringDeliveryLosesNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, point := range []string{"started", "handled"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
			const messages = 300
			r.start(role{Messages: messages, Batch: 50, MaxDelay: time.Second}).wait()
			deaths := scaled(4, 40)
			for range deaths {
				c := r.start(role{Consume: true, Visibility: 500 * time.Millisecond, CrashAt: point, CrashAfter: 5})
				require.Eventually(t, c.ended, waitLimit, 10*time.Millisecond)
				assert.Equal(t, syscall.SIGKILL, c.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
			}
			last := r.start(role{Consume: true, Visibility: 500 * time.Millisecond})
			r.waitUntilDrained()
			last.stop()
			report := r.check(Options{Crashes: true}, nil)
			assert.Equal(t, messages, report.Handled)
			assert.GreaterOrEqual(t, report.Duplicates, deaths, "the message of each killed consumer is delivered again")
		})
	}
}

// A consumer is killed with messages that it has claimed and not begun. Other consumers receive
// them when the leases end, and no attempt is used up.
func TestClaimsOfKilledConsumerUseNoAttempt(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
	const messages = 200
	r.start(role{Messages: messages, Batch: 100, MaxDelay: 2500 * time.Millisecond}).wait()
	first := r.start(role{Consume: true, Visibility: 500 * time.Millisecond, Concurrency: 1, Handle: 100 * time.Millisecond})
	q, store, err := r.target.openQueue(t.Context(), nil)
	require.NoError(t, err)
	defer store.Close()
	defer q.Close()
	require.Eventually(t, func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.InFlight > 1 // one message may have begun
	}, waitLimit, 5*time.Millisecond)
	first.kill()
	second := r.start(role{Consume: true, Visibility: 500 * time.Millisecond})
	r.waitUntilDrained()
	second.stop()
	report := r.check(Options{Crashes: true}, nil)
	assert.Equal(t, messages, report.Handled)
	assert.Zero(t, report.Dead)
}

// A consumer with a busy handler is killed after it has claimed other messages ahead. The
// messages that have not begun are delivered when other consumers own the partitions, long before
// Visibility has passed, and count no crash.
func TestMessagesClaimedAheadAreRedeliveredBeforeVisibility(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
	const messages, visibility = 400, 2 * time.Minute
	membership := scaled(time.Second, 5*time.Second)
	first := r.start(role{Consume: true, Visibility: visibility, Membership: membership, Concurrency: 1, Handle: time.Hour})
	q := openHere(t, r.target)
	owned := func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Unowned == 0
	}
	require.Eventually(t, owned, waitLimit, 5*time.Millisecond)
	batch := make([]durable.Message, messages)
	for i := range batch {
		batch[i].Delay = 2 * time.Second
	}
	_, err := q.EnqueueBatch(t.Context(), batch)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.InFlight > messages/4
	}, waitLimit, 5*time.Millisecond)
	time.Sleep(2 * membership) // its leases have been renewed by now
	first.kill()
	killed := time.Now()

	var handled, crashes atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			crashes.Add(int64(d.Crashes))
			handled.Add(1)
			return nil
		}, durable.ConsumerOptions{Visibility: visibility, Membership: membership})
	}()
	busy := int64(1) // the message of the handler
	require.Eventually(t, func() bool { return handled.Load() >= messages-busy }, visibility/2, 5*time.Millisecond)
	took := time.Since(killed)
	t.Logf("%d messages, of which a killed consumer had claimed some ahead, were delivered after %v, with a membership of %v", messages-busy, took, membership)
	assert.Less(t, took, scaled(30*time.Second, 2*membership)+time.Second)
	assert.Zero(t, crashes.Load())
	cancel()
	require.NoError(t, <-ended)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, busy, s.InFlight)
	assert.Zero(t, s.Crashed)
}

// A consumer is paused for longer than its leases, and continued. Other consumers have its messages
// by then, and its acknowledgements change nothing.
func TestAckOfPausedConsumerIsRejected(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
	consumer := role{Consume: true, Visibility: 500 * time.Millisecond, Handle: 200 * time.Millisecond}
	paused := r.start(consumer)
	paused.waitUntilOpen()
	const messages = 600 // several seconds of work for one consumer
	producer := r.start(role{Messages: messages, Batch: 50, MaxDelay: time.Second})
	require.Eventually(t, paused.recorded, waitLimit, 5*time.Millisecond)
	time.Sleep(500 * time.Millisecond) // while a dozen messages are handled
	paused.signal(syscall.SIGSTOP)
	other := r.start(consumer)
	require.Eventually(t, r.shared, waitLimit, 100*time.Millisecond, "no other consumer receives the messages of the paused one")
	paused.signal(syscall.SIGCONT)
	producer.wait()
	r.waitUntilDrained()
	paused.stop()
	other.stop()
	report := r.checkAll(messages, Options{Crashes: true, Pauses: true})
	assert.Positive(t, report.Duplicates, "the paused consumer had messages")
	assert.Contains(t, paused.errs.String(), "the lease has expired", "the acknowledgement of the paused consumer is rejected")
}

// shared reports whether two processes have begun the same message.
func (r *run) shared() bool {
	r.t.Helper()
	begun := map[string]string{} // files of events, by id
	twice := false
	r.read(Options{}, func(file string, e Event) Event {
		if e.Kind == Started {
			twice = twice || begun[e.ID] != "" && begun[e.ID] != file
			begun[e.ID] = file
		}
		return e
	})
	return twice
}

// A queue is paused and resumed several times while two processes consume it and a third one
// enqueues. While the queue is paused, no handler begins. In the end each message has been
// delivered once, without a crash.
func TestNoHandlerBeginsWhileQueueIsPaused(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
	consumers := []*child{
		r.start(role{Consume: true, Visibility: 10 * time.Second, Handle: time.Millisecond}),
		r.start(role{Consume: true, Visibility: 10 * time.Second, Handle: time.Millisecond}),
	}
	messages := scaled(4000, 100_000)
	producer := r.start(role{Messages: messages, Batch: 100, MaxDelay: scaled(2*time.Second, 20*time.Second)})
	q := openHere(t, r.target)
	stats := func() durable.Stats {
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		return s
	}
	for range scaled(3, 20) {
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, q.Pause(t.Context()))
		require.Eventually(t, func() bool { return stats().InFlight == 0 }, waitLimit, 5*time.Millisecond, "all claimed messages are released or handled")
		before := stats()
		require.True(t, before.Paused)
		time.Sleep(scaled(300*time.Millisecond, time.Second))
		after := stats()
		assert.Equal(t, before.Acked, after.Acked)
		assert.Zero(t, after.InFlight)
		require.NoError(t, q.Resume(t.Context()))
	}
	producer.wait()
	r.waitUntilDrained()
	s := stats()
	assert.Zero(t, s.Crashed+s.Retried)
	all, err := q.Consumers(t.Context())
	require.NoError(t, err)
	if assert.Len(t, all, 2) {
		assert.NotEqual(t, all[0].PID, all[1].PID)
	}
	for _, c := range consumers {
		c.stop()
	}
	report := r.checkAll(messages, Options{})
	assert.Zero(t, report.Duplicates)
}
