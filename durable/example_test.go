package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/typed"
)

// exampleQueue is a queue in memory. The examples set its clock, so that they need not wait for
// half an hour. A program opens pebblestore or redisstore, which survive a crash. Everything else
// is the same.
type exampleQueue struct {
	*durable.Queue
	mu  sync.Mutex
	now time.Time
}

func newExampleQueue(options durable.Options) *exampleQueue {
	e := &exampleQueue{now: time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)}
	store := memstore.New(memstore.Options{Now: func() time.Time {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.now
	}})
	q, err := durable.Open(context.Background(), store, options)
	if err != nil {
		log.Fatal(err)
	}
	e.Queue = q
	return e
}

// pass sets the clock forward.
func (e *exampleQueue) pass(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(d)
}

// Cancel an order that is not paid within 30 minutes.
func Example() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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
		stop()     // a real program consumes until it ends
		return nil // the message is acknowledged
	}, durable.ConsumerOptions{})
	fmt.Println("ended:", err)
	// Output:
	// cancel order-42 of 12:00:00: 2 tickets
	// ended: <nil>
}

// A receiver takes one message at a time, with its own options. A program that terminates releases
// the messages that it has not handled. They are redelivered unchanged.
func ExampleReceiver() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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

// Take one message at a time.
func ExampleQueue_Take() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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

// Retry a message that cannot be handled now.
func ExampleDelivery_NackAfter() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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
			err = d.NackAfter(ctx, 0, errors.New("busy")) // due again immediately
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

// Cancel the timeout of an order that is paid in time. The result is exact: after ResultCancelled
// no handler is called.
func ExampleQueue_Cancel() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: 30 * time.Minute}); err != nil {
		fmt.Println(err)
		return
	}

	pay := func() {
		result, err := q.Cancel(ctx, "order-42")
		switch {
		case err != nil:
			fmt.Println("unknown, call again:", err)
		case result == durable.ResultCancelled:
			fmt.Println("paid in time")
		case result == durable.ResultFiring:
			fmt.Println("too late: the order is being cancelled")
		case result == durable.ResultNotFound:
			fmt.Println("the message was already delivered or cancelled")
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
	// the message was already delivered or cancelled
	// too late: the order is being cancelled
}

// End a session 30 minutes after its last request.
func ExampleQueue_Reschedule() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "session-7", Delay: 30 * time.Minute}); err != nil {
		fmt.Println(err)
		return
	}

	q.pass(20 * time.Minute)
	result, err := q.Reschedule(ctx, "session-7", 30*time.Minute) // a request
	fmt.Println(result == durable.ResultRescheduled, err)

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

// A message whose attempts have all failed is kept as a dead letter until an operator replays it.
func ExampleQueue_Replay() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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

	for r, err := range q.List(ctx, durable.StateDead) {
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
	fmt.Println("no longer dead:", errors.Is(q.Replay(ctx, "mail-1", 0), durable.ErrNotFound))
	// Output:
	// mail-1 is dead after 1 attempt: no such mailbox
	// replayed: <nil>
	// mail-1 is delivered
	// no longer dead: true
}

// Each message of a batch is stored separately. The error names the messages that were not stored.
func ExampleQueue_EnqueueBatch() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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

// A message with Replace replaces an existing message with the same id.
func ExampleMessage() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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

// A health probe, for example for Kubernetes, returns 200 if the store answers and keeps messages
// safely. Otherwise it returns 503 with the reason.
func ExampleQueue_Healthy() {
	q := newExampleQueue(durable.Options{Queue: "orders"})

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

// While a queue is paused, messages are accepted and not delivered.
func ExampleQueue_Pause() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
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

type (
	order  struct{ Number int }
	report struct{ Day string }
)

// Two kinds of messages share a queue and its handlers.
func ExampleMux() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{Queue: "jobs", Partitions: 1})
	defer q.Close()
	orders, reports := typed.New[order](q.Queue, nil), typed.New[report](q.Queue, nil)
	mux := durable.Mux{Kinds: map[string]durable.Kind{
		"order": {Timeout: 5 * time.Second, Handler: orders.Handler(func(_ context.Context, d *typed.Delivery[order]) error {
			fmt.Println("cancel order", d.Body.Number)
			return nil
		})},
		"report": {Timeout: time.Minute, Handler: reports.Handler(func(_ context.Context, d *typed.Delivery[report]) error {
			fmt.Println("report of", d.Body.Day)
			stop()
			return nil
		})},
	}}
	_, err := orders.Enqueue(ctx, typed.Message[order]{ID: "1", Body: order{42}})
	if err == nil {
		_, err = reports.Enqueue(ctx, typed.Message[report]{ID: "2", Body: report{"Monday"}})
	}
	if err == nil {
		err = q.Consume(ctx, mux.Handle, durable.ConsumerOptions{Concurrency: 1})
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// cancel order 42
	// report of Monday
}

