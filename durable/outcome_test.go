package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// Each outcome, as an error of the handler, a wrapped one and a method, on a message that has
// failed and was postponed before.
func TestOutcomesChangeTheMessage(t *testing.T) {
	t.Parallel()
	at := time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC) // a bubble begins at midnight
	returns := func(err error) durable.Handler {
		return func(context.Context, *durable.Delivery) error { return err }
	}
	for name, c := range map[string]struct {
		handler             durable.Handler
		state               durable.State // 0: the message is gone
		delay               time.Duration
		attempts, postponed int
		reason              string
		kind                durable.EventKind
	}{
		"nil":                {returns(nil), 0, 0, 0, 0, "", durable.EventAcked},
		"error":              {returns(assert.AnError), durable.StateScheduled, time.Minute, 2, 0, assert.AnError.Error(), durable.EventRetried},
		"Fail":               {returns(durable.Fail(assert.AnError, time.Hour)), durable.StateScheduled, time.Hour, 2, 0, assert.AnError.Error(), durable.EventRetried},
		"Reject":             {returns(durable.Reject(assert.AnError)), durable.StateDead, 0, 2, 0, "rejected: " + assert.AnError.Error(), durable.EventBuried},
		"Postpone":           {returns(durable.Postpone(time.Hour)), durable.StateScheduled, time.Hour, 1, 2, "", durable.EventPostponed},
		"Postpone, negative": {returns(durable.Postpone(-time.Hour)), durable.StateScheduled, 0, 1, 2, "", durable.EventPostponed},
		"Postpone, wrapped":  {returns(fmt.Errorf("why: %w", durable.Postpone(time.Hour))), durable.StateScheduled, time.Hour, 1, 2, "", durable.EventPostponed},
		"Again":              {returns(durable.Again(time.Hour)), durable.StateScheduled, time.Hour, 0, 0, "", durable.EventAgain},
		"AgainAt":            {returns(durable.AgainAt(at)), durable.StateScheduled, at.Sub(at.Truncate(24 * time.Hour)), 0, 0, "", durable.EventAgain},
		"AgainAt, zero":      {returns(durable.AgainAt(time.Time{})), durable.StateScheduled, 0, 0, 0, "", durable.EventAgain},
		"joined with nil":    {returns(errors.Join(nil, durable.Again(time.Hour))), durable.StateScheduled, time.Hour, 0, 0, "", durable.EventAgain},
		"joined with an error": {returns(errors.Join(assert.AnError, durable.Again(time.Hour))), durable.StateScheduled, time.Minute, 2, 0,
			assert.AnError.Error() + "\nhandled, and due again", durable.EventRetried},
		"rejected and joined": {returns(errors.Join(assert.AnError, durable.Reject(nil))), durable.StateDead, 0, 2, 0,
			assert.AnError.Error() + "\nrejected", durable.EventBuried},
		"the outermost":     {returns(durable.Fail(durable.Reject(assert.AnError), time.Hour)), durable.StateScheduled, time.Hour, 2, 0, "rejected: " + assert.AnError.Error(), durable.EventRetried},
		"Delivery.Postpone": {func(ctx context.Context, d *durable.Delivery) error { return d.Postpone(ctx, time.Hour) }, durable.StateScheduled, time.Hour, 1, 2, "", durable.EventPostponed},
		"Delivery.Again":    {func(ctx context.Context, d *durable.Delivery) error { return d.Again(ctx, time.Hour) }, durable.StateScheduled, time.Hour, 0, 0, "", durable.EventAgain},
		"Delivery.AgainAt":  {func(ctx context.Context, d *durable.Delivery) error { return d.AgainAt(ctx, at) }, durable.StateScheduled, at.Sub(at.Truncate(24 * time.Hour)), 0, 0, "", durable.EventAgain},
		"Delivery.Nack":     {func(ctx context.Context, d *durable.Delivery) error { return d.Nack(ctx, durable.Postpone(time.Hour)) }, durable.StateScheduled, time.Hour, 1, 2, "", durable.EventPostponed},
		"the first of several": {func(ctx context.Context, d *durable.Delivery) error {
			err := d.Again(ctx, time.Hour)
			assert.ErrorIs(t, d.Nack(ctx, nil), durable.ErrLeaseLost)
			assert.ErrorIs(t, d.Postpone(ctx, 0), durable.ErrLeaseLost)
			return errors.Join(err, d.Ack(ctx))
		}, durable.StateScheduled, time.Hour, 0, 0, "", durable.EventAgain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var es events
			bubble(t, durable.Options{OnEvent: es.add}, func(t *testing.T, q *durable.Queue) {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Body: []byte("body"), Headers: map[string]string{"k": "v"}})
				require.NoError(t, err)
				require.NoError(t, take(t, q).NackAfter(t.Context(), 0, assert.AnError))
				require.NoError(t, take(t, q).Postpone(t.Context(), 0))
				ctx, cancel := context.WithCancel(t.Context())
				require.NoError(t, q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
					assert.Equal(t, [3]int{1, 0, 1}, [3]int{d.Attempts, d.Crashes, d.Postponed})
					cancel()
					synctest.Wait() // until the consumer begins nothing more
					return c.handler(ctx, d)
				}, durable.ConsumerOptions{Backoff: func(*durable.Delivery, error) time.Duration { return time.Minute }}))
				all := es.of(func(e durable.Event) bool { return e.ID == "m" })
				last := all[len(all)-1]
				assert.Equal(t, c.kind, last.Kind)
				assert.Equal(t, c.kind == durable.EventRetried || c.kind == durable.EventBuried, last.Err != nil)
				stats, err := q.Stats(t.Context())
				require.NoError(t, err)
				done := uint64(0)
				if c.kind == durable.EventAcked || c.kind == durable.EventAgain {
					done = 1
				}
				assert.Equal(t, done, stats.Acked)
				r, err := q.Get(t.Context(), "m")
				if c.state == 0 {
					require.ErrorIs(t, err, durable.ErrNotFound)
					return
				}
				require.NoError(t, err)
				want := durable.Record{
					ID: "m", Body: []byte("body"), Headers: map[string]string{"k": "v"}, State: c.state, MaxAttempts: 25,
					Attempts: c.attempts, Reason: c.reason,
					Enqueued: r.Enqueued, Due: r.Due, Died: r.Died,
				}
				assert.Equal(t, want, r)
				if c.state == durable.StateScheduled {
					assert.InDelta(t, c.delay.Seconds(), time.Until(r.Due).Seconds(), 0.1)
					_, err := q.Reschedule(t.Context(), "m", 0)
					require.NoError(t, err)
					assert.Equal(t, c.postponed, take(t, q).Postponed)
				}
			})
		})
	}
}

