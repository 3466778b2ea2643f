package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// exampleQueue is a queue in memory, whose clock the examples move by hand, so that they need not
// wait for half an hour. A program opens boltstore or redisstore, which survive it; the rest is the
// same.
type exampleQueue struct {
	*durable.Queue
	mu  sync.Mutex
	now time.Time
}

func newExampleQueue() *exampleQueue {
	e := &exampleQueue{now: time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)}
	store := memstore.New(memstore.Options{Now: func() time.Time {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.now
	}})
	q, err := durable.Open(context.Background(), store, durable.Options{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	e.Queue = q
	return e
}

// pass moves the clock.
func (e *exampleQueue) pass(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(d)
}

// An order that is not paid is cancelled after 30 minutes.
func Example() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()

	_, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Body: []byte("2 tickets"), Delay: 30 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	q.pass(30 * time.Minute)

	ctx, stop := context.WithCancel(ctx)
	err = q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		fmt.Printf("cancel %s of %s: %s\n", d.ID, d.Enqueued.UTC().Format(time.TimeOnly), d.Body)
		stop()     // a program consumes until it ends
		return nil // the message is acknowledged
	}, durable.ConsumerOptions{})
	fmt.Println("ended:", err)
	// Output:
	// cancel order-42 of 12:00:00: 2 tickets
	// ended: <nil>
}

// A receiver takes one message at a time, with options of its own. A program that ends releases the
// messages that it has not handled. They come again as they were.
func ExampleReceiver() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "invoice-7"}); err != nil {
		fmt.Println(err)
		return
	}

	for _, handle := range []func(d *durable.Delivery) error{
		func(d *durable.Delivery) error { return d.Release(ctx) },
		func(d *durable.Delivery) error { return d.Ack(ctx) },
	} {
		r, err := q.Receiver(durable.ConsumerOptions{Visibility: time.Minute})
		if err != nil {
			fmt.Println(err)
			return
		}
		d, err := r.Take(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.ID, "failed deliveries:", d.Attempts, "crashes:", d.Crashes, "settled:", handle(d))
		r.Close()
	}
	// Output:
	// invoice-7 failed deliveries: 0 crashes: 0 settled: <nil>
	// invoice-7 failed deliveries: 0 crashes: 0 settled: <nil>
}

// Take waits for one message at a time.
func ExampleQueue_Take() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "reminder", Body: []byte("meeting in 10 minutes")}); err != nil {
		fmt.Println(err)
		return
	}

	d, err := q.Take(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", d.Body)
	fmt.Println("acknowledged:", d.Ack(ctx))
	fmt.Println("once more, lease lost:", errors.Is(d.Ack(ctx), durable.ErrLeaseLost))
	// Output:
	// meeting in 10 minutes
	// acknowledged: <nil>
	// once more, lease lost: true
}

// A message that was taken and cannot be handled now is given back.
func ExampleDelivery_Nack() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "call-back"}); err != nil {
		fmt.Println(err)
		return
	}

	for range 2 {
		d, err := q.Take(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.ID, "has failed", d.Attempts, "times")
		if d.Attempts == 0 {
			err = d.Nack(ctx, 0, errors.New("busy")) // 0: it is due again at once
		} else {
			err = d.Ack(ctx)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// call-back has failed 0 times
	// call-back has failed 1 times
}

// An order that is paid in time is not cancelled. The answer is exact: after Cancelled no handler
// is called.
func ExampleQueue_Cancel() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: 30 * time.Minute}); err != nil {
		fmt.Println(err)
		return
	}

	pay := func() {
		result, err := q.Cancel(ctx, "order-42")
		switch {
		case err != nil:
			fmt.Println("unknown, ask again:", err)
		case result == durable.Cancelled:
			fmt.Println("paid in time")
		case result == durable.Firing:
			fmt.Println("too late: the order is being cancelled")
		case result == durable.NotFound:
			fmt.Println("the order's message is gone: it was delivered, or cancelled before")
		}
	}
	pay()
	pay()

	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42"}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := q.Take(ctx); err != nil {
		fmt.Println(err)
		return
	}
	pay()
	// Output:
	// paid in time
	// the order's message is gone: it was delivered, or cancelled before
	// too late: the order is being cancelled
}