// A report every day at 8:00 in Berlin. Each program that starts may enqueue it again: the id is
// taken. On March 31 the clocks there are set forward.
func ExampleMessage_repeat() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "jobs"})
	defer q.Close()
	q.pass(29 * 24 * time.Hour)
	for range 2 {
		_, err := q.Enqueue(ctx, durable.Message{ID: "daily-report", Repeat: "CRON_TZ=Europe/Berlin 0 8 * * *"})
		if err != nil && !errors.Is(err, durable.ErrDuplicate) {
			fmt.Println(err)
			return
		}
	}
	for range 2 {
		q.pass(24 * time.Hour)
		d, err := q.Take(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("due", d.Due.UTC().Format(time.DateTime))
		if err := d.Ack(ctx); err != nil { // the run is over
			fmt.Println(err)
		}
	}
	fmt.Println(q.SetRepeat(ctx, "daily-report", "@every 1h"))
	// Output:
	// due 2030-03-31 06:00:00
	// due 2030-04-01 06:00:00
	// Rescheduled <nil>
}

// A handler polls until a payment has arrived. It looks again every minute, which counts no
// attempt.
func ExamplePostpone() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Queue: "orders"})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42"}); err != nil {
		fmt.Println(err)
		return
	}
	for _, paid := range []bool{false, false, true} {
		d, err := q.Take(ctx) // Consume passes the delivery to the handler
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("paid:", paid, "attempts:", d.Attempts)
		var outcome error // of the handler
		if !paid {
			outcome = durable.Postpone(time.Minute)
		}
		if outcome == nil {
			err = d.Ack(ctx)
		} else {
			err = d.Nack(ctx, outcome)
		}
		if err != nil {
			fmt.Println(err)
		}
		q.pass(time.Minute)
	}
	// Output:
	// paid: false attempts: 0
	// paid: false attempts: 0
	// paid: true attempts: 0
}

// A user stops a job that is running. The job is not repeated.
func ExampleQueue_Cancel_interrupt() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{Queue: "jobs"})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "export-7"}); err != nil {
		fmt.Println(err)
		return
	}
	err := q.Consume(ctx, func(handling context.Context, d *durable.Delivery) error {
		fmt.Println(q.Cancel(ctx, d.ID, durable.Interrupt)) // by another process, normally
		<-handling.Done()
		fmt.Println(context.Cause(handling))
		stop()
		return handling.Err()
	}, durable.ConsumerOptions{})
	if err != nil {
		fmt.Println(err)
	}
	_, err = q.Get(context.Background(), "export-7")
	fmt.Println("gone:", errors.Is(err, durable.ErrNotFound))
	// Output:
	// Interrupted <nil>
	// the message was cancelled during its delivery
	// gone: true
}

// transaction is what a database offers, for the example of Chain.
type transaction struct{ effects []string }

func (tx *transaction) Rollback() { fmt.Println("rolled back:", tx.effects) }
func (tx *transaction) Commit() error {
	fmt.Println("committed:", tx.effects)
	return nil
}

// A middleware runs each handler in a transaction, and another one logs its failures. Both apply to
// any handler, such as handlers of package typed and of a tracer.
func ExampleChain() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{Queue: "mails", Partitions: 1})
	defer q.Close()
	if _, err := q.EnqueueBatch(ctx, []durable.Message{{ID: "ada"}, {ID: "eve"}}); err != nil {
		fmt.Println(err)
		return
	}

	type key struct{}
	logged := func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, d *durable.Delivery) error {
			err := next(ctx, d)
			if durable.Failed(err) {
				fmt.Println(d.ID, "has failed:", err)
			}
			return err
		}
	}
	transactional := func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, d *durable.Delivery) error {
			tx := new(transaction)
			err := next(context.WithValue(ctx, key{}, tx), d)
			if durable.Failed(err) {
				tx.Rollback()
				return err
			}
			return errors.Join(tx.Commit(), err) // err may be an outcome such as Again
		}
	}
	handler := func(ctx context.Context, d *durable.Delivery) error {
		tx := ctx.Value(key{}).(*transaction)
		tx.effects = append(tx.effects, "mail to "+d.ID)
		if d.ID == "eve" {
			stop()
			return durable.Reject(errors.New("no such mailbox"))
		}
		return durable.Again(time.Hour) // the next mail is due in an hour
	}
	if err := q.Consume(ctx, durable.Chain(handler, logged, transactional), durable.ConsumerOptions{Concurrency: 1}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// committed: [mail to ada]
	// rolled back: [mail to eve]
	// eve has failed: rejected: no such mailbox
}