// A message may be postponed any number of times, and a handler that wants it again gets
// it under its id.
func TestPostponementsAreNoFailures(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{MaxAttempts: 1}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "m", 0)
		n := 0
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			assert.Equal(t, n%1000, d.Postponed)
			if n++; n%1000 == 0 {
				return durable.Again(10 * time.Millisecond)
			}
			return durable.Postpone(10 * time.Millisecond)
		}, durable.ConsumerOptions{})
		time.Sleep(time.Minute)
		stop()
		require.Greater(t, n, 3000)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []uint64{uint64(n / 1000), 0, 0, uint64(1 + n/1000)},
			[]uint64{stats.Acked, stats.Retried, stats.Buried, stats.Enqueued})
	})
}

// A declined message is postponed, at first briefly, and becomes a dead letter after 100
// postponements. Each is in the log.
func TestDeclinedMessageIsPostponedAndThenBuried(t *testing.T) {
	t.Parallel()
	var log logged
	var es events
	bubble(t, durable.Options{MaxAttempts: 1, Logger: log.logger(), OnEvent: es.add}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "m", 0)
		start := time.Now()
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(start, d)
			return durable.Decline(assert.AnError)
		}, durable.ConsumerOptions{Fallback: time.Minute, Membership: time.Hour, Visibility: 2 * time.Hour})
		time.Sleep(10 * time.Second)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.NotEqual(t, durable.StateDead, r.State)
		assert.Equal(t, [2]int{0, 0}, [2]int{r.Attempts, r.Crashes})
		assert.Equal(t, assert.AnError.Error(), r.Reason)
		time.Sleep(48 * time.Hour)
		stop()
		all := got.list()
		require.Len(t, all, 101)
		assert.Less(t, all[1].at-all[0].at, 2*time.Second)
		assert.Greater(t, all[100].at-all[99].at, 5*time.Minute)
		r, err = q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, r.State)
		assert.Equal(t, assert.AnError.Error(), r.Reason)
	})
	require.Len(t, es.of(func(e durable.Event) bool {
		return e.Kind == durable.EventPostponed && errors.Is(e.Err, assert.AnError)
	}), 100)
	records, skipped := log.records(t), 0.0
	for _, r := range records {
		skipped += r["skipped"].(float64)
	}
	assert.Equal(t, 101, len(records)+int(skipped))
	assert.Equal(t, "durable: message declined", records[0]["msg"])
	assert.Equal(t, "durable: delivery failed", records[len(records)-1]["msg"])
}