// A session ends 30 minutes after the last request.
func ExampleQueue_Reschedule() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "session-7", Delay: 30 * time.Minute}); err != nil {
		fmt.Println(err)
		return
	}

	q.pass(20 * time.Minute)
	result, err := q.Reschedule(ctx, "session-7", 30*time.Minute) // a request
	fmt.Println(result == durable.Rescheduled, err)

	r, err := q.Get(ctx, "session-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ends at", r.Due.UTC().Format(time.TimeOnly))
	// Output:
	// true <nil>
	// ends at 12:50:00
}

// A message that has used up its attempts is kept as a dead letter until an operator replays it.
func ExampleQueue_Dead() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "mail-1", MaxAttempts: 1}); err != nil {
		fmt.Println(err)
		return
	}

	// deliver handles one message.
	deliver := func(handler durable.Handler) {
		ctx, stop := context.WithCancel(ctx)
		err := q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
			defer stop()
			return handler(ctx, d)
		}, durable.ConsumerOptions{})
		if err != nil {
			fmt.Println(err)
		}
	}
	deliver(func(context.Context, *durable.Delivery) error { return errors.New("no such mailbox") })

	for r, err := range q.Dead(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s is dead after %d attempt: %s\n", r.ID, r.Attempts, r.Reason)
	}
	fmt.Println("replayed:", q.Replay(ctx, "mail-1", 0))
	deliver(func(_ context.Context, d *durable.Delivery) error {
		fmt.Println(d.ID, "is delivered")
		return nil
	})
	fmt.Println("dead letter:", errors.Is(q.Replay(ctx, "mail-1", 0), durable.ErrNotFound))
	// Output:
	// mail-1 is dead after 1 attempt: no such mailbox
	// replayed: <nil>
	// mail-1 is delivered
	// dead letter: true
}

// Each message of a batch is stored on its own. The error names the messages that were not stored.
func ExampleQueue_EnqueueBatch() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-2", Delay: time.Hour}); err != nil {
		fmt.Println(err)
		return
	}

	ids, err := q.EnqueueBatch(ctx, []durable.Message{
		{ID: "order-1", Delay: 30 * time.Minute},
		{ID: "order-2", Delay: 30 * time.Minute},
		{ID: "order-3", Delay: 30 * time.Minute},
	})
	fmt.Println(ids)
	fmt.Println(errors.Is(err, durable.ErrDuplicate))
	fmt.Println(err)

	s, err := q.Stats(ctx)
	fmt.Println(s.Scheduled, "are scheduled", err)
	// Output:
	// [order-1 order-2 order-3]
	// true
	// durable: enqueue message "order-2": a message with this id already exists
	// 3 are scheduled <nil>
}

// A message with an id that is queued already replaces the other one if it says so.
func ExampleMessage() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()

	at := time.Date(2030, time.March, 1, 18, 0, 0, 0, time.UTC)
	for _, replace := range []bool{false, false, true} {
		_, err := q.Enqueue(ctx, durable.Message{ID: "backup", At: at, Replace: replace})
		fmt.Println("duplicate:", errors.Is(err, durable.ErrDuplicate))
		at = at.Add(time.Hour)
	}
	r, err := q.Get(ctx, "backup")
	fmt.Println(r.Due.UTC().Format(time.TimeOnly), err)
	// Output:
	// duplicate: false
	// duplicate: true
	// duplicate: false
	// 20:00:00 <nil>
}

// A probe, as of Kubernetes: 200 if the store answers and keeps messages safely, else 503 with what
// is wrong.
func ExampleQueue_Healthy() {
	q := newExampleQueue()

	health := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := q.Healthy(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})

	for range 2 {
		w := httptest.NewRecorder()
		health.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		fmt.Println(w.Code)
		q.Close()
	}
	// Output:
	// 200
	// 503
}

// While a queue is paused messages are accepted and none is delivered.
func ExampleQueue_Pause() {
	ctx := context.Background()
	q := newExampleQueue()
	defer q.Close()

	fmt.Println("paused:", q.Pause(ctx))
	if _, err := q.Enqueue(ctx, durable.Message{ID: "mail-1"}); err != nil {
		fmt.Println(err)
		return
	}
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := q.Take(brief)
	fmt.Println("no message:", errors.Is(err, context.DeadlineExceeded))

	fmt.Println("resumed:", q.Resume(ctx))
	d, err := q.Take(ctx)
	fmt.Println(d.ID, err)
	fmt.Println("acknowledged:", d.Ack(ctx))
	// Output:
	// paused: <nil>
	// no message: true
	// resumed: <nil>
	// mail-1 <nil>
	// acknowledged: <nil>
}
