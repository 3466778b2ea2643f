package load

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
)

// River is a queue of River with transactions of type T.
type River[T any] struct {
	client *river.Client[T]
	handle func(due time.Time)
}

// riverTask is the arguments of a job.
type riverTask struct{ Body []byte }

func (riverTask) Kind() string { return "task" }

// NewRiver creates River's tables, in a schema if that is not empty. The intervals and the number
// of workers delivered most per second of several that we have tried. All else has its default.
func NewRiver[T any](ctx context.Context, driver riverdriver.Driver[T], schema string) (q *River[T], err error) {
	q = &River[T]{}
	logger := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: logger, Schema: schema})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverTask]) error {
		q.handle(DueOf(job.Args.Body))
		return nil
	}))
	q.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers,
		Logger: logger, Schema: schema,
	})
	return q, err
}

// riverJob returns a job that is due after a delay.
func riverJob(delay time.Duration) (riverTask, *river.InsertOpts) {
	due, opts := time.Now().Add(delay), &river.InsertOpts{}
	if delay > 0 { // otherwise the job is available without the scheduler
		opts.ScheduledAt = due
	}
	return riverTask{BodyDue(due)}, opts
}

// Enqueue implements [Queue].
func (q *River[T]) Enqueue(ctx context.Context, delay time.Duration) error {
	job, opts := riverJob(delay)
	_, err := q.client.Insert(ctx, job, opts)
	return err
}

// EnqueueTx enqueues a job in a transaction.
func (q *River[T]) EnqueueTx(ctx context.Context, tx T, delay time.Duration) error {
	job, opts := riverJob(delay)
	_, err := q.client.InsertTx(ctx, tx, job, opts)
	return err
}

// EnqueueBatches enqueues n jobs, 1,000 in each call, in many goroutines.
func (q *River[T]) EnqueueBatches(ctx context.Context, n, goroutines int, delay time.Duration) error {
	return inBatches(n, goroutines, func(n int) error {
		jobs := make([]river.InsertManyParams, n)
		for i := range jobs {
			job, opts := riverJob(delay)
			jobs[i] = river.InsertManyParams{Args: job, InsertOpts: opts}
		}
		_, err := q.client.InsertManyFast(ctx, jobs)
		return err
	})
}

// Consume implements [Queue].
func (q *River[T]) Consume(ctx context.Context, handle func(due time.Time)) error {
	q.handle = handle
	if err := q.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return q.client.Stop(context.WithoutCancel(ctx))
}