// A handler decides what happens to a message by its result.
func ExampleHandler() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{Queue: "mails"})
	defer q.Close()
	ids, err := q.EnqueueBatch(ctx, []durable.Message{{ID: "ada"}, {ID: "bob"}, {ID: "eve"}})
	if err != nil {
		fmt.Println(err)
		return
	}

	handled := 0
	var handler durable.Handler = func(_ context.Context, d *durable.Delivery) error {
		if handled++; handled == len(ids) {
			stop()
		}
		switch d.ID {
		case "bob":
			return durable.Fail(errors.New("mailbox full"), time.Hour)
		case "eve":
			return durable.Reject(errors.New("no such mailbox"))
		}
		return nil
	}
	if err := q.Consume(ctx, handler, durable.ConsumerOptions{Concurrency: 1}); err != nil {
		fmt.Println(err)
	}
	for _, id := range ids {
		switch r, err := q.Get(context.Background(), id); {
		case errors.Is(err, durable.ErrNotFound):
			fmt.Println(id, "is acknowledged")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(id, "is", r.State, "because of:", r.Reason)
		}
	}
	// Output:
	// ada is acknowledged
	// bob is Scheduled because of: mailbox full
	// eve is Dead because of: rejected: no such mailbox
}

// Backoff sets the delay before the next attempt. Here the delay depends on the error.
func ExampleConsumerOptions() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "call"}); err != nil {
		fmt.Println(err)
		return
	}

	errBusy := errors.New("busy")
	err := q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		fmt.Println("failed attempts:", d.Attempts)
		if d.Attempts < 2 {
			return errBusy
		}
		stop()
		return nil
	}, durable.ConsumerOptions{
		Concurrency:    8,
		HandlerTimeout: time.Minute,
		Backoff: func(_ *durable.Delivery, err error) time.Duration {
			if errors.Is(err, errBusy) {
				return 0
			}
			return time.Hour
		},
	})
	fmt.Println("ended:", err)
	// Output:
	// failed attempts: 0
	// failed attempts: 1
	// failed attempts: 2
	// ended: <nil>
}

// A panic in a handler is a failed attempt. Backoff gets it as a PanicError.
func ExamplePanicError() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{Logger: slog.New(slog.DiscardHandler)})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "m"}); err != nil {
		fmt.Println(err)
		return
	}

	err := q.Consume(ctx, func(context.Context, *durable.Delivery) error {
		panic("division by zero")
	}, durable.ConsumerOptions{Backoff: func(_ *durable.Delivery, err error) time.Duration {
		var panicked *durable.PanicError
		fmt.Println(errors.As(err, &panicked), panicked.Value)
		stop()
		return time.Hour
	}})
	fmt.Println("ended:", err)
	// Output:
	// true division by zero
	// ended: <nil>
}

// The delay doubles with each attempt and has a jitter of one half in both directions.
func ExampleExponential() {
	backoff := durable.Exponential(time.Second, time.Hour)
	for _, attempts := range []int{0, 3, 30} {
		d := backoff(&durable.Delivery{Attempts: attempts}, nil)
		fmt.Println(d >= min(500*time.Millisecond<<attempts, time.Hour/2), d <= min(1500*time.Millisecond<<attempts, time.Hour))
	}
	// Output:
	// true true
	// true true
	// true true
}

