//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// produce enqueues the messages of the role. It records each message as possibly enqueued before
// the call, because the process may be killed before it records the success. Each event has the
// time at which it was recorded.
func (r *role) produce(ctx context.Context, q *durable.Queue, events Recorder) error {
	var cancels sync.WaitGroup
	defer cancels.Wait()
	for i := range r.Series {
		cancels.Go(func() {
			if err := r.repeat(ctx, q, events, r.Name+recurringMark+strconv.Itoa(i)); err != nil {
				panic(err)
			}
		})
	}
	for first := 0; first < r.Messages && ctx.Err() == nil; first += r.Batch {
		batch := make([]durable.Message, min(r.Batch, r.Messages-first))
		maybe := make([]Event, len(batch))
		now := time.Now()
		for i := range batch {
			n := first + i
			delay := r.MaxDelay * time.Duration(n%97) / 97
			batch[i] = durable.Message{ID: fmt.Sprintf("%s-%d", r.Name, n), Body: []byte(fmt.Sprint(n)), Delay: delay}
			maybe[i] = Event{
				Kind: MaybeEnqueued, ID: batch[i].ID, Due: int64(driver.InstantOf(now).Add(delay)) - 1, Clock: now.UnixMilli(),
			}
		}
		if err := events.Record(maybe...); err != nil {
			return err
		}
		if err := r.enqueue(ctx, q, events, batch, maybe); err != nil {
			return err
		}
		for i := range batch {
			if r.CancelEvery > 0 && (first+i)%r.CancelEvery == 0 {
				cancels.Go(func() {
					if err := r.cancel(ctx, q, events, batch[i].ID, now.Add(batch[i].Delay)); err != nil {
						panic(err)
					}
				})
			}
		}
		time.Sleep(r.Pace)
	}
	return nil
}

// enqueue enqueues a batch. The queue retries while the store cannot be reached.
func (r *role) enqueue(ctx context.Context, q *durable.Queue, events Recorder, batch []durable.Message, maybe []Event) error {
	_, err := q.EnqueueBatch(ctx, batch)
	switch {
	case err == nil:
	case unanswered(ctx, err):
		return nil // the messages stay possibly enqueued
	default:
		return err
	}
	done := make([]Event, len(batch))
	for i := range done {
		done[i] = maybe[i]
		done[i].Kind, done[i].Clock = Enqueued, time.Now().UnixMilli()
	}
	return events.Record(done...)
}

// cancel cancels a message at about its due time, which is not before due.
func (r *role) cancel(ctx context.Context, q *durable.Queue, events Recorder, id string, due time.Time) error {
	time.Sleep(time.Until(due) - 5*time.Millisecond + rand.N(15*time.Millisecond))
	return cancel(ctx, q, events, id, due.Add(r.Visibility))
}

// cancel cancels a message, half of the time with Interrupt. It records the call before making it,
// because the process may be killed during the call. After late, a killed consumer may have handled
// a message that is not recurring, and its lease may have ended.
func cancel(ctx context.Context, q *durable.Queue, events Recorder, id string, late time.Time) error {
	if err := events.Record(Event{Kind: MaybeCancelled, ID: id}); err != nil {
		return err
	}
	var options []durable.CancelOption
	if rand.IntN(2) == 0 {
		options = append(options, durable.Interrupt)
	}
	result, err := q.Cancel(ctx, id, options...)
	now := time.Now()
	switch {
	case unanswered(ctx, err):
		return nil
	case err != nil:
		return err
	case result == durable.ResultFiring && isRecurring(id): // its retries may follow, and no other run
		return nil
	case result == durable.ResultInterrupted:
		return events.Record(Event{Kind: Interrupted, ID: id, Clock: now.UnixMilli()})
	case result != durable.ResultCancelled:
		return events.Record(Event{Kind: Kept, ID: id})
	case !now.Before(late) && !isRecurring(id):
		return nil
	}
	return events.Record(Event{Kind: Cancelled, ID: id, Clock: now.UnixMilli()})
}

// unanswered reports whether it is unknown whether a call has taken effect.
func unanswered(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, durable.ErrUnavailable)
}

// recurringMark is part of the ids of recurring messages.
const recurringMark = "-recurring-"

func isRecurring(id string) bool { return strings.Contains(id, recurringMark) }