// The error of the program's context, while Consume ends, is no failed attempt.
func TestInterruptionByTheEndOfConsumeIsNoFailure(t *testing.T) {
	t.Parallel()
	errSignal := errors.New("signal")
	for name, c := range map[string]struct {
		end  bool // Consume ends
		err  func(ctx context.Context) error
		dead bool
	}{
		"Canceled":             {true, func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, false},
		"the cause":            {true, func(ctx context.Context) error { return fmt.Errorf("query: %w", context.Cause(ctx)) }, false},
		"another error":        {true, func(context.Context) error { return assert.AnError }, true},
		"DeadlineExceeded":     {true, func(context.Context) error { return context.DeadlineExceeded }, true},
		"Canceled and no end":  {false, func(context.Context) error { return context.Canceled }, true},
		"rejected":             {true, func(ctx context.Context) error { return durable.Reject(ctx.Err()) }, true},
		"Canceled, as a panic": {true, func(ctx context.Context) error { panic(ctx.Err()) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, durable.Options{MaxAttempts: 1}, func(t *testing.T, q *durable.Queue) {
				program, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error)
				go func() {
					done <- q.Consume(program, func(context.Context, *durable.Delivery) error {
						if c.end {
							<-program.Done()
							time.Sleep(time.Second)
						}
						return c.err(program)
					}, durable.ConsumerOptions{})
				}()
				enqueue(t, q, "m", 0)
				time.Sleep(time.Second)
				cancel(errSignal)
				require.NoError(t, <-done)
				r, err := q.Get(t.Context(), "m")
				require.NoError(t, err)
				if !c.dead {
					assert.Zero(t, r.Attempts)
				}
				assert.Equal(t, c.dead, r.State == durable.StateDead)
			})
		})
	}
}

// wrongError is an error whose methods panic if it is a nil pointer.
type wrongError struct{ err error }

func (e *wrongError) Error() string { return e.err.Error() }
func (e *wrongError) Unwrap() error { return e.err }

func TestFailedTellsFailures(t *testing.T) {
	t.Parallel()
	for err, failed := range map[error]bool{
		nil: false, assert.AnError: true, (*wrongError)(nil): true, &wrongError{durable.Again(0)}: false,
		durable.Postpone(0): false, durable.AgainAt(time.Time{}): false, durable.Fail(nil, 0): true, durable.Reject(nil): true,
		durable.Decline(nil): true, errors.Join(durable.Again(0), assert.AnError): true,
	} {
		assert.Equal(t, failed, durable.Failed(err))
	}
	assert.Nil(t, durable.Chain(nil, func(h durable.Handler) durable.Handler { return h }))
}

// After a call without an answer, the store cannot tell which of two outcomes has taken effect.
func TestSecondOutcomeDoesNotConfirmTheFirst(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, d *durable.Delivery) error{
		"Again":    func(ctx context.Context, d *durable.Delivery) error { return d.Again(ctx, time.Hour) },
		"Postpone": func(ctx context.Context, d *durable.Delivery) error { return d.Postpone(ctx, time.Hour) },
		"NackAfter": func(ctx context.Context, d *durable.Delivery) error {
			return d.NackAfter(ctx, time.Hour, assert.AnError)
		},
		"Ack": func(ctx context.Context, d *durable.Delivery) error { return d.Ack(ctx) },
	}
	for first, firstCall := range calls {
		for second, secondCall := range calls {
			faultyBubble(t, durable.Options{RetryFor: time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
				enqueue(t, q, "m", 0)
				d := take(t, receiver(t, q, durable.ConsumerOptions{Visibility: time.Minute}))
				f.set(func(string) (error, error) { return nil, errDown })
				require.ErrorIs(t, firstCall(t.Context(), d), durable.ErrOutcomeUnknown, first)
				f.set(func(string) (error, error) { return nil, nil })
				err := secondCall(t.Context(), d)
				if first == second {
					require.NoError(t, err, first)
					return
				}
				require.ErrorIs(t, err, durable.ErrLeaseLost, "%s, %s", first, second)
				require.ErrorIs(t, err, durable.ErrOutcomeUnknown, "%s, %s", first, second)
			})
		}
	}
}