// The token of a delivery is a fencing token: a system that stores the highest token rejects a
// consumer that was delayed past the end of its lease.
func ExampleDelivery() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "transfer"}); err != nil {
		fmt.Println(err)
		return
	}

	first, err := q.Take(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("extended:", first.Extend(ctx, time.Minute))
	fmt.Println("released:", first.Release(ctx))
	second, err := q.Take(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the token rises:", second.Token > first.Token)
	fmt.Println("lease lost:", errors.Is(first.Ack(ctx), durable.ErrLeaseLost))
	fmt.Println("acknowledged:", second.Ack(ctx))
	// Output:
	// extended: <nil>
	// released: <nil>
	// the token rises: true
	// lease lost: true
	// acknowledged: <nil>
}

// A BatchError has the error of each message.
func ExampleBatchError() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{})
	defer q.Close()

	_, err := q.EnqueueBatch(ctx, []durable.Message{{ID: "a"}, {ID: "b"}, {ID: "a"}})
	var batch *durable.BatchError
	if errors.As(err, &batch) {
		for i, err := range batch.Errors {
			fmt.Println(i, err)
		}
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 durable: enqueue message "a": a message with this id already exists
}

// Cancel all messages of one customer.
func ExampleQueue_CancelMatching() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{})
	defer q.Close()
	for i, customer := range []string{"7", "8", "7"} {
		_, err := q.Enqueue(ctx, durable.Message{
			ID: fmt.Sprint("order-", i), Delay: time.Hour, Headers: map[string]string{"customer": customer},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}

	report, err := q.CancelMatching(ctx, map[string]string{"customer": "7"})
	fmt.Println(report.Cancelled, "cancelled,", report.Firing, "firing", err)
	// Output:
	// 2 cancelled, 0 firing <nil>
}

// Replay the dead letters of an outage, at a limited rate.
func ExampleQueue_ReplayAll() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{})
	defer q.Close()
	for _, reason := range []string{"connection refused", "no such user"} {
		if _, err := q.Enqueue(ctx, durable.Message{ID: reason}); err != nil {
			fmt.Println(err)
			return
		}
		d, err := q.Take(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := d.Bury(ctx, reason); err != nil {
			fmt.Println(err)
			return
		}
	}

	filter := durable.DeadFilter{Reason: "refused"}
	n, err := q.ReplayAll(ctx, filter, durable.ReplayOptions{Delay: time.Minute, Rate: 50})
	fmt.Println(n, "replayed", err)
	n, err = q.DeleteAllDead(ctx, durable.DeadFilter{All: true})
	fmt.Println(n, "purged", err)
	// Output:
	// 1 replayed <nil>
	// 1 purged <nil>
}

// Events show the steps of a delivery.
func ExampleEvent() {
	ctx := context.Background()
	var mu sync.Mutex
	var kinds []durable.EventKind
	q := newExampleQueue(durable.Options{OnEvent: func(e durable.Event) {
		if e.ID == "m" {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
		}
	}})
	if _, err := q.Enqueue(ctx, durable.Message{ID: "m"}); err != nil {
		fmt.Println(err)
		return
	}

	d, err := q.Take(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("acknowledged:", d.Ack(ctx))
	q.Close()
	mu.Lock()
	defer mu.Unlock()
	fmt.Println(kinds)
	// Output:
	// acknowledged: <nil>
	// [Claimed Begun Delivered Acked]
}

// List the messages of one state.
func ExampleQueue_List() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Partitions: 1})
	defer q.Close()
	for i := range 3 {
		_, err := q.Enqueue(ctx, durable.Message{ID: fmt.Sprint("order-", i), Delay: time.Duration(3-i) * time.Hour})
		if err != nil {
			fmt.Println(err)
			return
		}
	}

	for r, err := range q.List(ctx, durable.StateScheduled) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.ID, "is due at", r.Due.UTC().Format(time.TimeOnly))
	}
	// Output:
	// order-2 is due at 13:00:00
	// order-1 is due at 14:00:00
	// order-0 is due at 15:00:00
}

// Stats has the counts of the queue and the lateness of this process.
func ExampleQueue_Stats() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{Partitions: 4})
	defer q.Close()
	for _, delay := range []time.Duration{0, time.Minute, time.Hour} {
		if _, err := q.Enqueue(ctx, durable.Message{Delay: delay}); err != nil {
			fmt.Println(err)
			return
		}
	}
	q.pass(time.Minute)

	s, err := q.Stats(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Scheduled, "scheduled,", s.Due, "due, next due at", s.NextDue.UTC().Format(time.TimeOnly))
	fmt.Println(len(s.Partitions), "partitions,", s.Unowned, "without an owner")
	fmt.Println(s.Lateness.Histogram.Count(), "deliveries in this process")
	n, err := q.CountDue(ctx, 0, 2*time.Hour)
	fmt.Println(n, err)
	// Output:
	// 3 scheduled, 2 due, next due at 12:00:00
	// 4 partitions, 4 without an owner
	// 0 deliveries in this process
	// [2 3] <nil>
}