// repeat enqueues a recurring message, changes its series several times, and cancels it.
func (r *role) repeat(ctx context.Context, q *durable.Queue, events Recorder, id string) error {
	pause := func() { time.Sleep(rand.N(scaled(500*time.Millisecond, 4*time.Second))) }
	m := func(replace bool) durable.Message {
		return durable.Message{ID: id, Repeat: randomSeries(), Replace: replace}
	}
	if err := events.Record(Event{Kind: Recurring, ID: id}, Event{Kind: MaybeEnqueued, ID: id, Clock: time.Now().UnixMilli()}); err != nil {
		return err
	}
	_, err := q.Enqueue(ctx, m(false))
	if err == nil {
		err = events.Record(Event{Kind: Enqueued, ID: id, Clock: time.Now().UnixMilli()})
	}
	for i := 0; i < 5 && err == nil; i++ {
		pause()
		var result durable.Result
		if result, err = q.SetRepeat(ctx, id, randomSeries()); err == nil && result != durable.ResultRescheduled {
			return fmt.Errorf("SetRepeat of %s returned %v", id, result)
		}
		if err == nil && rand.IntN(2) == 0 {
			_, err = q.Enqueue(ctx, m(true))
		}
	}
	if err == nil {
		err = waitForRun(ctx, q, id)
	}
	switch {
	case unanswered(ctx, err):
		return nil // endSeries cancels it
	case err != nil:
		return err
	}
	pause()
	return cancel(ctx, q, events, id, time.Time{})
}

// waitForRun waits until a delivery of a recurring message was settled, which moves its due time.
func waitForRun(ctx context.Context, q *durable.Queue, id string) error {
	first, err := q.Get(ctx, id)
	for r := first; err == nil && !r.Due.After(first.Due); r, err = q.Get(ctx, id) {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func randomSeries() string { return fmt.Sprintf("@every %dms", 20+rand.IntN(150)) }

// endSeries cancels the recurring messages of the queue. It may miss a message that changes its
// state.
func endSeries(ctx context.Context, q *durable.Queue, events Recorder) error {
	for _, state := range []durable.State{durable.StateScheduled, durable.StateLeased} {
		for record, err := range q.List(ctx, state) {
			if err == nil && record.Repeat != "" {
				err = cancel(ctx, q, events, record.ID, time.Time{})
			}
			if err != nil && !unanswered(ctx, err) {
				return err
			}
		}
	}
	return nil
}

// consume handles messages until ctx ends.
func (r *role) consume(ctx context.Context, q *durable.Queue, events Recorder) error {
	if r.Killer {
		return q.Consume(ctx, r.handleKiller, durable.ConsumerOptions{Visibility: r.Visibility, MaxCrashes: killerCrashes})
	}
	var count atomic.Int64
	handler := func(ctx context.Context, d *durable.Delivery) error {
		e := Event{
			Kind: Started, ID: d.ID, Due: int64(driver.InstantOf(d.Due)), Token: d.Token, Attempt: d.Attempts + 1,
			Clock: time.Now().UnixMilli(), // the store runs on the same machine
		}
		if ctx.Err() != nil { // the process was paused; another consumer may have the message
			return context.Cause(ctx)
		}
		n := int(count.Add(1))
		if err := events.Record(e); err != nil {
			panic(err)
		}
		r.crash("started", n)
		if isRecurring(d.ID) {
			return r.handleRun(ctx, d, events, e, n)
		}
		time.Sleep(r.Handle)
		if r.FailEvery > 0 && d.Attempts+d.Postponed == 0 && n%r.FailEvery == 0 {
			e.Kind = Failed // or another outcome after which the message is delivered again
			outcomes := []error{errors.New("the first delivery fails"), durable.Postpone(50 * time.Millisecond), durable.Again(50 * time.Millisecond)}
			return errors.Join(outcomes[n/r.FailEvery%len(outcomes)], events.Record(e))
		}
		e.Kind = Handled
		err := events.Record(e)
		r.crash("handled", n)
		return err
	}
	// The limits are rarely reached, but consumers divide them.
	return durable.Consume(ctx, []durable.Source{{Queue: q, Handler: handler, MaxRunning: 1000, Rate: 50_000}}, durable.ConsumerOptions{
		Concurrency: cmp.Or(r.Concurrency, 16), Visibility: r.Visibility, Membership: r.Membership,
		Backoff: durable.Exponential(50*time.Millisecond, time.Second),
		// Messages that are often in flight at a crash must not become dead letters.
		MaxCrashes: 1000,
	})
}

// handleRun handles a run of a recurring message. It records an acknowledgement after it has
// succeeded.
func (r *role) handleRun(ctx context.Context, d *durable.Delivery, events Recorder, e Event, n int) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(r.Handle + rand.N(30*time.Millisecond)):
	}
	switch rand.IntN(8) {
	case 0:
		return errors.New("a delivery fails")
	case 1:
		return durable.Reject(errors.New("a run fails"))
	case 2:
		return nil
	}
	e.Kind = Acked
	if d.Ack(ctx) == nil { // else it is acknowledged again
		if err := events.Record(e); err != nil {
			panic(err)
		}
	}
	r.crash("handled", n)
	return nil
}

// crash kills the process if it is to crash at this point.
func (r *role) crash(point string, n int) {
	if r.CrashAt != point || n <= r.CrashAfter {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(fmt.Sprint("still alive: ", err))
}