// Consumers lists the consumers of all processes.
func ExampleQueue_Consumers() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := newExampleQueue(durable.Options{Partitions: 4})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "m"}); err != nil {
		fmt.Println(err)
		return
	}

	err := q.Consume(ctx, func(ctx context.Context, _ *durable.Delivery) error {
		defer stop()
		var consumers []durable.Consumer
		for len(consumers) == 0 { // until the first heartbeat
			var err error
			if consumers, err = q.Consumers(ctx); err != nil {
				return err
			}
		}
		fmt.Println("this process:", consumers[0].PID == os.Getpid())
		return nil
	}, durable.ConsumerOptions{})
	fmt.Println("ended:", err)
	// Output:
	// this process: true
	// ended: <nil>
}

// An audit of an intact queue finds nothing.
func ExampleQueue_Audit() {
	ctx := context.Background()
	q := newExampleQueue(durable.Options{})
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{Delay: time.Hour}); err != nil {
		fmt.Println(err)
		return
	}

	report, err := q.Audit(ctx, false)
	fmt.Println(report.Records, "record,", report.Orphans+report.Strays+report.Wrong, "faults", err)
	// Output:
	// 1 record, 0 faults <nil>
}

// A store may hold several queues. With Existing, Open does not create a queue.
func ExampleOpen() {
	ctx := context.Background()
	var store durable.Store = memstore.New(memstore.Options{})
	defer store.Close()

	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders", Partitions: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	fmt.Println(q.Options().Queue)
	_, err = durable.Open(ctx, store, durable.Options{Queue: "ordres", Existing: true})
	fmt.Println("no such queue:", errors.Is(err, durable.ErrNoQueue))
	_, err = durable.Open(ctx, store, durable.Options{Queue: "orders", Partitions: 8})
	fmt.Println("16 partitions:", errors.Is(err, durable.ErrPartitions))
	// Output:
	// orders
	// no such queue: true
	// 16 partitions: true
}

// Two queues share the handlers. Ten messages of one of them are delivered per second.
func ExampleConsume() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	orders := newExampleQueue(durable.Options{Queue: "orders"})
	defer orders.Close()
	calls := newExampleQueue(durable.Options{Queue: "calls"})
	defer calls.Close()
	for _, q := range []*durable.Queue{orders.Queue, calls.Queue} {
		if _, err := q.Enqueue(ctx, durable.Message{ID: q.Options().Queue + "-1"}); err != nil {
			fmt.Println(err)
			return
		}
	}

	handled := make(chan string, 2)
	handler := func(_ context.Context, d *durable.Delivery) error {
		handled <- d.ID
		if len(handled) == cap(handled) {
			stop()
		}
		return nil
	}
	err := durable.Consume(ctx, []durable.Source{
		{Queue: orders.Queue, Handler: handler, Weight: 3},
		{Queue: calls.Queue, Handler: handler, Rate: 10},
	}, durable.ConsumerOptions{Concurrency: 16})
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	fmt.Println(err)
	// Unordered output:
	// orders-1
	// calls-1
	// <nil>
}

// The messages of a customer are handled one at a time, in all consumers.
func ExampleOneAtATime() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q, err := durable.Open(ctx, memstore.New(memstore.Options{}), durable.Options{Queue: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	for range 3 {
		if _, err := q.Enqueue(ctx, durable.Message{Headers: map[string]string{"customer": "7"}}); err != nil {
			fmt.Println(err)
			return
		}
	}

	var running, handled atomic.Int32
	handler := func(context.Context, *durable.Delivery) error {
		defer running.Add(-1)
		fmt.Println("running:", running.Add(1))
		if handled.Add(1) == 3 {
			stop()
		}
		return nil
	}
	customer := func(d *durable.Delivery) string { return d.Headers["customer"] }
	fmt.Println(q.Consume(ctx, durable.Chain(handler, durable.OneAtATime(customer)), durable.ConsumerOptions{}))
	// Output:
	// running: 1
	// running: 1
	// running: 1
	// <nil>
}
